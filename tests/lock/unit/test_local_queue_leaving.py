"""An attempt that leaves the local queue, at any moment and in any way, leaves no trace, and the next one gets the lock."""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from holdfast._core.lock import local_queue, server_queue
from holdfast._core.lock.records import AskServer, Attempt, Grant, HeldLease
from holdfast._core.lock.replies import Busy
from holdfast._core.requests import NotSent
from lock.unit.local_queues import House, Slot, woken
from runtime.faults.test_interrupts import leaves_a_handler


@pytest.fixture
def house() -> House:
    return House()


class Scene:
    """One attempt has the lock or asks for it, a second one wants it, and others wait behind it."""

    def __init__(self, others: int) -> None:
        self.house = House()
        self.local_queue = self.house.local_queue
        self.before: list[Attempt] = []
        """Attempts that come before it all the same."""
        self.first: Attempt
        self.him: Attempt
        self._others = others

    def line(self) -> None:
        self.him = self.house.in_line()
        self.others = [self.house.in_line() for _ in range(self._others)]

    def in_line(self) -> None:
        self.first, held_lease = self.house.holder()
        self.before = [self.house.in_line()]
        self.line()
        self.house.is_done(self.first, held_lease)

    def behind_a_leader(self) -> None:
        self.first = self.house.leader()
        self.line()
        self.local_queue.settle(self.him, None)
        self.house.is_done(self.first, self.house.taken(self.first))

    def behind_the_keeper(self) -> None:
        self.first, held_lease = self.house.holder(linger=5.0)
        self.house.is_done(self.first, held_lease)
        self.local_queue.on_asked()
        self.line()

    def given_a_pass(self) -> None:
        self.first, held_lease = self.house.holder()
        self.line()
        assert self.house.pass_on(self.first, held_lease)

    def given_what_cannot_be_passed_on_again(self) -> None:
        self.given_a_pass()
        self.local_queue.on_asked()
        self.house.node.now += 0.5

    def with_a_pass(self) -> None:
        self.given_a_pass()
        assert isinstance(self.local_queue.received(self.him, self.house.node.now), Grant)

    def with_a_pass_that_is_lost(self) -> None:
        self.given_a_pass()
        assert self.local_queue.held_lease is not None
        self.house.lose(self.local_queue.held_lease)
        assert self.local_queue.received(self.him, self.house.node.now) == AskServer()

    def given_the_lead(self) -> None:
        self.first = self.house.leader()
        self.line()
        self.local_queue.on_released(self.first)

    def leading(self) -> None:
        self.given_the_lead()
        assert self.local_queue.received(self.him, self.house.node.now) == AskServer()

    def holding(self) -> None:
        self.leading()
        self.house.taken(self.him)

    def given_a_place(self) -> None:
        self.first = self.house.leader()
        self.line()
        self.place = self.house.place_of(self.first)
        assert self.local_queue.pass_place_on(self.first, self.place)

    def told_of_a_failure(self) -> None:
        self.first = self.house.leader()
        self.line()
        for this in self.others:
            this.until = 2000.0
        self.local_queue.settle(self.first, NotSent("away"))


STATES = [
    Scene.in_line,
    Scene.behind_a_leader,
    Scene.behind_the_keeper,
    Scene.given_a_pass,
    Scene.given_what_cannot_be_passed_on_again,
    Scene.with_a_pass,
    Scene.with_a_pass_that_is_lost,
    Scene.given_the_lead,
    Scene.leading,
    Scene.holding,
    Scene.given_a_place,
    Scene.told_of_a_failure,
]


@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("state", STATES, ids=lambda state: state.__name__)
def test_who_leaves_leaves_no_trace(state: Callable[[Scene], None], others: int, times: int) -> None:
    """Twice, because an API that does not know how far it had come cleans up again."""
    scene = Scene(others)
    state(scene)
    for _ in range(times):
        scene.local_queue.settle(scene.him, None)
    expected = [*scene.before, *scene.others]
    assert [this for this, _ in scene.house.served(*expected)] == expected
    assert scene.house.idle


def test_what_is_left_without_an_heir_is_given_back(house: House) -> None:
    holder, held_lease = house.holder()
    heir = house.in_line()
    house.pass_on(holder, held_lease)
    house.local_queue.settle(heir, None)
    assert house.node.given_back == [held_lease]
    late = house.in_line()
    assert [this for this, _ in house.served(late)] == [late], "who comes meanwhile waits for that"


def test_who_times_out_in_line_stands_there_no_more(house: House) -> None:
    holder, held_lease = house.holder()
    him, other = house.in_line(until=1001.0), house.in_line()
    assert isinstance(house.local_queue.received(him, house.node.now), Busy)
    house.is_done(holder, held_lease)
    assert woken(him) == 0
    assert [this for this, _ in house.served(other)] == [other]


@pytest.mark.parametrize("given", ["a pass", "the lead"])
def test_who_was_given_it_just_as_he_timed_out_has_it(house: House, given: str) -> None:
    if given == "a pass":
        holder, held_lease = house.holder()
        him = house.in_line(until=1001.0)
        house.pass_on(holder, held_lease)
    else:
        leader = house.leader()
        him = house.in_line(until=1001.0)
        house.local_queue.on_released(leader)
    house.node.now += 2
    assert not isinstance(house.local_queue.received(him, house.node.now), Busy)
    assert house.local_queue.turn_of is him


# The place in the queue at the server


def test_the_place_is_inherited_in_order(house: House) -> None:
    leader = house.leader()
    place = house.place_of(leader)
    first, second = house.in_line(), house.in_line()
    assert house.local_queue.pass_place_on(leader, place)
    assert house.local_queue.received(first, house.node.now) == AskServer(place)
    assert (place.attempt, first.token, first.may_be_on_server) == (first, "aaaaaaaaaaaa.9", True)
    assert (leader.token, leader.may_be_on_server) == ("", False), "there is nothing left that he might give up"
    assert house.local_queue.pass_place_on(first, place)
    assert [this for this, _ in house.served(second)] == [second]
    assert house.idle


def test_a_place_without_an_heir_stays_with_who_has_it(house: House) -> None:
    leader = house.leader()
    place = house.place_of(leader)
    assert not house.local_queue.pass_place_on(leader, place)
    house.in_line(closed=True)
    assert not house.local_queue.pass_place_on(leader, place)
    assert (place.attempt, leader.token, leader.may_be_on_server) == (leader, "aaaaaaaaaaaa.9", True)


def test_a_place_that_is_no_more_is_not_inherited(house: House) -> None:
    leader = house.leader()
    place = house.place_of(leader)
    heir = house.in_line()
    house.node.waiting.unregister_waiter(place)
    assert not house.local_queue.pass_place_on(leader, place)
    house.local_queue.on_released(leader)
    assert house.local_queue.received(heir, house.node.now) == AskServer()


def test_who_leads_no_more_has_no_place_to_leave(house: House) -> None:
    leader = house.leader()
    place = house.place_of(leader)
    first, _ = house.in_line(), house.in_line()
    house.local_queue.pass_place_on(leader, place)
    assert not house.local_queue.pass_place_on(leader, place)
    assert place.attempt is first


# Closed event loops


def a_pass(house: House, come: Callable[[], None]) -> None:
    holder, held_lease = house.holder()
    come()
    house.is_done(holder, held_lease)


def a_pass_or_it_lingers(house: House, come: Callable[[], None]) -> None:
    holder, held_lease = house.holder(linger=5.0)
    come()
    house.is_done(holder, held_lease)


def the_lead(house: House, come: Callable[[], None]) -> None:
    leader = house.leader()
    come()
    house.local_queue.on_released(leader)


def the_lead_after_a_failure(house: House, come: Callable[[], None]) -> None:
    leader = house.leader()
    come()
    house.local_queue.settle(leader, NotSent("away"))


def the_lead_by_the_keeper(house: House, come: Callable[[], None]) -> None:
    a_pass_or_it_lingers(house, lambda: None)
    house.local_queue.on_asked()
    come()


@pytest.mark.parametrize(
    "given",
    [a_pass, a_pass_or_it_lingers, the_lead, the_lead_after_a_failure, the_lead_by_the_keeper],
    ids=lambda given: given.__name__,
)
@pytest.mark.parametrize("when", ["closed", "late"])
@pytest.mark.parametrize("dead", [1, 3])
@pytest.mark.parametrize("alive", [{}, {"ttl": 20.0}, None], ids=["alike", "another kind", "nobody"])
def test_closed_loops_are_skipped(
    house: House, given: Callable[[House, Callable[[], None]], None], dead: int, alive: dict[str, Any] | None, when: str
) -> None:
    living: list[Attempt] = []

    def come() -> None:
        for _ in range(dead):
            house.in_line(until=2000.0, **{when: True})
        if alive is not None:
            living.append(house.in_line(until=2000.0, **alive))

    given(house, come)
    assert [this for this, _ in house.served(*living)] == living
    house.local_queue.on_asked()  # what lingers still is given back
    house.served()
    assert house.idle
    last = house.leader()
    assert house.local_queue.turn_of is last, "and the lock can be had again"


class Settled(Attempt):
    """One that the keeper settles just when somebody wakes it: its slot is there no more when it is looked at again."""

    __slots__ = ("_slot",)
    _slot: Any

    @property
    def slot(self) -> Any:
        slot, self._slot = self._slot, None
        return slot

    @slot.setter
    def slot(self, slot: Any) -> None:
        self._slot = slot


def test_who_is_settled_while_it_is_woken_harms_nobody(house: House) -> None:
    like = house.attempt()
    house.local_queue.untold.append((Settled(like.spec, slot=like.slot, local_queue=house.local_queue), None))
    house.local_queue.wake_changed()
    assert woken(like) == 1
    assert not house.local_queue.untold


def test_what_a_closed_loop_has_asked_for_is_given_back_before_the_next_one_asks(house: House) -> None:
    """Its answer may say that it has the lock; nobody would read it."""
    asking = house.leader()
    asking.token, asking.may_be_on_server = "aaaaaaaaaaaa.1", True
    assert isinstance(asking.slot, Slot)
    asking.slot.closed = True
    following = house.in_line()
    assert house.node.revoked == [asking]
    assert not woken(following)
    assert house.served(following)
    assert house.idle


def test_who_does_not_wait_asks_no_more_beside_a_closed_loop(house: House) -> None:
    asking = house.leader()
    assert isinstance(asking.slot, Slot)
    for asking.slot.closed in (False, True):
        this = house.attempt()
        turn = house.local_queue.enter(this, house.node.now, at_once=True)
        assert (turn == AskServer()) is (this.local_queue is None) is not asking.slot.closed


# Interrupts


TRACED = {local_queue.__file__, server_queue.__file__}


class _At:
    """Raises KeyboardInterrupt at one line of the local queue."""

    def __init__(self, number: int) -> None:
        self.left = number
        self.where = ""

    def __call__(self, frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in TRACED:
            return None
        line = linecache.getline(frame.f_code.co_filename, frame.f_lineno).strip()
        # The end of a with statement has a line event of its own, at which the interpreter lets no signal in.
        if event == "line" and not line.startswith("with ") and not leaves_a_handler(frame):
            self.left -= 1
            if self.left < 0 and not self.where:
                self.where = f"{frame.f_lineno}: {line}"
                raise KeyboardInterrupt
        return self


def interrupted_at_every_line(
    prepare: Callable[[], Scene], action: Callable[[Scene], object]
) -> Iterator[tuple[Scene, str, HeldLease | None]]:
    for number in range(1000):
        scene, tracer = prepare(), _At(number)
        held_lease = scene.local_queue.held_lease
        before = sys.gettrace()
        sys.settrace(tracer)
        try:
            action(scene)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        if not tracer.where:
            assert number > 2, "nothing was interrupted"
            return
        yield scene, tracer.where, held_lease
    raise AssertionError("it never ends")


def scene(state: Callable[[Scene], None], others: int) -> Callable[[], Scene]:
    def prepare() -> Scene:
        this = Scene(others)
        state(this)
        return this

    return prepare


def lingers(scene: Scene) -> None:
    scene.him.spec = scene.him.spec._replace(linger=5.0)
    passes_on(scene)


def passes_on(scene: Scene) -> None:
    held_lease = scene.local_queue.held_lease
    assert held_lease is not None
    scene.house.pass_on(scene.him, held_lease)


def gives_back(scene: Scene) -> None:
    """A lock that cannot be handed on goes to the server."""
    scene.local_queue.on_asked()
    scene.house.node.now += 0.5
    passes_on(scene)
    assert scene.local_queue.held_lease is not None
    scene.house.ended(scene.local_queue.held_lease)
    scene.local_queue.on_released(scene.him)


def fails(scene: Scene) -> None:
    scene.local_queue.settle(scene.him, NotSent("away"))


def receives(scene: Scene) -> None:
    scene.local_queue.received(scene.him, scene.house.node.now)


def withdraws(scene: Scene) -> None:
    scene.local_queue.settle(scene.him, None)


def is_told_that_it_is_lost(scene: Scene) -> None:
    assert scene.local_queue.held_lease is not None
    scene.house.lose(scene.local_queue.held_lease)
    scene.local_queue.on_released(scene.him)


INTERRUPTED = [
    *[(state, withdraws) for state in STATES],
    *[(state, receives) for state in (Scene.given_a_pass, Scene.given_the_lead, Scene.given_a_place, Scene.in_line)],
    (Scene.with_a_pass, passes_on),
    (Scene.with_a_pass, lingers),
    (Scene.with_a_pass, gives_back),
    (Scene.with_a_pass, is_told_that_it_is_lost),
    (Scene.holding, passes_on),
    (Scene.leading, fails),
]


@pytest.mark.parametrize(("state", "action"), INTERRUPTED, ids=lambda what: what.__name__)
@pytest.mark.parametrize("others", [0, 2])
def test_interrupted_at_every_line(state: Callable[[Scene], None], action: Callable[[Scene], None], others: int) -> None:
    """The API withdraws then. Nobody else is stuck, nobody is served twice, and the lease is not lost."""
    for scene_, where, held_lease in interrupted_at_every_line(scene(state, others), action):
        if held_lease is not None and held_lease.over:
            scene_.house.ended(held_lease)
        scene_.local_queue.settle(scene_.him, None)
        told = [this for this in scene_.others if isinstance(this.turn, NotSent)]
        assert all(woken(this) for this in told), where
        assert [type(scene_.local_queue.received(this, scene_.house.node.now)) for this in told] == [NotSent] * len(told), where
        expected = [this for this in [*scene_.before, *scene_.others] if this not in told]
        if scene_.local_queue.held_lease is not None and scene_.local_queue.turn_of is None:
            assert scene_.house.node.looks, f"{where}: it lingers for ever"
            scene_.local_queue.on_asked()
        seen = scene_.house.served(*expected)
        assert [this for this, _ in seen] == expected, where
        assert [fence for _, fence in seen] == sorted({fence for _, fence in seen}), where
        assert scene_.house.idle, where


def comes(scene: Scene) -> None:
    scene.local_queue.enter(scene.him, scene.house.node.now)


@pytest.mark.parametrize("lingering", [False, True])
@pytest.mark.parametrize("kind", [{}, {"ttl": 20.0}], ids=["alike", "another kind"])
def test_interrupted_at_every_line_of_coming(kind: dict[str, Any], lingering: bool) -> None:
    def prepare() -> Scene:
        scene = Scene(0)
        if lingering:
            holder, held_lease = scene.house.holder(linger=5.0)
            scene.house.is_done(holder, held_lease)
        scene.him = scene.house.attempt(**kind)
        return scene

    for scene_, where, _ in interrupted_at_every_line(prepare, comes):
        scene_.local_queue.settle(scene_.him, None)
        scene_.local_queue.on_asked()
        scene_.house.served()
        assert scene_.house.idle, where


def test_an_heir_who_cannot_be_woken_does_not_take_the_lease_with_him(house: House) -> None:
    """The interrupt comes in the middle of waking it."""

    def interrupted(_outcome: object, /) -> bool:
        raise KeyboardInterrupt

    holder, held_lease = house.holder()
    heir, other = house.in_line(), house.in_line()
    put, slot = heir.slot.put, heir.slot  # type: ignore[union-attr]
    slot.put = interrupted  # type: ignore[union-attr, method-assign]
    with pytest.raises(KeyboardInterrupt):
        house.pass_on(holder, held_lease)
    slot.put = put  # type: ignore[union-attr, method-assign]
    house.local_queue.settle(holder, None)
    assert [this for this, _ in house.served(heir, other)] == [heir, other]
    assert house.idle
