"""``holdfast demo quorum``: a Redlock on five servers, some of which are stopped or lose their data.

The last scene shows a replica, for comparison. Each scene returns what it has measured, and a function ``judge_...`` returns
the checks. The processes run the code in `members`.
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
from holdfast.cli.demo import show
from holdfast.cli.demo.screen import Check, Screen
from holdfast.cli.demo.show import Facts, ShowError, perform
from holdfast.cli.demo.stage import Actor, client
from holdfast_lab.demo import members
from holdfast_lab.demo.members import MAX_TTL, PATIENCE, SLACK, TTL, WITHIN

SERVERS, MAJORITY, PROCESSES = 5, 3, 3

TIMES = 5
"""How often each process acquires the lock in a scene."""


def main(*, as_json: bool) -> int:
    def play(screen: Screen) -> tuple[Facts, list[Check]]:
        with ExitStack() as stack:
            cast = Cast(stack, screen)
            screen.line(f"holdfast demo quorum: {SERVERS} times {cast.about}, {PROCESSES} processes, leases of {TTL:g} s")
            facts: Facts = {"servers": SERVERS, "server": cast.about, "ttl": TTL, "max_ttl": MAX_TTL, "answer_within": WITHIN}
            seen, checks = show.play(screen, SCENES, cast)
            return {**facts, **seen}, checks

    return perform("demo quorum", play, as_json=as_json)


class Cast:
    """The processes, and the servers: five that vote, one for the protected key, a primary and a replica."""

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
        self.copy.replicaof("127.0.0.1", self.wire.hear()["port"])  # the replica may synchronise until the last scene
        self.fences: list[int] = []
        """Fences of all acquisitions of the lock `name`, in order."""
        self.kept = f"{self.name}-kept"
        """Name of the lock that one process keeps in scenes 3 and 4.

        The other scenes use the lock `name`, because late votes of those scenes must not appear as votes for this lock.
        """

    def start(self, role: str, *arguments: str) -> Actor:
        actor = Actor(" ".join(self.urls), role, *arguments, module=members.__name__)
        self._stack.callback(actor.dismiss)
        return actor

    def say(self, text: str) -> None:
        self.screen.line(f"  {text}")

    def say_answers(self, asked: Facts) -> None:
        """Print the answer of each server. ``asked`` is what a process has reported about its attempt to acquire a lock."""
        for server, answer in asked["nodes"].items():
            self.say(f"  {server}: {answer.partition(':')[0][:60]}")

    @contextmanager
    def stopped(self, *numbers: int) -> Iterator[None]:
        """Stop these servers with SIGSTOP inside a ``with`` block."""
        try:
            for number in numbers:
                self.servers[number].pause()
            yield
        finally:
            for number in numbers:
                self.servers[number].resume()

    def work(self) -> Facts:
        """Let all processes acquire the lock repeatedly at the same time, and print the result."""
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
        self.say(f"{len(takes)} of {facts['wanted']} acquisitions in {seconds:.2f} s, {overlaps} with two holders,")
        self.say(f"fences from {fences[0]} to {fences[-1]}" if fences else "no fence")
        return facts

    def hold(self, process: Actor, name: str) -> Facts:
        """Let a process wait for a lock and keep it. Raises ShowError if the lock is not acquired."""
        process.tell("hold", name)
        held = process.hear(2 * PATIENCE)
        if not held["taken"]:
            raise ShowError(f"process {process.pid} could not acquire the lock: {held['error'] or 'busy'}")
        return held

    def votes(self, name: str, among: Sequence[int] = range(SERVERS)) -> list[int]:
        """Return the numbers (first: 1) of the servers on which the lock is held. ``among`` has the indexes to ask."""
        key = members.redlock(self.urls, name).key
        return [number + 1 for number in among if self.clients[number].exists(key)]


def judge_work(facts: Facts) -> list[Check]:
    whole = facts["takes"] == facts["writes_accepted"] == facts["wanted"] > 0
    return [
        Check("every process acquires the lock each time, and its writes are accepted", whole),
        Check("one holder at a time, each fence higher than all before", facts["rising"] and not facts["overlaps"]),
    ]


def all_up(cast: Cast) -> Facts:
    cast.screen.title(f"1. All {SERVERS} servers are up; each process acquires the lock {TIMES} times")
    return cast.work()


def minority_away(cast: Cast) -> Facts:
    cast.screen.title("2. Servers 4 and 5 are stopped (SIGSTOP)")
    with cast.stopped(3, 4):
        return cast.work()


def one_forgets(cast: Cast) -> Facts:
    """Scene 3: one server restarts without its data. It casts no vote for a while, and the other servers still grant locks."""
    holder = cast.holder
    cast.screen.title("3. Servers 4 and 5 go on; server 1 is killed with -9, and starts again, empty")
    held = cast.hold(holder, cast.kept)
    wait_for(lambda: len(cast.votes(cast.kept)) == SERVERS, "not all servers have voted for the lock")
    cast.say(f"process {holder.pid} holds a lock, fence {held['fence']}; all {SERVERS} servers know")
    cast.servers[0].kill()
    killed = time.monotonic()
    cast.servers[0].restart()
    lock = members.redlock(cast.urls, f"{cast.name}-another")
    takes, voted = 0, False
    while not voted and time.monotonic() < killed + MAX_TTL + PATIENCE:
        with suppress(holdfast.QuorumError, holdfast.LeaseLost), lock:
            time.sleep(0.05)  # the vote of server 1 may arrive after those of a majority
            voted = bool(cast.clients[0].exists(lock.key))
            takes += not voted
    quiet = time.monotonic() - killed
    holder.tell("left")
    left = holder.hear()["left"]
    cast.say(f"server 1 casts no vote for {quiet:.2f} s; another lock is acquired {takes} times meanwhile")
    cast.say(f"process {holder.pid} {'still holds' if left else 'has LOST'} the lock that it held before")
    return {
        "quiet": round(quiet, 3),
        "voted": voted,
        "takes_without": takes,
        "left": round(left, 3),
    }


def judge_one_forgets(facts: Facts) -> list[Check]:
    itself = facts["voted"] and facts["quiet"] >= MAX_TTL
    return [
        Check(f"server 1 votes again by itself, after the longest lease of {MAX_TTL:g} s", itself),
        Check("locks can be acquired without server 1", facts["takes_without"] > 0),
        Check("the process that held a lock has not lost it", facts["left"] > 0),
    ]


def majority_forgets(cast: Cast) -> Facts:
    """Scene 4: a majority restarts without its data while the lock is held. Nobody may get the lock before the lease ends."""
    cast.screen.title("4. While the lock is held, servers 1, 2 and 3 are killed, and start again, empty")
    holder, other = cast.holder, cast.processes[0]
    plain = f"plain-{cast.name}"
    granted = [[number + 1 for number, each in enumerate(cast.clients) if each.set(plain, "first", nx=True)]]
    for server in cast.servers[:MAJORITY]:
        server.restart()
    granted.append([number + 1 for number, each in enumerate(cast.clients) if each.set(plain, "second", nx=True)])
    cast.say(f"SET NX of a plain key succeeded before on servers {_listed(granted[0])};")
    cast.say(f"for a second client it succeeds now on servers {_listed(granted[1])}")
    holder.tell("left")
    first = holder.hear()["fence"]
    holder.tell("until")  # the holder watches its lease from now on
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
    cast.say(f"process {other.pid} holds it {later:.2f} s after that lease ended, fence {waited['fence']}")
    return {
        "plain": granted,
        "given_at_once": asked["taken"],
        "nodes": asked["nodes"],
        "later": round(later, 4),
        "told_lost": ended["told"],
        "fences": [first, waited["fence"]],
    }


def judge_majority_forgets(facts: Facts) -> list[Check]:
    first, second = facts["fences"]
    twice = all(len(servers) >= MAJORITY for servers in facts["plain"])
    return [
        Check("a majority grants a plain key twice", twice),
        Check("the lock is granted to nobody before its lease is over", facts["later"] > 0),
        Check("the holder learns of the loss, and the next fence is higher", facts["told_lost"] and first < second),
    ]


def majority_away(cast: Cast) -> Facts:
    """Scene 5: a majority is stopped. No lock can be acquired, and a failed attempt leaves no vote behind."""
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
    cast.say(f"servers 3, 4 and 5 go on: {f'votes on servers {_listed(left)}' if left else 'no vote is left on any server'}")
    return {
        "error": asked["error"],
        "seconds": round(asked["seconds"], 3),
        "nodes": asked["nodes"],
        "good_for": round(good, 3),
        "told_lost": ended["told"],
        "left": left,
    }


def _left(cast: Cast, name: str) -> list[int]:
    """Wait at most `SLACK` seconds until no server has a vote for the lock. Return the servers that still have one."""
    deadline = time.monotonic() + SLACK
    time.sleep(0.1)  # the servers first process the requests that arrived while they were stopped
    while (left := cast.votes(name)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return left


def judge_majority_away(facts: Facts) -> list[Check]:
    in_time = facts["error"] == "QuorumError" and facts["seconds"] <= WITHIN + SLACK
    return [
        Check(f"QuorumError within {WITHIN:g} s, plus {SLACK:g} s for a busy machine", in_time),
        Check(f"the holder learns of the loss within its lease of {TTL:g} s", facts["told_lost"] and facts["good_for"] <= TTL),
        Check("no vote is left on any server", facts["left"] == []),
    ]


def all_back(cast: Cast) -> Facts:
    late = cast.holder
    cast.screen.title("6. All servers are back; the process that has lost the lock writes late")
    facts: Facts = {"work": cast.work()}
    before = cast.store.get("data")
    late.tell("write", "too-late")
    wrote = late.hear()
    after = cast.store.get("data")
    assert isinstance(before, bytes)
    assert isinstance(after, bytes)
    cast.say(f"process {late.pid} writes with fence {wrote['fence']}: {'accepted' if wrote['accepted'] else 'refused'};")
    cast.say(f"the key says {after.decode()!r}")
    return facts | {"late_write_accepted": wrote["accepted"], "value_changed": after != before}


def judge_all_back(facts: Facts) -> list[Check]:
    refused = not facts["late_write_accepted"] and not facts["value_changed"]
    return [*judge_work(facts["work"]), Check("the fence check refuses the late write", refused)]


def replica_promoted(cast: Cast) -> Facts:
    """Scene 7: a replica is promoted although it has not received the lock that its primary granted."""
    one, two, *_ = cast.processes
    cast.screen.title("7. For comparison: one server, and a replica that lags behind and is promoted")
    wait_for(lambda: _link(cast.copy) == "up", "the replica does not follow its primary")
    cast.wire.tell("break")
    cast.wire.hear()
    cast.say("everything sent between the two is lost from now on")
    asked = _single(one, cast.primary, "cautious", 1)
    cast.say(f"process {one.pid} asks for a lock with replicas=1: {_came(asked)}")
    first = _single(one, cast.primary, "invoice")
    cast.say(f"process {one.pid} asks for a lock without replicas=: {_came(first)}")
    cast.primary.kill()
    cast.copy.replicaof("NO", "ONE")
    cast.say("the primary is killed with -9, and the replica is promoted")
    second = _single(two, cast.replica, "invoice")
    one.tell("left")
    left = one.hear()["left"] if first["taken"] else 0.0
    cast.say(f"process {two.pid} asks for the same lock there: {_came(second)}")
    cast.say(f"process {one.pid} relies on its lease for another {left:.1f} s")
    return {
        "replicas_1": asked["error"],
        "given": [first["taken"], second["taken"]],
        "both_for": round(left, 3) if second["taken"] else 0.0,
        "fences": [first.get("fence"), second.get("fence")],
    }


def judge_replica_promoted(facts: Facts) -> list[Check]:
    first, second = facts["fences"]
    return [
        Check("a replica that lags behind grants the lock a second time", all(facts["given"]) and facts["both_for"] > 0),
        Check("the second fence is still higher than the first", bool(first and second and first < second)),
        Check("with replicas=1 the lock is not granted in the first place", facts["replicas_1"] == "ServerError"),
    ]


def _single(process: Actor, server: PrivateServer, name: str, replicas: int = 0) -> Facts:
    process.tell("single", server.url, name, str(replicas))
    return process.hear()


def _came(facts: Facts) -> str:
    return f"granted, fence {facts['fence']}" if facts["taken"] else f"not granted ({facts['error'] or 'busy'})"


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
