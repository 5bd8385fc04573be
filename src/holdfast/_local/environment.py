"""The URLs of the servers that the environment names, and environments for commands, without the passwords in these URLs."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLES = ("HOLDFAST_URL", "REDIS_URL")
"""Names of environment variables that contain the URL of the server, or of several servers."""

TORN = "blanks separate URLs, and one of the parts has no ://; write a blank in a password as %20"


def urls() -> list[str]:
    """Return the URLs in HOLDFAST_URL or, if that is not set, in REDIS_URL; an empty list if neither is set.

    Raises ConfigError if the variable is empty, or if a blank seems to be inside a URL.
    """
    for name in VARIABLES:
        if name in os.environ:
            found = os.environ[name].split()
            if not found:
                raise ConfigError(f"{name} is set but empty: set it to the server's URL, or unset it", parameter=name)
            if is_torn(os.environ[name]):
                raise ConfigError(f"{name}: {TORN}", parameter=name)
            return found
    return []


def has_password(urls: str) -> bool:
    """Return True if one of these URLs contains a password, or may contain one."""
    if is_torn(urls):
        return "@" in urls
    return any(":" in url.rpartition("@")[0].replace("://", "", 1) or "password=" in url for url in urls.split())


def is_torn(urls: str) -> bool:
    """Return True if a blank seems to be inside a URL, as in a password, instead of between two URLs."""
    _, *others = urls.split() or [""]
    return any("://" not in url for url in others)


def scrubbed(env: Mapping[str, str], pass_url: bool = False) -> dict[str, str]:
    """Return the environment without server URLs that contain a password, because the command might print them.

    With ``pass_url``, keep these URLs.
    """
    return {k: v for k, v in env.items() if k not in VARIABLES or pass_url or not has_password(v)}
