"""Slots, the map of who owns them, and the way of a request, decided without a server."""

from __future__ import annotations

import asyncio
import os
import random
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import strategies as st

from holdfast._clock import clock
from holdfast._core import permit
from holdfast._core.lock.replies import ACQUIRE, RELEASE, RENEW
from holdfast._core.lock.slot_migration import single_key_form
from holdfast._core.names import channel
from holdfast._core.requests import Answer, Command, NotSent, Refused, RunScript, Unknown, WireError
from holdfast._lua import Script, codes
from holdfast._net.cluster import ASKING, HOPS, LEAST_TIMEOUT_S, Cluster, Hop, Shard
from holdfast._net.endpoint import Endpoint
from holdfast._net.slots import SLOTS, id_within, slot_of
from holdfast._net.system import SYSTEM, System
from holdfast._net.url import from_url
from holdfast._runtime.drivers import aio_cluster
from holdfast._runtime.drivers.sync_cluster import ShardDriver
from holdfast._runtime.keeper.cluster_connection import ShardLine
from holdfast._runtime.process import Process
from holdfast.errors import ConfigError
from support.fuzzing import AMOUNTS, explore, json_values

KEYS = (b"hf:{a}", b"hf:{a}:state", b"hf:{a}:queue")
SLOT = slot_of(KEYS[0])
TRYAGAIN = Refused("TRYAGAIN Multiple keys request during rehashing of slot")


@pytest.mark.parametrize(
    ("key", "slot"),
    # From the specification, and computed by CLUSTER KEYSLOT.
    [
        (b"123456789", 0x31C3), (b"foo", 12182), (b"", 0), (b"hf:{foo}", 12182), (b"foo{}{bar}", 8363),
        (b"foo{{bar}}zap", 4015), (b"foo{bar}{zap}", 5061), (b"{foo", 13308),
    ],
)  # fmt: skip
def test_the_slot_of_a_key(key: bytes, slot: int) -> None:
    assert slot_of(key) == slot


def test_a_process_listens_in_whatever_slot_it_wants() -> None:
    for slot in [0, SLOTS - 1, *random.sample(range(SLOTS), 50)]:
        process = os.urandom(6).hex()
        identity = id_within(process, slot)
        assert identity.startswith(process)
        assert len(identity) == 18
        assert {slot_of(channel(prefix, identity)) for prefix in (b"hf:", b"a:", b"hf:cache:")} == {slot}
        assert id_within(process, slot) == identity


class Map:
    """A cluster of two servers, and what is asked of whom."""

    def __init__(self, *, sharded: bool = True, remap: Any = None, system: System = SYSTEM) -> None:
        self.cluster = Cluster((("a", 1), ("b", 2)), {}, remap, system)
        self.sharded = sharded
        self.learn((0, SLOTS - 1, "a", 1))

    def learn(self, *ranges: tuple[int, int, str, int]) -> None:
        rows: list[Any] = [[first, last, [host.encode(), port, b"id"]] for first, last, host, port in ranges]
        self.cluster._learn(Endpoint(host="told", port=9), rows, self.sharded)

    def go(self, call: Any, *replies: WireError | int | bool) -> tuple[list[str], Any]:
        """The steps of a request, to which these are the answers; and what came of it."""
        redirects, steps = self.cluster.redirects(call), []
        answers = iter(replies)
        try:
            hop = next(redirects)
            while True:
                steps.append(said(hop))
                reply = next(answers)
                hop = redirects.send(Answer(reply, 1.0, 2.0) if type(reply) is int else reply)  # type: ignore[arg-type]
        except StopIteration as stop:
            return steps, stop.value.value
        except WireError as error:
            return steps, error


def said(hop: Hop | None) -> str:
    if hop is None:
        return "who owns what?"
    call = hop.call
    what = call.script.name.rpartition("/")[2] if isinstance(call, RunScript) else str(call.args[0])
    return f"{'asking ' * hop.asking}{what} {hop.endpoint.host}:{hop.endpoint.port}"


def acquire() -> RunScript[Any]:
    return RunScript(ACQUIRE, KEYS, ("t", 1000, 0), 0.2)


def test_to_the_owner() -> None:
    nodes = Map()
    nodes.learn((0, SLOT - 1, "a", 1), (SLOT, SLOTS - 1, "b", 2))
    assert nodes.go(acquire(), 7) == (["acquire b:2"], 7)
    assert nodes.go(Command(("EXISTS", KEYS[0]), 0.2), 1) == (["EXISTS b:2"], 1)


def test_the_slot_of_a_command_is_that_of_its_key_in_bytes_or_text() -> None:
    nodes = Map()
    slot = slot_of(b"plain")
    nodes.learn((0, slot - 1, "a", 1), (slot, slot, "b", 2), (slot + 1, SLOTS - 1, "a", 1))
    for key in (b"plain", "plain"):
        assert nodes.go(Command(("EXISTS", key), 0.2), 1) == (["EXISTS b:2"], 1)


def test_ranges_in_any_order() -> None:
    nodes = Map()
    nodes.learn((SLOT + 1, SLOTS - 1, "b", 2), (SLOT, SLOT, "c", 3), (0, SLOT - 1, "a", 1))
    assert nodes.go(acquire(), 7) == (["acquire c:3"], 7)


def test_a_slot_that_has_moved() -> None:
    nodes = Map()
    assert nodes.go(acquire(), Refused(f"MOVED {SLOT} c:3"), 7) == (["acquire a:1", "acquire c:3"], 7)
    assert nodes.go(acquire(), True, 7) == (["who owns what?", "acquire c:3"], 7)


def test_who_owns_what_is_asked_anew_where_an_owner_says_that_it_is_none() -> None:
    nodes = Map()
    assert nodes.go(acquire(), Refused("CLUSTERDOWN Hash slot not served"))[0] == ["acquire a:1"]
    assert nodes.go(acquire(), True, 7)[0] == ["who owns what?", "acquire a:1"]


def test_one_at_a_time_finds_out_who_owns_what() -> None:
    nodes, asked, answered = Map(), threading.Event(), threading.Event()
    times = list[float]()

    def refresh(timeout: float) -> None:
        times.append(timeout)
        asked.set()
        answered.wait(30)

    nodes.cluster.refresh = refresh  # type: ignore[method-assign]
    nodes.cluster.refresh_soon()
    asked.wait(30)
    nodes.cluster.refresh_soon()
    asking = [thread for thread in threading.enumerate() if thread.name == "holdfast-cluster"]
    answered.set()
    for thread in asking:
        thread.join()
    assert len(times) == len(asking) == 1


def test_who_owns_what_is_found_out_when_there_is_room_for_a_thread_again(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, asked = Map(), threading.Event()
    nodes.cluster.refresh = lambda timeout: asked.set()  # type: ignore[method-assign]  # noqa: ARG005
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", Mock(side_effect=RuntimeError("can't start new thread")))
        nodes.cluster.refresh_soon()
    assert not asked.is_set()
    nodes.cluster.refresh_soon()
    assert asked.wait(30)


def test_a_forked_child_asks_although_a_thread_of_its_parent_was_asking() -> None:
    nodes, asked, answered = Map(), threading.Event(), threading.Event()
    nodes.cluster.refresh = lambda timeout: answered.wait(30)  # type: ignore[method-assign,assignment]  # noqa: ARG005
    nodes.cluster.refresh_soon()
    nodes.cluster.reset()  # in the child, that thread does not exist
    nodes.cluster.refresh = lambda timeout: asked.set()  # type: ignore[method-assign]  # noqa: ARG005
    nodes.cluster.refresh_soon()
    assert asked.wait(30)
    answered.set()


def test_nobody_is_asked_when_there_is_no_time_left() -> None:
    nodes = Map()
    with pytest.raises(NotSent, match="the last error: None"):
        nodes.cluster._ask(clock() - 0.001)


def test_nobody_is_asked_in_the_very_moment_in_which_the_time_is_up() -> None:
    system = System()
    system.clock = lambda: 5.0
    with pytest.raises(NotSent, match="the last error: None"):
        Map(system=system).cluster._ask(5.0)


def test_nobody_is_known_to_serve_anything_before_somebody_was_asked() -> None:
    nodes = Map()
    nodes.cluster = Cluster((("a", 1),), {}, None)
    steps, error = nodes.go(acquire(), False)
    assert steps == ["who owns what?"]
    assert isinstance(error, Refused)
    nodes.cluster.stale = False
    assert isinstance(nodes.go(acquire())[1], Refused)
    assert nodes.cluster.stale, "the next request asks first"


def test_a_request_has_its_time_and_to_find_out_who_answers_leaves_a_part_of_it() -> None:
    nodes, had = Map(), list[float]()
    nodes.cluster.stale = True
    shard = Shard(nodes.cluster, SLOT, sharded=False)
    driver = ShardDriver(Process(), shard)

    def find_out(timeout: float) -> bool:
        had.append(timeout)
        time.sleep(2 * LEAST_TIMEOUT_S)
        return True

    def take(hop: Hop) -> Answer[int]:
        had.append(hop.call.timeout)
        return Answer(7, 5.0, 5.0)

    driver._find_out, driver._take = find_out, take  # type: ignore[method-assign]
    assert driver.run(ask(RunScript(ACQUIRE, KEYS, ("t", 1000, 0), 60.0))) == 7
    asking, request = had
    assert 50.0 < asking <= 60.0 - LEAST_TIMEOUT_S
    assert 50.0 < request <= 60.0 - 2 * LEAST_TIMEOUT_S


def test_a_request_of_a_task_has_its_time_for_all_servers_together() -> None:
    had = list[float]()

    async def main() -> None:
        driver = aio_cluster.ShardDriver(Process(), Shard(Map().cluster, SLOT, sharded=False))

        async def take(hop: Hop) -> Answer[int] | WireError:
            had.append(hop.call.timeout)
            await asyncio.sleep(2 * LEAST_TIMEOUT_S)
            return Answer(7, 5.0, 5.0) if len(had) > 1 else Refused(f"MOVED {SLOT} b:2")

        driver._take = take  # type: ignore[method-assign]
        assert (await driver.call(RunScript(ACQUIRE, KEYS, ("t", 1000, 0), 60.0))).value == 7

    asyncio.run(main())
    assert 50.0 < had[1] <= 60.0 - 2 * LEAST_TIMEOUT_S


async def ask(call: RunScript[Any]) -> Any:
    return (await call).value


def test_a_lease_counts_from_when_its_request_was_sent() -> None:
    shard = Shard(Map().cluster, 0, sharded=False)
    answers: list[object] = []
    line: Any = SimpleNamespace(call=lambda _call, then: then(7, 5.0))
    keeper: Any = SimpleNamespace(line_to=lambda _endpoint: line)
    ShardLine(keeper, shard).call(acquire(), lambda *answer: answers.append(answer))
    assert answers == [(7, 5.0)]


def test_the_keeper_sends_asking_before_the_request_it_is_for() -> None:
    """Behind the request, ASKING would let the next command of the connection into a slot that is being imported."""
    nodes, sent, answers = Map(), list[str](), list[object]()
    replies = iter([Refused(f"ASK {SLOT} b:2"), 1])

    def line_to(endpoint: Endpoint) -> Any:
        def call(call: Command, then: Callable[[object, float], None]) -> None:
            sent.append(f"{call.args[0]!s} {endpoint.host}")
            then(b"OK" if call is ASKING else next(replies), 5.0)

        return SimpleNamespace(call=call)

    keeper: Any = SimpleNamespace(line_to=line_to)
    line = ShardLine(keeper, Shard(nodes.cluster, SLOT, sharded=False))
    line.call(Command(("EXISTS", KEYS[0]), 0.2), lambda *answer: answers.append(answer))
    assert sent == ["EXISTS a", "ASKING b", "EXISTS b"]
    assert answers == [(1, 5.0)]


def test_a_slot_that_is_moving() -> None:
    nodes = Map()
    steps = nodes.go(RunScript(RELEASE, KEYS, ("t", "release"), 0.2), Refused(f"ASK {SLOT} b:2"), 1)
    assert steps == (["release a:1", "asking EVAL b:2"], 1)
    assert nodes.go(acquire(), 7) == (["acquire a:1"], 7), "it is the owner still"


def test_keys_that_are_on_both_sides() -> None:
    """Renewal and release go on with the lock's own key; to take a lock, one has to wait."""
    nodes = Map()
    steps, what = nodes.go(RunScript(RENEW, KEYS, ("t", 1000, 5), 0.2), TRYAGAIN, Refused(f"ASK {SLOT} b:2"), codes.UNNUMBERED)
    assert (steps, what) == (["renew a:1", "migrating a:1", "asking EVAL b:2"], [codes.UNNUMBERED])
    half = Refused("ERR Attempted to access a non local key in a cluster node script: 1a2b")
    assert nodes.go(RunScript(RELEASE, KEYS, ("t", "bury"), 0.2), half, 0) == (["release a:1", "migrating a:1"], 0)
    assert nodes.go(RunScript(RELEASE, KEYS, ("t", "release"), 0.2), TRYAGAIN, Refused(f"ASK {SLOT} b:2"), 0)[1] == 0
    steps, what = nodes.go(acquire(), TRYAGAIN)
    assert steps == ["acquire a:1"]
    assert isinstance(what, Refused)
    assert what.transient


@pytest.mark.parametrize(("script", "name"), [(RELEASE, "lock/migrating"), (permit.RELEASE, "permit/migrating")])
def test_a_release_that_was_begun_has_given_the_lock_back(script: Script[int], name: str) -> None:
    release = RunScript(script, KEYS, ("t", "release"), 0.2)
    for half, answers in ((False, [1, 0, -1]), (True, [1, 1, -1])):
        less = single_key_form(release, half=half)
        assert less is not None
        assert (less.script.name, less.keys, less.args) == (name, KEYS[:1], ("t", 0))
        assert [less.script.parse(raw) for raw in (1, 0, -1)] == answers
    assert single_key_form(acquire(), half=False) is None
    assert single_key_form(Command(("EXISTS", KEYS[0]), 0.2), half=False) is None


def test_an_owner_that_is_away() -> None:
    nodes = Map()
    away = NotSent("no server at a:1", "a:1")
    assert nodes.go(acquire(), away, False) == (["acquire a:1", "who owns what?"], away), "and nobody else answers"
    steps, what = nodes.go(acquire(), True, away, True)
    assert steps == ["who owns what?", "acquire a:1", "who owns what?"]
    assert isinstance(what, Refused)
    assert what.code == "CLUSTERDOWN"
    assert what.transient, "others answer: there will be another owner soon"


def test_another_one_has_taken_over() -> None:
    nodes = Map()
    redirects = nodes.cluster.redirects(acquire())
    assert said(next(redirects)) == "acquire a:1"
    assert redirects.send(NotSent("no server at a:1")) is None
    nodes.learn((0, SLOTS - 1, "b", 2))
    assert said(redirects.send(True)) == "acquire b:2"


def test_no_answer_is_unknown_and_the_map_is_not_trusted_any_more() -> None:
    nodes = Map()
    lost = Unknown("a:1: no answer in time")
    assert nodes.go(acquire(), lost) == (["acquire a:1"], lost)
    assert nodes.go(acquire(), True, 7)[0] == ["who owns what?", "acquire a:1"]


def test_nobody_is_sent_in_circles() -> None:
    moved = [Refused(f"MOVED {SLOT} {'ab'[turn % 2]}:1") for turn in range(1, HOPS + 1)]
    steps, what = Map().go(acquire(), *moved)
    assert len(steps) == HOPS
    assert isinstance(what, Refused)
    assert what.transient


def test_a_slot_that_nobody_serves() -> None:
    nodes = Map()
    nodes.learn((0, SLOT - 1, "a", 1))
    steps, what = nodes.go(acquire())
    assert steps == []
    assert isinstance(what, Refused)
    assert what.transient


def test_a_server_that_does_not_know_its_name_is_where_it_was_asked() -> None:
    nodes = Map()
    nodes.learn((0, SLOTS - 1, "", 5))
    assert nodes.go(acquire(), Refused(f"MOVED {SLOT} :6"), 7) == (["acquire told:5", "acquire told:6"], 7)
    assert Map(remap=lambda address: ("outside", address[1] + 100)).go(acquire(), 7)[0] == ["acquire outside:101"]


def test_locks_of_one_server_are_looked_after_together_wherever_they_go() -> None:
    nodes = Map()
    half = SLOTS // 2
    nodes.learn((0, half - 1, "a", 1), (half, SLOTS - 1, "b", 2))
    shard = nodes.cluster.shard
    first, second = shard(5), shard(half)
    assert first is shard(6)
    assert first is not second
    nodes.learn((0, half - 1, "c", 3), (half, SLOTS - 1, "b", 2))  # a's replica has taken over
    assert shard(6) is first
    assert first.find.__self__ is first  # type: ignore[attr-defined]
    nodes.learn((0, 5, "b", 2), (6, half - 1, "c", 3), (half, SLOTS - 1, "b", 2))  # its inbox goes to b
    assert shard(5) is first
    assert shard(half + 1) is shard(half + 1), "one of the two, and always the same"
    third = shard(6)
    assert third not in {first, second}
    assert shard(7) is third


def test_sharded_inboxes_have_names_of_their_own_and_others_the_process_only() -> None:
    for sharded in (True, False):
        shard = Map(sharded=sharded).cluster.shard(77)
        assert isinstance(shard, Shard)
        assert len(shard.identity("0123456789ab")) == (18 if sharded else 12)


def test_urls() -> None:
    whole = from_url("redis+cluster://u:p%40@one:7000,two,[::1]:7002?socket_timeout=2")
    assert whole.cluster is not None
    assert (whole.username, whole.password, whole.timeout, whole.tls) == ("u", "p@", 2.0, None)
    assert whole.address == "cluster at one:7000, two:6379, ::1:7002"
    assert from_url("redis+cluster://u:p%40@two,one:7000,[::1]:7002?socket_timeout=2") is whole, "the same servers"
    assert from_url("redis+cluster://u:other@one:7000,two,[::1]:7002") is not whole
    assert from_url("rediss+cluster://one").tls == ()
    for bad in ("redis+cluster://one/1", "redis+cluster://one?db=2", "redis+cluster://one,two:x", "redis://one,two"):
        with pytest.raises(ConfigError):
            from_url(bad)


NONSENSE = [
    "MOVED 1 nonsense", "MOVED 1 :", "MOVED 1 host:", "MOVED 1 host:0", "MOVED 1 host:65536",
    "MOVED 1 host:99999999999999999999",
    "MOVED 1 host:\u0663", "ASK 1 h\u00f6st:1", "MOVED 1 " + "a" * 64 + ".b:1", "ASK 1 " + "a." * 200 + ":1",
    "MOVED 1 a..b:1",
    "MOVED 1 \x1b[31m:1", "MOVED", "MOVED 1", "ASK x y z", "MOVED 1 host:-1", "MOVED 1 host:1e3",
]  # fmt: skip


@pytest.mark.parametrize("error", NONSENSE)
def test_a_redirect_to_nowhere_is_what_the_user_is_told(error: str) -> None:
    steps, failure = Map().go(acquire(), Refused(error))
    assert steps == ["acquire a:1"]
    assert isinstance(failure, Refused)
    assert str(failure) == error


@pytest.mark.parametrize("amount", AMOUNTS)
def test_any_redirect_ends(amount: int) -> None:
    def holds(text: str) -> None:
        _, failure = Map().go(acquire(), *[Refused(text)] * (HOPS + 1))
        assert isinstance(failure, WireError)

    words = ["MOVED", "ASK", "TRYAGAIN", "-1", "1", "host:1", ":1", "?:7", "[::1]:7", "h:70000"]
    word = st.sampled_from(words) | st.text(max_size=20)
    explore(amount, holds, st.lists(word, max_size=5).map(" ".join), st.text())


@pytest.mark.parametrize("amount", AMOUNTS)
def test_any_answer_about_the_slots_is_taken_or_refused(amount: int) -> None:
    def holds(said: Any) -> None:
        cluster = Map().cluster
        try:
            cluster._learn(Endpoint(host="told", port=9), said, True)
        except Refused:
            assert cluster.owner(SLOT) is not None, "what was known stays"

    place = st.tuples(st.binary(max_size=5) | st.none() | st.integers(), st.integers() | st.none()).map(list)
    row = st.tuples(st.integers(-5, 20_000), st.integers(-5, 20_000), place).map(list)
    explore(amount, holds, st.lists(row | json_values, max_size=4), json_values)


@pytest.mark.parametrize(
    "failure", [NotSent("no answer", "a:1", silent=True), Refused("NOPERM", "a:1")], ids=["away", "refused"]
)
def test_whoever_asks_in_the_same_moment_gets_the_same_error(monkeypatch: pytest.MonkeyPatch, failure: WireError) -> None:
    cluster = Cluster((("a", 1),), {}, None)

    def fail(_until: float) -> None:
        raise failure

    monkeypatch.setattr(cluster, "_ask", fail)
    for _ in range(2):
        with pytest.raises(type(failure)) as caught:
            cluster.refresh(0.1)
        assert (str(caught.value), caught.value.silent) == (str(failure), failure.silent)


def test_after_a_success_nobody_gets_the_error_from_before(monkeypatch: pytest.MonkeyPatch) -> None:
    system, now = System(), 100.0
    system.clock = lambda: now
    cluster = Cluster((("a", 1),), {}, None, system)
    outcomes = iter([NotSent("no answer", "a:1"), None])

    def ask(_until: float) -> None:
        if (error := next(outcomes)) is not None:
            raise error

    monkeypatch.setattr(cluster, "_ask", ask)
    with pytest.raises(NotSent):
        cluster.refresh(0.1)
    now += 60
    for _ in range(2):
        cluster.refresh(0.1)
    assert next(outcomes, "asked twice") == "asked twice"
