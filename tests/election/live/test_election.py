"""Leader election on a real server, in both APIs, over processes that die and stop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import contextmanager
from queue import Queue
from typing import TYPE_CHECKING, Any

import pytest
import redis

import holdfast
from holdfast import ConfigError, Elected, Election, LeaseLost, LockTimeout, NoCandidate, NotHeld, aio
from support import fork_server
from support.witness import until

if TYPE_CHECKING:
    from conftest import NewServer
    from support.servers import PrivateServer

CANDIDATE = """
import sys
from holdfast import Election
leader = Election(sys.argv[1], sys.argv[2], candidate=sys.argv[3], ttl=float(sys.argv[4]))
while True:
    term = leader.campaign()
    print(term.fence, flush=True)
    for word in sys.stdin:
        if word == "resign\\n":
            leader.resign()
            break
        if word == "check\\n":
            print("leads" if leader.is_leader else term.lost.is_set(), flush=True)
"""


class Candidates:
    """Processes that campaign."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = url, name
        self.started: list[subprocess.Popen[str]] = []

    def start(self, candidate: str, ttl: float = 2.0) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", CANDIDATE, self.url, self.name, candidate, str(ttl)]
        process = fork_server.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.started.append(process)
        return process

    def end(self) -> None:
        for process in self.started:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                assert stream is not None
                stream.close()


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def ask(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdin is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return str(request.node.name)


@pytest.fixture
def candidates(server: PrivateServer, name: str) -> Iterator[Candidates]:
    started = Candidates(server.url, name)
    yield started
    started.end()


@contextmanager
def observed(client: str, name: str) -> Iterator[Callable[[], Elected | None]]:
    """Return the changes that an observer sees, in order."""
    seen: Queue[Elected | None] = Queue()

    def observe() -> None:
        for who in Election(client, name).observe():
            seen.put(who)
            if who is not None and who.name == "the end":
                return

    thread = threading.Thread(target=observe)
    thread.start()
    try:
        yield lambda: seen.get(timeout=20)
    finally:
        with Election(client, name, candidate="the end", ttl=5):
            thread.join(20)
    assert not thread.is_alive()


def queued(server: PrivateServer, name: str, *candidates: str) -> None:
    """Until these have said who they are."""
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        until(lambda: set(candidates) <= {v for k, v in client.hgetall(f"hf:{{{name}}}:state").items() if k[:3] == "as:"}, 20)


# One after the other


def test_a_term_in_all_its_words(server: PrivateServer, name: str) -> None:
    one = Election(server.url, name, candidate="one", value="http://one")
    assert (one.is_leader, one.term, one.lease, one.leader()) == (False, None, None, None)
    term = one.campaign()
    assert one.campaign() is term, "it leads already"
    assert (one.is_leader, one.term, one.lease) == (True, term.fence, term)
    two = Election(server.url, name, candidate="two")
    assert two.leader() == one.leader() == Elected("one", term.fence, "http://one")
    one.proclaim("http://other")
    assert two.leader() == ("one", term.fence, "http://other")
    never = Election(server.url, name, candidate="two", wait=0.0)
    tries: tuple[Callable[[], object], ...] = (lambda: two.campaign(wait=0), never.__enter__)
    for trying in tries:
        with pytest.raises(LockTimeout, match=rf"'two' was not elected to '{name}' within \d\.\d s: one leads") as failed:
            trying()
        assert failed.value.holder == "one"
    assert (one.statistics().acquisitions, two.statistics().acquisitions) == (1, 0)
    one.resign()
    assert (one.is_leader, two.leader()) == (False, None)
    for idle in (one.resign, lambda: one.proclaim("x"), lambda: one.hand_over("two")):
        with pytest.raises(NotHeld, match="'one' does not lead"):
            idle()
    with two as following:
        assert following.fence > term.fence
        assert one.leader() == ("two", following.fence, "")
    assert one.leader() is None
    assert (two.statistics().acquisitions, two.statistics().held, two.statistics().timeouts) == (1, 0, 1)


def test_the_same_for_asyncio(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        one, two = (aio.Election(server.url, name, candidate=who) for who in ("one", "two"))
        changes = two.observe()
        assert await anext(changes) is None
        async with one as term:
            assert await anext(changes) == Elected("one", term.fence, "")
            await one.proclaim("x")
            assert await anext(changes) == Elected("one", term.fence, "x")
            with pytest.raises(LockTimeout, match="one leads"):
                await two.campaign(wait=0)
            with pytest.raises(NoCandidate):
                await one.hand_over("two")
            following = asyncio.create_task(two.campaign())
            await asyncio.to_thread(queued, server, name, "two")
            await one.hand_over("two")
            assert (one.is_leader, (await following).fence > term.fence) == (False, True)
            assert await anext(changes) == ("two", two.term, "")
        await two.resign()
        assert await anext(changes) is None
        assert isinstance(changes, AsyncGenerator)
        await changes.aclose()

    asyncio.run(main())


def test_a_body_whose_leadership_is_lost_is_cancelled(server: PrivateServer, name: str) -> None:
    async def main() -> None:
        with pytest.raises(LeaseLost):
            async with aio.Election(server.url, name, ttl=2):
                with redis.Redis.from_url(server.url) as client:
                    client.delete(f"hf:{{{name}}}")
                await asyncio.sleep(60)

    asyncio.run(main())


# Observing


def test_observers_see_each_leader_in_order(server: PrivateServer, name: str) -> None:
    with observed(server.url, name) as saw:
        assert saw() is None
        for candidate in ("one", "two"):
            with Election(server.url, name, candidate=candidate) as term:
                assert saw() == (candidate, term.fence, "")
            assert saw() is None


def test_a_leader_that_is_killed_is_followed_when_its_lease_ends(
    server: PrivateServer, name: str, candidates: Candidates
) -> None:
    one = candidates.start("one")
    first = int(said(one))
    with observed(server.url, name) as saw:
        assert saw() == ("one", first, "")
        two = candidates.start("two")
        queued(server, name, "two")
        one.kill()
        second = int(said(two))
        assert second > first
        assert saw() in {("two", second, ""), None}, "nobody in between, perhaps"
        two.kill()
        while saw() is not None:
            pass


def test_a_leader_that_is_stopped_knows_when_it_goes_on_that_it_leads_no_more(
    server: PrivateServer, name: str, candidates: Candidates
) -> None:
    one = candidates.start("one")
    said(one)
    two = candidates.start("two")
    queued(server, name, "two")
    os.kill(one.pid, signal.SIGSTOP)
    said(two)
    os.kill(one.pid, signal.SIGCONT)
    ask(one, "check")
    assert said(one) == "True", "lost"
    ask(two, "check")
    assert said(two) == "leads"


def test_observers_outlive_a_restart_and_a_lost_memory(new_server: NewServer) -> None:
    server = new_server(port=True)
    with observed(server.url, "x") as saw:
        assert saw() is None
        leader = Election(server.url, "x", candidate="one", ttl=2)
        first = leader.campaign().fence
        assert saw() == ("one", first, "")
        server.kill()
        server.restart()  # and it has forgotten
        assert saw() is None
        second = Election(server.url, "x", candidate="two", ttl=2)
        term = second.campaign()
        assert term.fence > first
        assert saw() == ("two", term.fence, "")
        with redis.Redis.from_url(server.url) as client:
            client.flushall()
        assert saw() is None
        assert term.lost.wait(20)


# Handing over


def test_to_whom_it_is_handed_over_leads_wherever_he_stands_in_line(
    server: PrivateServer, name: str, candidates: Candidates
) -> None:
    leader = Election(server.url, name, candidate="zero")
    with observed(server.url, name) as saw:
        saw()
        term = leader.campaign()
        saw()
        started = {}
        for who in ("one", "two", "three"):
            started[who] = candidates.start(who)
            queued(server, name, who)
        with pytest.raises(NoCandidate, match=r"'four' is campaigning for .* \(candidates: one, two, three\)") as failed:
            leader.hand_over(to="four")
        assert failed.value.candidates == ("one", "two", "three")
        assert leader.is_leader
        leader.hand_over(to="two")
        assert not leader.is_leader
        second = int(said(started["two"]))
        assert second > term.fence
        assert saw() == ("two", second, "")
        ask(started["two"], "resign")
        assert saw() in {("one", int(said(started["one"])), ""), None}, "the line goes on where it was"
        candidates.end()


def test_a_candidate_that_died_is_none(server: PrivateServer, name: str, candidates: Candidates) -> None:
    leader = Election(server.url, name)
    with leader as term, redis.Redis.from_url(server.url, decode_responses=True) as client:
        dead = candidates.start("dead")
        queued(server, name, "dead")
        (place,) = client.zrange(f"hf:{{{name}}}:queue", 0, -1)
        inbox = f"hf:inbox:{place.partition('.')[0]}"
        assert client.pubsub_channels(inbox) == [inbox]
        dead.kill()
        dead.wait()
        until(lambda: not client.pubsub_channels(inbox))
        with pytest.raises(NoCandidate, match="there are no candidates"):
            leader.hand_over("dead")
        term.check()


# Other ways to be used


@pytest.mark.parametrize("protocol", [2, 3])
def test_with_a_client_that_decodes(server: PrivateServer, name: str, protocol: Any) -> None:
    with (
        redis.Redis.from_url(server.url, decode_responses=True, protocol=protocol) as client,
        Election(client, name, candidate="one", value="\u00e9") as term,
    ):
        assert Election(client, name).leader() == ("one", term.fence, "\u00e9")


def test_over_several_servers(new_server: NewServer) -> None:
    urls = [new_server(port=True).url for _ in range(3)]
    holdfast.declare_new(urls)
    one, two = (Election(urls, "x", candidate=who, wait=0.2) for who in ("one", "two"))
    first = one.campaign().fence
    with pytest.raises(LockTimeout, match="'two' was not elected to 'x'"):
        two.campaign()
    one.resign()
    with two as term:
        assert term.fence > first
        for refused in (two.leader, lambda: next(two.observe()), lambda: two.hand_over("one"), lambda: two.proclaim("x")):
            with pytest.raises(ConfigError, match="not several independent ones"):
                refused()


def test_what_is_somebody_elses_is_left_alone(server: PrivateServer, look: redis.Redis, name: str) -> None:
    for key in (f"hf:{{{name}}}", f"hf:{{{name}}}:state", f"hf:{{{name}}}:observers"):
        look.sadd(key, "theirs")
        leader = Election(server.url, name)
        for use in (leader.campaign, leader.leader):
            with pytest.raises(ConfigError, match="holds a set"):
                use()
        look.delete(key)
    assert Election(server.url, name).leader() is None


@pytest.mark.parametrize("wrong", [{"candidate": ""}, {"candidate": "a\nb"}, {"value": b"x"}, {"candidate": 5}, {"ttl": 0}])
def test_options_are_checked(server: PrivateServer, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Election(server.url, "x", **wrong)
    with pytest.raises(TypeError, match="ttl="):
        Election(server.url, "x", timeout=5)  # type: ignore[arg-type]
