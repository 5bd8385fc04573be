"""``--url-file``: whoever can write to the file chooses the server, so it is refused if another user can."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from cli.commands import PROGRAM
from holdfast.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.servers import PrivateServer


@pytest.mark.parametrize("source", ["--url", "--url-file", "HOLDFAST_URL", "REDIS_URL"])
def test_an_address_is_no_url(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The error names where the address was read, and repeats it only if it has no password."""
    file = tmp_path / "url"
    for address, hint in (
        ("localhost:1", "'localhost:1' is not a URL; if it is the address of a server, pass 'redis://localhost:1'"),
        (
            "secret@localhost:1",
            "it must start with redis://, rediss:// (TLS), unix:// or local:// (or valkey://, +sentinel, +cluster)",
        ),
    ):
        file.write_text(address)
        monkeypatch.delenv("HOLDFAST_URL", raising=False)
        monkeypatch.setenv(source if source.isupper() else "UNUSED", address)
        options = {"--url": ["--url", address], "--url-file": ["--url-file", str(file)]}.get(source, [])
        with pytest.raises(SystemExit) as ended:
            main(["ls", *options])
        shown = f"--url-file {file}" if source == "--url-file" else source
        assert ended.value.code == 64
        assert capfd.readouterr().err == f"holdfast: {shown}: {hint} (see holdfast ls --help)\n"


def _foreign(path: Path) -> None:
    os.chown(path, 65534, -1)


def _as_link(file: Path, target: str) -> None:
    file.unlink()
    file.symlink_to(target)


def _linked(file: Path) -> None:
    """The file is where all may replace it, the link is not."""
    (file.parent / "all").mkdir()
    (file.parent / "all").chmod(0o777)
    file.rename(file.parent / "all" / "url")
    file.symlink_to("all/url")


def _linked_out(file: Path) -> None:
    """The link is where all may replace it, the file is not."""
    elsewhere = file.parent.parent / "url"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    file.parent.chmod(0o777)


def _linked_on_the_way(file: Path) -> None:
    """The first link is where only we may write, and so is the file; a link between them is not."""
    between = file.parent / "all"
    between.mkdir()
    elsewhere = file.rename(file.with_name("elsewhere"))
    (between / "link").symlink_to(elsewhere)
    file.symlink_to("all/link")
    between.chmod(0o777)


def _foreign_link(file: Path) -> None:
    elsewhere = file.rename(file.with_name("elsewhere"))
    file.symlink_to(elsewhere)
    os.lchown(file, 65534, -1)


def _write_to(pipe: Path) -> None:
    with contextlib.suppress(BrokenPipeError):  # who refuses it reads nothing
        pipe.write_text("redis://h")


def _as_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)
    file.chmod(0o666)
    threading.Thread(target=_write_to, args=[file], daemon=True).start()


DISTRUSTED: dict[str, tuple[Callable[[Path], object], str]] = {
    "a directory that all may write to": (lambda file: file.parent.chmod(0o777), "another user may replace the file in"),
    "a link into such a directory": (_linked, "another user may replace the file in"),
    "a link in such a directory": (_linked_out, "another user may replace the file in"),
    "a directory further up that all may write to": (lambda file: file.parent.parent.chmod(0o777), "may replace the file in"),
    "a link on the way into such a directory": (_linked_on_the_way, "another user may replace the file in"),
    "a pipe that all may write to": (_as_pipe, "every user may write to the file"),
    "endless": (lambda file: _as_link(file, "/dev/zero"), "neither a file, a pipe nor a terminal"),
    "a directory": (lambda file: _as_link(file, "/"), "Is a directory"),
    "long": (lambda file: file.write_text("redis://h " * 10_000), "longer than 65536 bytes"),
}
if os.geteuid() == 0:
    DISTRUSTED |= {
        "another user's": (_foreign, "belongs to another user (65534)"),
        "another user's link": (_foreign_link, "belongs to another user (65534)"),
        "another user's directory": (lambda file: _foreign(file.parent), "another user may replace the file in"),
        "another user's directory further up": (
            lambda file: _foreign(file.parent.parent),
            "another user may replace the file in",
        ),
    }


@pytest.mark.parametrize("how", DISTRUSTED)
def test_a_url_file_that_another_user_chooses_is_refused(
    server: PrivateServer, tmp_path: Path, capfd: pytest.CaptureFixture[str], how: str
) -> None:
    prepare, why = DISTRUSTED[how]
    file = tmp_path / "inner" / "url"
    file.parent.mkdir()
    file.write_text(server.url)
    assert main(["ls", "--url-file", str(file)]) == 0
    prepare(file)
    capfd.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["ls", "--url-file", str(file)])
    err = capfd.readouterr().err
    assert (ended.value.code, err.count("\n")) == (64, 1)
    assert why in err


@pytest.mark.turns
@pytest.mark.parametrize(
    "script",
    [
        'printf %s "$URL" | "$@" --url-file /dev/stdin',
        '"$@" --url-file <(printf %s "$URL")',
        '"$@" --url-file /dev/stdin <<<"$URL"',
        'printf %s "$URL" >file; "$@" --url-file /dev/stdin <file',
        'mkfifo -m 600 pipe; printf %s "$URL" >pipe & "$@" --url-file pipe',
        'mkdir -m 1777 all; printf %s "$URL" >all/file; "$@" --url-file all/file',
        'mkdir -p v; printf %s "$URL" >v/url; ln -s v now; ln -s now/url url; "$@" --url-file url',
        'mkdir -m 1777 all; mkdir all/v; printf %s "$URL" >url; ln -s ../../url all/v/url; "$@" --url-file all/v/../v/url',
    ],
)
def test_a_url_file_that_is_trusted(server: PrivateServer, tmp_path: Path, script: str, name: str) -> None:
    """Among them what Kubernetes makes of a secret: links within a directory that all may write to, with a sticky bit."""
    argv, env = ["bash", "-c", script, "-", *PROGRAM, "show", name], {**os.environ, "URL": server.url}
    done = subprocess.run(argv, env=env, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_url_from_a_terminal(server: PrivateServer) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen([*PROGRAM, "ls", "--url-file", "/dev/stdin"], stdin=theirs)
    os.write(ours, f"{server.url}\n\4".encode())
    code = process.wait(60)
    os.close(ours)
    os.close(theirs)
    assert code == 0
