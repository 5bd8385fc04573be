"""``holdfast demo quorum``: locks over five servers of which some are stopped, killed, and emptied; and one server's replica.

Each scene gives facts, its judge says what has to hold. `members` is what the processes run. Which fault hits is decided
here, when it does is real.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from itertools import pairwise
from typing import Any

import redis

import holdfast
from holdfast._local.server import private
from holdfast._local.server.process import PrivateServer
from holdfast.cli.demo import members, show
from holdfast.cli.demo.members import MAX_TTL, PATIENCE, SLACK, TTL, WITHIN
from holdfast.cli.demo.screen import Check, Screen
from holdfast.cli.demo.show import Facts, ShowError, perform
from holdfast.cli.demo.stage import Actor, client

SERVERS, MAJORITY, PROCESSES = 5, 3, 3

TIMES = 5
"""How often each process takes the lock in a scene."""


def main(*, as_json: bool) -> int:
    """Run it; returns the exit code."""

    def play(screen: Screen) -> tuple[Facts, list[Check]]:
        with ExitStack() as stack:
            cast = Cast(stack, screen)
            screen.line(f"holdfast demo quorum: {SERVERS} times {cast.about}, {PROCESSES} processes, leases of {TTL:g} s")
            facts: Facts = {"servers": SERVERS, "server": cast.about, "ttl": TTL, "max_ttl": MAX_TTL, "answer_within": WITHIN}
            seen, checks = show.play(screen, SCENES, cast)
            return {**facts, **seen}, checks

    return perform("demo quorum", play, as_json=as_json)


class Cast:
    """Five servers, one for what the lock protects, two more for the comparison; and the processes."""

    def __init__(self, stack: ExitStack, screen: Screen) -> None:
        self.screen = screen
        self.servers = [stack.enter_context(private()) for _ in range(SERVERS)]
        self.urls = [server.url for server in self.servers]
        self.clients = [stack.enter_context(client(url)) for url in self.urls]
        info: Any = self.clients[0].info("server")
        self.about = f"Valkey {info['valkey_version']}" if "valkey_version" in info else f"Redis {info['redis_version']}"
        self.data = stack.enter_context(private())
        self.store = stack.enter_context(client(self.data.url))
        self.name = secrets.token_hex(4)
        self.primary = stack.enter_context(private("--repl-diskless-sync-delay", "0", port=True, password=""))
        self.replica = stack.enter_context(private(port=True, password=""))
        self.copy = stack.enter_context(client(self.replica.url))
        stack.callback(holdfast.close)
        holdfast.declare_new(members.named(self.urls), max_ttl=MAX_TTL)
        self._stack = stack
        self.holder, *self.processes = [self.start("member", self.data.url, "data") for _ in range(1 + PROCESSES)]
        for process in (self.holder, *self.processes):
            process.hear()
        self.wire = self.start("wire", str(self.primary.port))
        self.copy.replicaof("127.0.0.1", self.wire.hear()["port"])  # it has all the show to get there
        self.fences: list[int] = []
        """Of all that have held the lock that they work with, in that order."""
        self.kept = f"{self.name}-kept"
        """Another lock: nobody's vote for it can be late."""

    def start(self, role: str, *arguments: str) -> Actor:
        actor = Actor(" ".join(self.urls), role, *arguments, module=members.__name__)
        self._stack.callback(actor.dismiss)
        return actor

    def say(self, text: str) -> None:
        self.screen.line(f"  {text}")

    def say_answers(self, asked: Facts) -> None:
        """The answer of each server, cut to the width of the line."""
        for server, answer in asked["nodes"].items():
            self.say(f"  {server}: {answer.partition(':')[0][:60]}")

    @contextmanager
    def stopped(self, *numbers: int) -> Iterator[None]:
        """These servers stand still (SIGSTOP)."""
        try:
            for number in numbers:
                self.servers[number].pause()
            yield
        finally:
            for number in numbers:
                self.servers[number].resume()

    def work(self) -> Facts:
        """The processes take the lock, again and again, all at the same time."""
        for process in self.processes:
            process.tell("work", self.name, str(TIMES))
        heard = [process.hear(2 * PATIENCE) for process in self.processes]
        takes = sorted((take for each in heard for take in each["takes"]), key=lambda take: float(take["got"]))
        fences = [take["fence"] for take in takes]
        overlaps = sum(one["gone"] > two["got"] for one, two in pairwise(takes))
        seconds = takes[-1]["gone"] - takes[0]["got"] if takes else 0.0
        facts = {
            "wanted": TIMES * PROCESSES,
            "takes": len(takes),
            "again": sum(each["again"] for each in heard),
            "overlaps": overlaps,
            "rising": [*self.fences, *fences] == sorted({*self.fences, *fences}),
            "writes_accepted": sum(take["wrote"] for take in takes),
            "seconds": round(seconds, 3),
        }
        self.fences += fences
        self.say(f"{len(takes)} of {facts['wanted']} takes in {seconds:.2f} s, {overlaps} with two holders,")
        self.say(f"fences from {fences[0]} to {fences[-1]}" if fences else "no fence")
        return facts

    def hold(self, process: Actor, name: str) -> Facts:
        """A process takes a lock as soon as it is to be had, and keeps it."""
        process.tell("hold", name)
        held = process.hear(2 * PATIENCE)
        if not held["taken"]:
            raise ShowError(f"process {process.pid} did not get the lock: {held['error'] or 'busy'}")
        return held

    def votes(self, name: str, among: Sequence[int] = range(SERVERS)) -> list[int]:
        """Numbers of the servers on which somebody has the lock."""
        key = members.redlock(self.urls, name).key
        return [number + 1 for number in among if self.clients[number].exists(key)]


def judge_work(facts: Facts) -> list[Check]:
    """Check what must be true while a majority is there."""
    whole = facts["takes"] == facts["writes_accepted"] == facts["wanted"] > 0
    return [
        Check("every process gets the lock each time, and what it writes is accepted", whole),
        Check("one at a time, each fence higher than all before", facts["rising"] and not facts["overlaps"]),
    ]


def all_up(cast: Cast) -> Facts:
    """All servers are there."""
    cast.screen.title(f"1. All {SERVERS} servers are up; each process takes the lock {TIMES} times")
    return cast.work()


def minority_away(cast: Cast) -> Facts:
    """Two servers are stopped."""
    cast.screen.title("2. Servers 4 and 5 are stopped (SIGSTOP)")
    with cast.stopped(3, 4):
        return cast.work()


def one_forgets(cast: Cast) -> Facts:
    """One server has forgotten its votes: it casts none, the others go on."""
    holder = cast.holder
    cast.screen.title("3. These two go on; server 1 is killed with -9, and starts again, empty")
    held = cast.hold(holder, cast.kept)
    wait_for(lambda: len(cast.votes(cast.kept)) == SERVERS, "not all servers have heard of the lock")
    cast.say(f"process {holder.pid} holds a lock, fence {held['fence']}; all {SERVERS} servers know")
    cast.servers[0].kill()
    killed = time.monotonic()
    cast.servers[0].restart()
    lock = members.redlock(cast.urls, f"{cast.name}-another")
    takes, voted = 0, False
    while not voted and time.monotonic() < killed + MAX_TTL + PATIENCE:
        with suppress(holdfast.QuorumError, holdfast.LeaseLost), lock:
            time.sleep(0.05)  # a majority may be there before the vote of server 1 is
            voted = bool(cast.clients[0].exists(lock.key))
            takes += not voted
    quiet = time.monotonic() - killed
    holder.tell("left")
    left = holder.hear()["left"]
    cast.say(f"for {quiet:.2f} s it casts no vote; another lock is taken {takes} times without")
    cast.say(f"process {holder.pid} {'still holds' if left else 'has LOST'} what it held before")
    return {
        "quiet": round(quiet, 3),
        "voted": voted,
        "takes_without": takes,
        "left": round(left, 3),
    }


def judge_one_forgets(facts: Facts) -> list[Check]:
    """Check what must be true."""
    itself = facts["voted"] and facts["quiet"] >= MAX_TTL
    return [
        Check(f"it votes again by itself, after the longest lease of {MAX_TTL:g} s", itself),
        Check("locks are to be had without it", facts["takes_without"] > 0),
        Check("who held the lock has not lost it", facts["left"] > 0),
    ]


def majority_forgets(cast: Cast) -> Facts:
    """Three of the servers that gave the lock away have forgotten it: together they could do so again."""
    cast.screen.title("4. While it is held, servers 1, 2 and 3 are killed, and start again, empty")
    holder, other = cast.holder, cast.processes[0]
    plain = f"plain-{cast.name}"
    granted = [[number + 1 for number, each in enumerate(cast.clients) if each.set(plain, "first", nx=True)]]
    for server in cast.servers[:MAJORITY]:
        server.restart()
    granted.append([number + 1 for number, each in enumerate(cast.clients) if each.set(plain, "second", nx=True)])
    cast.say(f"SET NX of a plain key: before by servers {_listed(granted[0])};")
    cast.say(f"now for somebody else by servers {_listed(granted[1])}")
    holder.tell("left")
    first = holder.hear()["fence"]
    holder.tell("until")  # it watches from now on
    other.tell("ask", cast.kept)
    asked = other.hear()
    cast.say(f"process {other.pid} asks for the lock: {_came(asked)}")
    cast.say_answers(asked)
    waited = asked if asked["taken"] else cast.hold(other, cast.kept)
    ended = holder.hear()
    other.tell("let_go")
    other.hear()
    later = waited["got"] - ended["until"]
    cast.say(f"process {holder.pid} {'finds' if ended['told'] else 'does NOT find'} its lease lost;")
    cast.say(f"process {other.pid} has the lock {later:.2f} s after that one's end, fence {waited['fence']}")
    return {
        "plain": granted,
        "given_at_once": asked["taken"],
        "nodes": asked["nodes"],
        "later": round(later, 4),
        "told_lost": ended["told"],
        "fences": [first, waited["fence"]],
    }


def judge_majority_forgets(facts: Facts) -> list[Check]:
    """Check what must be true, and that a plain key fails."""
    first, second = facts["fences"]
    twice = all(len(servers) >= MAJORITY for servers in facts["plain"])
    return [
        Check("a majority gives away a plain key twice", twice),
        Check("the lock is given to nobody before its lease is over", facts["later"] > 0),
        Check("who held it is told, and the next fence is higher", facts["told_lost"] and first < second),
    ]


def majority_away(cast: Cast) -> Facts:
    """Three are stopped: nothing can be had, and nothing stays."""
    cast.screen.title("5. A process holds the lock; then servers 3, 4 and 5 are stopped")
    holder, other = cast.holder, cast.processes[1]
    name = f"{cast.name}-other"
    cast.fences.append(cast.hold(holder, cast.name)["fence"])
    with cast.stopped(2, 3, 4):
        stopped = time.monotonic()
        holder.tell("until")
        other.tell("ask", name)
        asked = other.hear()
        cast.say(f"process {other.pid} asks for another lock: {_came(asked)} after {asked['seconds']:.2f} s")
        cast.say_answers(asked)
        ended = holder.hear()
        good = ended["until"] - stopped
        cast.say(f"process {holder.pid} {'finds' if ended['told'] else 'does NOT find'} its lease lost after {good:.2f} s")
    left = _left(cast, name)
    cast.say(f"they go on: {f'votes on servers {_listed(left)}' if left else 'no vote is left on any server'}")
    return {
        "error": asked["error"],
        "seconds": round(asked["seconds"], 3),
        "nodes": asked["nodes"],
        "good_for": round(good, 3),
        "told_lost": ended["told"],
        "left": left,
    }


def _left(cast: Cast, name: str) -> list[int]:
    """Return the servers with votes left for the lock. A late vote is undone when it arrives, not when its lease ends."""
    deadline = time.monotonic() + SLACK
    time.sleep(0.1)  # they begin with what has come in while they were stopped
    while (left := cast.votes(name)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def judge_majority_away(facts: Facts) -> list[Check]:
    """Check what must be true."""
    in_time = facts["error"] == "QuorumError" and facts["seconds"] <= WITHIN + SLACK
    return [
        Check(f"QuorumError within {WITHIN:g} s, and {SLACK:g} s for a busy machine", in_time),
        Check(f"who holds it is told so within its lease of {TTL:g} s", facts["told_lost"] and facts["good_for"] <= TTL),
        Check("nothing is left of the vote", facts["left"] == []),
    ]


def all_back(cast: Cast) -> Facts:
    """All are there again; who has lost the lock writes late."""
    late = cast.holder
    cast.screen.title("6. All servers are back; who has lost the lock in the meantime writes late")
    facts: Facts = {"work": cast.work()}
    before = cast.store.get("data")
    late.tell("write", "too-late")
    wrote = late.hear()
    after = cast.store.get("data")
    assert isinstance(before, bytes)
    assert isinstance(after, bytes)
    cast.say(f"process {late.pid} writes with fence {wrote['fence']}: {'taken' if wrote['accepted'] else 'refused'};")
    cast.say(f"the key says {after.decode()!r}")
    return facts | {"late_write_accepted": wrote["accepted"], "value_changed": after != before}


def judge_all_back(facts: Facts) -> list[Check]:
    """Check what must be true."""
    refused = not facts["late_write_accepted"] and not facts["value_changed"]
    return [*judge_work(facts["work"]), Check("the guard refuses the late write", refused)]


def replica_promoted(cast: Cast) -> Facts:
    """For comparison: one server with a replica, which takes over before it has been told of the lock."""
    one, two, *_ = cast.processes
    cast.screen.title("7. For comparison, one server with a replica, which is behind and takes over")
    wait_for(lambda: _link(cast.copy) == "up", "the replica does not follow its primary")
    cast.wire.tell("break")
    cast.wire.hear()
    cast.say("whatever is sent between them gets lost")
    asked = _single(one, cast.primary, "cautious", 1)
    cast.say(f"process {one.pid} wants a lock with replicas=1: {_came(asked)}")
    first = _single(one, cast.primary, "invoice")
    cast.say(f"process {one.pid} wants one without: {_came(first)}")
    cast.primary.kill()
    cast.copy.replicaof("NO", "ONE")
    cast.say("the primary is killed with -9, the replica takes its place")
    second = _single(two, cast.replica, "invoice")
    one.tell("left")
    left = one.hear()["left"] if first["taken"] else 0.0
    cast.say(f"process {two.pid} wants the same lock there: {_came(second)}")
    cast.say(f"process {one.pid} believes in its own for another {left:.1f} s")
    return {
        "replicas_1": asked["error"],
        "given": [first["taken"], second["taken"]],
        "both_for": round(left, 3) if second["taken"] else 0.0,
        "fences": [first.get("fence"), second.get("fence")],
    }


def judge_replica_promoted(facts: Facts) -> list[Check]:
    """Check what must be true, and that this one breaks."""
    first, second = facts["fences"]
    return [
        Check("a replica that is behind gives the lock away twice", all(facts["given"]) and facts["both_for"] > 0),
        Check("the fences still tell the two apart", bool(first and second and first < second)),
        Check("with replicas=1 it is not given in the first place", facts["replicas_1"] == "ServerError"),
    ]


def _single(process: Actor, server: PrivateServer, name: str, replicas: int = 0) -> Facts:
    process.tell("single", server.url, name, str(replicas))
    return process.hear()


def _came(facts: Facts) -> str:
    return f"given, fence {facts['fence']}" if facts["taken"] else f"not given ({facts['error'] or 'busy'})"


def _link(replica: redis.Redis) -> str:
    info: Any = replica.info("replication")
    return str(info.get("master_link_status"))


def wait_for(condition: Callable[[], bool], otherwise: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise ShowError(otherwise)
        time.sleep(0.01)


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers)) or "none"


SCENES = [
    (all_up, judge_work),
    (minority_away, judge_work),
    (one_forgets, judge_one_forgets),
    (majority_forgets, judge_majority_forgets),
    (majority_away, judge_majority_away),
    (all_back, judge_all_back),
    (replica_promoted, judge_replica_promoted),
]
