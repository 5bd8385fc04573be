"""`holdfast acl`: the line it prints is one that servers take as it is, and what makes no sense is refused."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any

import pytest
import redis

import holdfast
from cli.commands import PROGRAM, Holdfast
from holdfast import fencing
from holdfast._api import access
from holdfast.cli import acl, main
from support.servers import PrivateServer


def printed(capsys: pytest.CaptureFixture[str], *options: str) -> list[str]:
    assert main(["acl", *options]) == 0
    out, err = capsys.readouterr()
    assert (err, out.count("\n")) == ("", 1)
    return out.split()


def test_the_server_takes_the_line_as_it_is(capsys: pytest.CaptureFixture[str], client: redis.Redis) -> None:
    words = printed(capsys, "--user", "cron", "--prefix", "cron[1]*:", "--key", "app:*", "--fencing", "{a}:*", "--select")
    assert words[:3] == ["ACL", "SETUSER", "cron"]
    admin: Any = client
    assert admin.execute_command(*words) in {b"OK", True}
    try:
        user = admin.acl_getuser("cron")
        assert "on" in user["flags"]
        old = admin.info("server")["redis_version"].startswith("6.")  # it names patterns without what they are for
        assert [key.decode() if old else key[1:] for key in user["keys"]] == [
            r"cron\[1\]\*:{*", r"cron\[1\]\*:proc:*",
            "app:*", "{app:*}:state:raw", "{app:*}:queue:raw", "{a}:*", "{a}:*:fence",
        ]  # fmt: skip
        assert user["channels"] == ([rb"cron\[1\]\*:inbox:*"] if old else [r"&cron\[1\]\*:inbox:*"])
        assert "+select" in user["commands"]
        assert admin.execute_command("AUTH", "cron", "PASSWORD") in {b"OK", True}
    finally:
        admin.execute_command("AUTH", "default", "")
        admin.acl_deluser("cron")


def test_a_server_is_asked_what_it_knows(capsys: pytest.CaptureFixture[str], server: PrivateServer) -> None:
    assert {"+publish", "+asking"} <= set(printed(capsys, "--cluster"))
    known = printed(capsys, "--cluster", "--url", server.url)
    with redis.Redis.from_url(server.url) as client:
        version = client.info("server")["redis_version"][:3]
    assert known == printed(capsys, "--cluster", "--server-version", version)
    assert {"+spublish", "+publish"} & set(known) == ({"+publish"} if version == "6.2" else {"+spublish"})
    assert main(["acl", "--url", "redis://127.0.0.1:1"]) == 69


@pytest.mark.parametrize(
    "options",
    [
        ("--user", "a b"),
        ("--user", ""),
        ("--key", "a b"),
        ("--prefix", "a\n"),
        ("--server-version", "x"),
        ("--server-version", "6.0"),
        ("--cluster", "--redlock"),
    ],
)
def test_bad_usage(capfd: pytest.CaptureFixture[str], options: tuple[str, ...]) -> None:
    try:
        code = main(["acl", *options])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 64
    assert capfd.readouterr().err.count("\n") == 1


def test_there_is_an_option_for_each_feature(capsys: pytest.CaptureFixture[str]) -> None:
    assert {"lock", "legacy", *acl.FEATURES} == set(access.FEATURES)
    assert set(printed(capsys, "--schedule")) >= {"~hf:schedule:{*", "+zrange"}
    assert set(printed(capsys, "--schedule", "--prefix", "shop:")) >= {"~shop:{*", "~shop:schedule:{*"}


def plain() -> int:
    return 1


USES: dict[str, Callable[[str, str], object]] = {
    "--permits": lambda url, name: holdfast.Semaphore(url, name, limit=2, wait=0).acquire(),
    "--events": lambda url, name: holdfast.Event(url, name).set(),
    "--cache": lambda url, name: holdfast.Cache(url, name, ttl=1).set("key", 1),
    "--prefix shop: --cache": lambda url, name: holdfast.Cache(url, name, ttl=1, prefix="shop:").set("key", 1),
    "--once": lambda url, name: holdfast.once(url, name, keep=60)(plain)(),
    "--schedule": lambda url, name: holdfast.Schedule(url, name).status(),
    "--quarantine": lambda url, name: holdfast.Lock(url, name, wait=0, quarantine=True).acquire(),
    "--replicas": lambda url, name: holdfast.Lock(url, name, wait=0, replicas=1).acquire(),
    "--key app:lock": lambda url, name: holdfast.Lock(url, name, wait=0, key="app:lock").acquire(),
    "--prefix shop:": lambda url, name: holdfast.Lock(url, name, wait=0, prefix="shop:").acquire(),
    "--select": lambda url, name: holdfast.Lock(url.removesuffix("/0") + "/1", name, wait=0).acquire(),
    "--fencing order:17": lambda url, _: fencing.accept(url, "order:17", 1),
    "--user NAME --inspect": lambda url, _: list(holdfast.Inspector(url).locks()),
    "--user NAME --break": lambda url, name: holdfast.Inspector(url).break_lock(name),
}
"""Maps options of `holdfast acl` to a call that needs them."""


@pytest.mark.parametrize("options", USES)
def test_an_error_names_the_options_that_grant_the_missing_right(
    capsys: pytest.CaptureFixture[str], hf: Holdfast, server: PrivateServer, client: redis.Redis, name: str, options: str
) -> None:
    admin: Any = client
    url = server.url.replace("redis://", f"redis://{name}:PASSWORD@")
    if options.endswith("--break"):
        hf.popen([*PROGRAM, "acquire", name, "--ttl", "60"]).communicate(timeout=20)
    try:
        admin.execute_command(*printed(capsys, "--user", name))
        with pytest.raises(holdfast.ServerError, match=r"refused: .*; .*`holdfast acl .*` prints") as caught:
            USES[options](url, name)
        said = str(caught.value).split("`holdfast acl ")[1].split("`")[0]
        assert said == options
        admin.execute_command(*printed(capsys, *shlex.split(said.replace("--user NAME", "")), "--user", name))
        if options == "--replicas":  # the server has none
            with pytest.raises(holdfast.ServerError, match="0 of 1 replicas acknowledged"):
                USES[options](url, name)
        else:
            USES[options](url, name)
    finally:
        holdfast.close()
        admin.acl_deluser(name)
        admin.delete("hf:guard")


def test_the_rights_for_timestamp_locks(capsys: pytest.CaptureFixture[str]) -> None:
    words = set(printed(capsys, "--timestamp", "lock.*"))
    assert words >= {"~lock.*", "+setnx", "+get", "+getset", "+del", "+time"}
    assert not words & {"~{lock.*}:state:raw"}
    assert not set(printed(capsys)) & {"+setnx", "+getset"}
