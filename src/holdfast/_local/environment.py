"""The URLs of the servers that the environment names."""

from __future__ import annotations

import os

from holdfast._local.guardian.parent import VARIABLES, is_torn
from holdfast.errors import ConfigError

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
