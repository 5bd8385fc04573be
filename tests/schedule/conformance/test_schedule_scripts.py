"""The promises of the scripts of a schedule, on every server, and in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from holdfast._core.lock.replies import BLOCK, RENEW
from holdfast._core.schedule.commands import overview
from holdfast._core.schedule.job import COMMAND, JOBS, REGISTER, SERVE, Options, ScheduleKeys
from holdfast._lua import Script, codes
from holdfast.testing.keyspace import Keyspace, ReplyError
from support.box import Box, token

KEYS = ScheduleKeys.of("s")
JOB = KEYS.job("job")
ALL = (KEYS.base, KEYS.serving)
RUN = JOB.run(0)[0]
HOPE, OTHER = token("a", 1), token("b", 1)
T1, T2, T3 = (token("a", number) for number in (2, 3, 4))
QUEUE, AGAIN = Options(overlap="queue"), Options(on_crash="again")


class Schedule:
    """The scripts as a process calls them, on a server or in memory."""

    def __init__(self, box: Box | None) -> None:
        self.box = box
        self.memory = Keyspace(1_700_000_000_000_000)
        self.number = self.registrations = 0
        self.rev = self.start = 0

    def run(self, script: Script[Any], keys: tuple[bytes, ...], *args: str | int) -> Any:
        if self.box is not None:
            return self.box.redis.eval(script.body, len(keys), *keys, *args)
        self.memory.now += 1000
        found = self.memory.run(script, keys, args)
        assert not isinstance(found, ReplyError), found
        return found

    def command(self, *args: str | bytes | int) -> Any:
        return self.box.redis.execute_command(*args) if self.box is not None else self.memory.execute(*args)

    def now(self) -> int:
        return self.box.now_us() if self.box is not None else self.memory.now

    def register(
        self,
        definition: str = "d",
        when: str = "w",
        *,
        origin: str = "app:job",
        listener_id: str = HOPE,
        mode: str = "",
        number: int | None = None,
    ) -> Any:
        """When it was registered: its last tick, and what it was. Otherwise, the answer."""
        self.registrations += 1
        head = (listener_id, number or self.registrations, 30_000, f"host {listener_id[:4]}", mode)
        _, *answers = self.run(REGISTER, (*ALL, KEYS.jobs, JOB.job), *head, 1, "job", definition, when, origin)
        if not answers or answers[0][0] != 1:
            return answers
        _, self.rev, last, before, self.other, self.who = answers[0]
        self.start = self.start or last
        return last, before

    def serve(
        self,
        options: Options = Options(),  # noqa: B008 - it has no state
        *,
        end: tuple[str, str] | None = None,
        base: int | str = "",
        missed: str = "",
        ticks: tuple[int, ...] = (),
        beyond: int | str = "",
        want: str = "",
        number: int | None = None,
        valid: int = 60_000,
        listener_id: str = HOPE,
    ) -> Any:
        """About the one job: its answer; or that to the whole, if that was no answer."""
        self.number += 1
        ended = ("", "", "", "") if end is None else (0, end[0], end[1], "text")
        claim = (base, missed, " ".join(map(str, ticks)), beyond)
        head = (listener_id, number or self.number, self.now() // 1000 + valid, 30_000, "host")
        args = (*head, options.slots, self.rev, options.policy, *ended, *claim, want)
        code, *rest = self.run(SERVE, (*ALL, *JOB.serving(options.slots)), *args)
        return rest[2] if code == 1 else [code, *rest]

    def look(self, entries: int = 9) -> Any:
        return self.run(JOBS, (*ALL, *JOB.looking()), 10, entries)[3]

    def why(self) -> list[str]:
        """Newest first: of the ticks that were not run, status, number and reason."""
        lines = [entry.decode().split("\n") for entry in self.look()[5]]
        return [f"{line[0].split(' ')[1]} {line[0].split(' ')[3]}: {line[2]}" for line in lines if line[0].split(" ")[7] == "0"]

    def log(self) -> list[str]:
        """Newest first: status, attempt."""
        lines = [entry.decode().split("\n")[0].split(" ") for entry in self.look()[5]]
        return [f"{line[1]} {line[7]}" for line in lines]


@pytest.fixture(params=["server", "memory"])
def schedule(request: pytest.FixtureRequest, box: Box) -> Schedule:
    made = Schedule(box if request.param == "server" else None)
    made.register()
    return made


def granted(answer: Any) -> bool:
    """A run was given."""
    code, _last, _left, _queued, _cancel, _down, slot, fence, *_ = answer
    assert code == 1
    return bool(slot >= 0 and fence)


def test_a_tick_is_given_once_and_to_the_first(schedule: Schedule) -> None:
    tick = schedule.start + 1
    answer = schedule.serve(base=schedule.start, ticks=(tick,), want=T1)
    assert granted(answer)
    assert answer[1] == answer[8] == tick
    assert (answer[9], answer[10]) == (1, 0)
    assert schedule.command("GET", RUN) == T1.encode()
    assert not granted(schedule.serve(base=schedule.start, ticks=(tick,), want=T2, listener_id=OTHER))
    again = schedule.serve(base=schedule.start, ticks=(tick,), want=T1)
    assert again[7:] == answer[7:], "the same token asks again"


def test_no_tick_before_its_time_and_none_is_jumped_over(schedule: Schedule) -> None:
    later = schedule.now() + 5_000_000
    early = schedule.serve(base=schedule.start, ticks=(later,), want=T1)
    assert early[1] == schedule.start
    assert not granted(schedule.serve(base=schedule.start - 7, ticks=(schedule.start + 1,), want=T1)), "it knows too little"


def test_what_falls_due_while_it_runs(schedule: Schedule) -> None:
    one, two, three = (schedule.start + n for n in (1, 2, 3))
    assert granted(schedule.serve(base=schedule.start, ticks=(one,), want=T1))
    assert not granted(schedule.serve(base=one, ticks=(two,), want=T2))
    assert schedule.log() == ["skipped 0"]
    waits = schedule.serve(QUEUE, base=two, ticks=(three,), want=T2)
    assert (granted(waits), waits[3]) == (False, 1)
    handed = schedule.serve(QUEUE, end=(T1, "ok"), want=T2)
    assert granted(handed), "who ends one run is given the next"
    assert (handed[5], handed[8]) == (1, three)
    assert schedule.serve(QUEUE, end=(T1, "ok"))[5] == 0, "an end is written down once"
    assert schedule.log() == ["ok 1", "skipped 0"]


def test_of_late_ticks_the_latest_is_run(schedule: Schedule) -> None:
    one, three, four = (schedule.start + n for n in (1, 3, 4))
    later = schedule.now() + 10**7
    first = schedule.serve(base=schedule.start, missed=f"{one} {three} 3", ticks=(four, later), beyond=later + 1, want=T1)
    assert (first[8], first[3]) == (four, 0)
    assert schedule.why() == ["missed 3: a later tick was due, too"]
    assert b" missed %d 3 %d " % (one, three) in schedule.look()[5][-1]


def test_what_is_due_by_now_was_not_when_the_request_was_made(schedule: Schedule) -> None:
    ticks = tuple(schedule.start + n for n in (1, 2, 3))
    later = schedule.now() + 10**7
    known = schedule.serve(base=schedule.start, ticks=(*ticks, later), beyond=later + 1, want=T1)
    assert known[8] == ticks[-1], "the latest of those that the request names"
    assert schedule.why() == ["missed 2: a later tick was due, too"]
    late = schedule.serve(QUEUE, base=ticks[-1], ticks=(ticks[-1] + 1,), beyond=ticks[-1] + 2, want=T2)
    assert (late[1], late[3]) == (ticks[-1], 0), "it came too late to know the latest: nothing is claimed"


def test_all_late_ticks_run_in_order_where_they_are_wanted(schedule: Schedule) -> None:
    wanted = Options(misfire="all")
    ticks = tuple(schedule.start + n for n in (4, 5, 6))
    first = schedule.serve(
        wanted, base=schedule.start, missed=f"{schedule.start + 1} {schedule.start + 3} 3", ticks=ticks, want=T1
    )
    assert (first[8], first[3]) == (ticks[0], 2)
    fresh = schedule.serve(wanted, base=ticks[-1], ticks=(schedule.start + 7,))
    assert fresh[3] == 2, "what falls due meanwhile is left out"
    second = schedule.serve(wanted, end=(T1, "ok"), want=T2)
    third = schedule.serve(wanted, end=(T2, "error"), want=T3)
    assert (second[8], third[8]) == ticks[1:]
    assert schedule.log() == ["error 1", "ok 1", "skipped 0", "missed 0"]
    assert schedule.why() == ["skipped 1: it was still running", "missed 3: more than a hundred ticks were late"]


def test_a_tick_that_waits_gives_way_to_a_later_one(schedule: Schedule) -> None:
    one, two = schedule.start + 1, schedule.start + 2
    assert schedule.serve(base=schedule.start, ticks=(one,))[3] == 1, "who claims it has no room for it"
    four = schedule.start + 4
    assert schedule.serve(base=one, missed=f"{two} {four - 1} 2", ticks=(four,))[3] == 1
    assert schedule.serve(want=T1)[8] == four
    assert schedule.why() == ["missed 3: a later tick was due, too"]
    assert b" missed %d 3 %d " % (one, four - 1) in schedule.look()[5][0], "in their order"


def test_nothing_that_waits_begins_when_a_later_tick_is_due(schedule: Schedule) -> None:
    """One that was claimed when nobody had room. The one after it falls due while the request for it is on its way."""
    one, two, three = (schedule.start + n for n in (1, 2, 3))
    later = schedule.now() + 10**7
    assert schedule.serve(base=schedule.start, ticks=(one,), beyond=later)[3] == 1
    for base, ticks, beyond, why in (
        (one, (), two, "it came too late to know the latest"),
        (schedule.start, (one, two), later, "it knows less than the server"),
    ):
        assert not granted(schedule.serve(base=base, ticks=ticks, beyond=beyond, want=T1)), why
        queued = schedule.serve(QUEUE, base=base, ticks=ticks, beyond=beyond)[3]
        assert queued == 1, "and it is not lost, either"
    known = schedule.serve(base=one, ticks=(two, three, later), beyond=later + 1, want=T1)
    assert known[8] == three
    assert schedule.why() == ["missed 2: a later tick was due, too"]


def test_what_waits_begins_where_no_later_tick_is_due(schedule: Schedule) -> None:
    one, two = schedule.start + 1, schedule.start + 2
    later = schedule.now() + 10**7
    assert schedule.serve(base=schedule.start, missed=f"{one} {one} 1", ticks=(two, later), beyond=later + 1)[3] == 1
    stale = schedule.serve(base=schedule.start, ticks=(one,), beyond=two, want=T1)
    assert stale[8] == two, "it was claimed by others meanwhile, and is the latest"


def test_what_is_later_than_its_grace_is_not_run(schedule: Schedule) -> None:
    strict = Options(misfire="skip", grace=0)
    one, two = schedule.start + 1, schedule.start + 2
    assert not granted(schedule.serve(strict, base=schedule.start, missed=f"{one} {one} 1", ticks=(two,), want=T1))
    assert schedule.why() == ["missed 2: it was later than its grace"]
    patient = Options(misfire="skip", grace=3600)
    assert schedule.serve(patient, base=two, ticks=(two + 1,))[3] == 1
    assert not granted(schedule.serve(strict, want=T1)), "nobody had room for it in time"
    assert schedule.why() == ["missed 3: it was later than its grace"]


@pytest.mark.turns
@pytest.mark.parametrize("waits", [False, True], ids=["is claimed", "waits"])
@pytest.mark.parametrize("late", [0, 1])
def test_a_tick_at_the_very_end_of_its_grace_is_run(late: int, waits: bool) -> None:
    """In memory, where the clock stands still."""
    schedule, lenient = Schedule(None), Options(misfire="skip", grace=5)
    schedule.register()
    tick = schedule.start + 1
    if waits:
        assert schedule.serve(lenient, base=schedule.start, ticks=(tick,))[3] == 1, "who claims it has no room for it"
    schedule.memory.now = tick + 5_000_000 + late - 1000  # each run takes so long
    answer = schedule.serve(lenient, base="" if waits else schedule.start, ticks=(tick,), want=T1)
    assert granted(answer) == (not late)


def test_a_run_whose_lease_has_ended_crashed(schedule: Schedule) -> None:
    assert granted(schedule.serve(AGAIN, base=schedule.start, ticks=(schedule.start + 1,), want=T1))
    for attempt, want in ((2, T2), (3, T3)):
        schedule.command("DEL", RUN)
        again = schedule.serve(AGAIN, want=want, listener_id=OTHER)
        assert (granted(again), again[9]) == (True, attempt)
    schedule.command("DEL", RUN)
    assert not granted(schedule.serve(AGAIN, want=T1)), "not for ever"
    assert schedule.log() == ["crashed 3", "crashed 2", "crashed 1"]


def test_a_run_that_is_cut_short_begins_again_elsewhere_at_once(schedule: Schedule) -> None:
    assert granted(schedule.serve(AGAIN, base=schedule.start, ticks=(schedule.start + 1,), want=T1))
    assert schedule.serve(AGAIN, end=(T1, "again"))[3] == 1
    again = schedule.serve(AGAIN, want=T2, listener_id=OTHER)
    assert (granted(again), again[9]) == (True, 2)
    assert schedule.serve(AGAIN, end=(T2, "back"), listener_id=OTHER)[3] == 1
    assert schedule.serve(AGAIN, want=T3)[9] == 2, "one that never began"
    assert schedule.log() == ["cancelled 1"]


def test_a_crash_is_judged_by_the_present_definition(schedule: Schedule) -> None:
    """The process that notices it may know the old one only, by which the run would begin again."""
    assert granted(schedule.serve(AGAIN, base=schedule.start, ticks=(schedule.start + 1,), want=T1))
    old = schedule.rev
    schedule.register("other", listener_id=OTHER)
    schedule.rev, new = old, schedule.rev
    schedule.command("DEL", RUN)
    assert schedule.serve(AGAIN, want=T2)[:2] == [codes.REDEFINED, new]
    assert schedule.log() == []
    schedule.rev = new
    left = schedule.serve(want=T3, listener_id=OTHER)
    assert (granted(left), schedule.log()) == (False, ["crashed 1"])


def test_a_crash_noticed_by_a_process_with_the_old_definition_begins_again(schedule: Schedule) -> None:
    """That process is told of the new one, and is given nothing; the tick waits for a process that knows the job as it is."""
    assert granted(schedule.serve(AGAIN, base=schedule.start, ticks=(schedule.start + 1,), want=T1))
    old = schedule.rev
    schedule.register("other", listener_id=OTHER)
    schedule.rev, new = old, schedule.rev
    schedule.command("DEL", RUN)
    assert schedule.serve(AGAIN, want=T2)[:2] == [codes.REDEFINED, new]
    schedule.rev = new
    again = schedule.serve(AGAIN, want=T3, listener_id=OTHER)
    assert granted(again)
    assert again[8:10] == [schedule.start + 1, 2], "the same tick, its second attempt"


def test_keep_and_overlap(schedule: Schedule) -> None:
    kept = Options(min_runtime=600)
    assert granted(schedule.serve(kept, base=schedule.start, ticks=(schedule.start + 1,), want=T1))
    assert schedule.serve(kept, end=(T1, "ok"))[2] > 590_000
    assert not granted(schedule.serve(kept, base=schedule.start + 1, ticks=(schedule.start + 2,), want=T2))
    beside = Options(overlap="allow")
    answers = [schedule.serve(beside, base=schedule.start + 2, ticks=(schedule.start + 3,), want=T2)]
    answers.append(schedule.serve(beside, base=schedule.start + 3, ticks=(schedule.start + 4,), want=T3))
    assert [answer[6] for answer in answers] == [1, 2], "slots"
    assert answers[0][7] < answers[1][7]


def test_each_run_is_shown_with_its_own_lease(schedule: Schedule) -> None:
    beside = Options(overlap="allow")
    for tick, want in enumerate((T1, T2), 1):
        assert granted(schedule.serve(beside, base=schedule.start + tick - 1, ticks=(schedule.start + tick,), want=want))
    schedule.command("PEXPIRE", JOB.run(1)[0], 12_000)
    _, first, _, second = schedule.look()[4]
    assert 20_000 < first <= 30_000
    assert 0 < second <= 12_000
    schedule.command("DEL", JOB.run(0)[0])
    assert schedule.look()[4][1] == -1


def test_a_slot_is_kept_for_the_rest_of_that_time_after_a_run(schedule: Schedule) -> None:
    kept = Options(min_runtime=600)
    assert granted(schedule.serve(kept, base=schedule.start, ticks=(schedule.start + 1,), want=T1))
    words = schedule.command("HGET", JOB.job, "run:0").split(b" ")
    words[3] = b"%d" % (int(words[3]) - 100_000_000)  # as if it had begun earlier
    schedule.command("HSET", JOB.job, "run:0", b" ".join(words))
    assert 490_000 < schedule.serve(kept, end=(T1, "ok"))[2] <= 500_000


def test_fences_of_runs_rise_whatever_the_clock_says(schedule: Schedule) -> None:
    ahead = schedule.now() + 60_000_000
    schedule.command("HSET", JOB.job, "fence", ahead)
    fences = []
    for number, want in enumerate((T1, T2)):
        fences.append(schedule.serve(base=schedule.start + number, ticks=(schedule.start + number + 1,), want=want)[7])
        schedule.serve(end=(want, "ok"))
        schedule.command("DEL", *JOB.run(0))  # the job itself remembers the last fence
    assert fences == [ahead + 1, ahead + 1 + BLOCK]


def test_a_late_copy_does_nothing(schedule: Schedule) -> None:
    tick = schedule.start + 1
    assert granted(schedule.serve(base=schedule.start, ticks=(tick,), want=T1))
    before = schedule.look()
    code, now = schedule.serve(end=(T1, "ok"), number=1)
    assert (code, now > tick) == (0, True)
    assert schedule.serve(end=(T1, "ok"), valid=-1)[0] == 0
    assert [part for part in schedule.look() if not isinstance(part, list)] == [p for p in before if not isinstance(p, list)]


def order(schedule: Schedule, what: str, id_: str = "id") -> Any:
    return schedule.run(COMMAND, (*ALL, KEYS.jobs, JOB.job, JOB.log), what, id_, "job")


def test_a_tick_from_a_pause_is_not_run_after_the_resume(schedule: Schedule) -> None:
    assert order(schedule, "pause") == [1, 0]
    due = schedule.start + 1
    assert order(schedule, "resume") == [1, 0], "before any process has asked"
    assert not granted(schedule.serve(base=schedule.start, ticks=(due,), want=T1))
    assert schedule.why() == ["skipped 1: paused"]
    after = schedule.now()
    assert granted(schedule.serve(base=due, ticks=(after,), want=T1))


def test_the_resume_of_a_job_that_is_not_paused_takes_no_tick(schedule: Schedule) -> None:
    due = schedule.start + 1
    assert order(schedule, "resume") == [1, 0], "before any process has asked"
    assert granted(schedule.serve(base=schedule.start, ticks=(due,), want=T1))
    assert schedule.why() == []


def test_orders(schedule: Schedule) -> None:
    say = partial(order, schedule)
    assert say("pause") == [1, 0]
    assert not granted(schedule.serve(base=schedule.start, ticks=(schedule.start + 1,), want=T1))
    assert say("run") == say("run") == [1, 0]
    by_hand = schedule.serve(want=T1)
    assert (granted(by_hand), by_hand[10], by_hand[3]) == (True, 1, 0), "once, though it was asked for twice, and it is paused"
    assert say("cancel") == [1, 1]
    assert schedule.serve()[4] == b"%d " % by_hand[7]
    assert schedule.serve(end=(T1, "cancelled"))[4] == b""
    assert say("resume") == [1, 0]
    assert granted(schedule.serve(base=schedule.start + 1, ticks=(schedule.now() + 1,), want=T2))
    assert schedule.log() == ["cancelled 1", "skipped 0"]
    assert [say("run", f"id{n}")[0] for n in range(101)] == [1] * 100 + [codes.QUEUE_FULL]
    assert say("remove") == [1, 0]
    assert (say("run"), schedule.look(), schedule.serve()) == ([0], [], [codes.NO_JOB])


def test_the_newest_word_counts(schedule: Schedule) -> None:
    start, rev = schedule.start, schedule.rev
    assert schedule.register() == (start, b""), "the same again"
    assert schedule.register("other") == (start, b"d")
    assert schedule.register("third", "when")[0] > start, "a timetable begins when it is first heard of"
    schedule.rev, new = rev, schedule.rev
    assert schedule.serve(base=start, want=T1)[:3] == [codes.REDEFINED, new, b"third"]
    schedule.register("third", "when", origin="app:other")
    assert schedule.serve(base=start, want=T1)[1:] != [new, b"third"], "other code is news, too"
    schedule.rev = rev
    assert schedule.serve(base=start, want=T1)[4] == b"app:other"


def test_a_registration_that_is_sent_again_brings_no_old_definition_back(schedule: Schedule) -> None:
    """Neither a copy that comes late nor a process that repeats its request after a lost reply."""
    assert schedule.register("new", origin="app:new", listener_id=OTHER, number=1) == (schedule.start, b"d")
    rev = schedule.rev
    answer = [codes.REDEFINED, rev, b"new", schedule.start, b"app:new"]
    assert schedule.register(number=1) == [answer]
    assert schedule.register("new", origin="app:new", listener_id=OTHER, number=1) == (schedule.start, b"")
    assert schedule.rev == rev
    assert schedule.register(number=2) == (schedule.start, b"new"), "it declares it anew"


def test_a_registration_that_is_sent_again_does_not_bring_a_removed_job_back(schedule: Schedule) -> None:
    order(schedule, "remove")
    assert schedule.register(number=1) == [[codes.NO_JOB]]
    assert schedule.register(number=2)[1] == b""


@pytest.mark.parametrize("field", ["rev", "last"])
def test_a_registration_writes_a_lost_field_anew(schedule: Schedule, field: str) -> None:
    """Without a revision, a job counts as not registered, so its process would register it again and again."""
    for lost in (("HDEL", JOB.job, field), ("HSET", JOB.job, "rev", "0")):
        schedule.command(*lost)
        last, _ = schedule.register()
        assert schedule.rev > 0
        assert schedule.now() - 60_000_000 < last <= schedule.now()


def test_each_revision_is_higher_than_the_one_before(schedule: Schedule) -> None:
    """Also after the clock was set back. Otherwise a process that knows the old definition takes the new one for it."""
    ahead = schedule.now() + 60_000_000
    schedule.command("HSET", JOB.job, "rev", ahead)
    schedule.register("other")
    assert schedule.rev == ahead + 1
    schedule.register("third")
    assert schedule.rev == ahead + 2


def test_other_code_under_the_same_name(schedule: Schedule) -> None:
    schedule.serve(number=1)
    assert schedule.register(origin="app:moved", mode="look") == [], "nobody is its own rival"
    assert (schedule.register(listener_id=OTHER), schedule.other) == ((schedule.start, b""), b""), "the same code"
    new = token("c", 1)
    assert schedule.register(origin="shop:job", listener_id=new, mode="look") == [
        [codes.OTHER_CODE, 0, b"app:job", b"host " + OTHER[:4].encode()]
    ]
    assert schedule.register(origin="shop:job", listener_id=new, mode="strict")[0][0] == codes.OTHER_CODE
    assert schedule.look()[6:] == [b"app:job", 1]
    schedule.register(origin="shop:job", listener_id=new)
    assert (schedule.other, schedule.who) == (b"app:job", b"host " + OTHER[:4].encode())
    third = token("d", 1)
    assert schedule.register(origin="shop:job", listener_id=third, mode="look") == [], (
        "only the code declared last is remembered"
    )
    assert schedule.register(listener_id=third, mode="look")[0][:3] == [codes.OTHER_CODE, 0, b"shop:job"]
    schedule.command("ZADD", KEYS.serving, 1, new)
    assert schedule.look()[6:] == [b"shop:job", 0], "nobody serves it so"
    assert schedule.register(origin="third:job", listener_id=third, mode="look") == [], (
        "although a process serves it as app:job"
    )
    schedule.register(listener_id=OTHER, mode="strict")
    assert schedule.other == b"", "who serves no more is no rival"


def test_a_clock_that_is_set_back(schedule: Schedule) -> None:
    """A little, and no tick that it shows again is run again; by hours, and it was wrong before."""
    hour = 3600 * 10**6
    soon, far = (schedule.now() + hours * hour for hours in (2, 5))
    schedule.command("HSET", JOB.job, "last", soon, "resumed", soon)
    assert schedule.serve(want=T1)[1] == soon
    schedule.command("HSET", JOB.job, "last", far, "resumed", far)
    assert abs(schedule.serve(want=T1)[1] - schedule.now()) < hour
    last = schedule.serve()[1]
    assert granted(schedule.serve(base=last, ticks=(last + 1,), want=T1)), "and it is not as if it had been paused"


def test_who_serves_it_and_since_when(schedule: Schedule) -> None:
    def who() -> Any:
        return schedule.run(JOBS, ALL, 10, 1)[:3]

    schedule.serve(number=1)
    _, exists, (first,) = who()
    assert exists == 1
    assert first.split(b" ", 1)[1] == f"host {HOPE[:4]}".encode(), "the name under which it has registered"
    assert int(first.split(b" ")[0]) <= schedule.now()
    schedule.command("HDEL", KEYS.base, f"who:{HOPE}")  # as when somebody has deleted the key, and another process made it anew
    known = overview([], [*who()]).runners
    assert [runner.host for runner in known] == [f"process {HOPE.partition('.')[0]}"]
    assert abs(known[0].since - schedule.now()) < 10**6
    schedule.command("ZADD", KEYS.serving, 1, HOPE)
    assert who()[1:] == [1, []]
    schedule.command("FLUSHALL")
    assert who()[1:] == [0, []]


def test_what_changed_before_the_server_forgot_everything_does_not_come_again(schedule: Schedule) -> None:
    def changes() -> int:
        return int(schedule.command("HGET", KEYS.base, "changes"))

    before = changes()
    schedule.command("FLUSHALL")
    schedule.start = 0
    schedule.register()
    assert changes() > before, "who has not noticed yet is told by this that his jobs may be gone"


def test_who_serves_no_more_is_forgotten_by_the_next_to_begin(schedule: Schedule) -> None:
    for number in range(5):
        schedule.serve(listener_id=token("a", 10 + number), number=1)
    now = schedule.now() // 1000
    for number in range(4):
        schedule.command("ZADD", KEYS.serving, now - 60_001 - number, token("a", 10 + number))
    schedule.serve(listener_id=token("b", 2), number=1)
    assert schedule.command("ZCARD", KEYS.serving) == 3, "with the one that has registered"
    assert schedule.command("HLEN", KEYS.base) == 2 + 2 + 1 + 3, "v, changes, two requests, one registration, three names"


def test_a_request_of_a_process_that_serves_no_more_is_known_as_long_as_it_is_valid(schedule: Schedule) -> None:
    """A request may hang for longer than its process counts as serving. It must not be given a run then: nobody is there."""
    gone, number = token("a", 10), 7
    schedule.serve(listener_id=gone, number=number + 1)
    schedule.command("ZADD", KEYS.serving, schedule.now() // 1000 - 31_000, gone)
    schedule.serve(listener_id=token("b", 2), number=1)
    late = schedule.serve(base=schedule.start, ticks=(schedule.start + 1,), want=T1, listener_id=gone, number=number)
    assert late[0] == 0
    assert schedule.command("GET", RUN) is None


def test_history_is_kept_as_long_as_the_job(schedule: Schedule) -> None:
    schedule.serve(base=schedule.start, missed=f"{schedule.start + 1} {schedule.start + 1} 1", ticks=(schedule.start + 2,))
    schedule.command("PEXPIRE", JOB.log, 5000)
    schedule.serve()
    assert schedule.command("PTTL", JOB.log) > 10**9, "of a job that is seldom due, too"


def test_the_end_of_a_run_is_written_down_with_its_text(schedule: Schedule) -> None:
    assert granted(schedule.serve(base=schedule.start, ticks=(schedule.start + 1,), want=T1))
    schedule.serve(end=(T1, "error"))
    paused, (entry,) = schedule.look()[2], schedule.look()[5]
    assert (paused, entry.split(b"\n")[1:]) == (0, [b"host", b"text"])


def test_the_state_of_a_run_is_kept_for_a_while(schedule: Schedule) -> None:
    assert granted(schedule.serve(base=schedule.start, ticks=(schedule.start + 1,), want=T1))
    assert 600_000 <= schedule.command("PTTL", JOB.run(0)[1]) <= 2 * 600_000


def test_what_was_allowed_before_ends_as_any_other(schedule: Schedule) -> None:
    wide = Options(overlap="allow")
    for tick, want in enumerate((T1, T2), 1):
        assert granted(schedule.serve(wide, base=schedule.start + tick - 1, ticks=(schedule.start + tick,), want=want))
    schedule.register("another")
    slots = (10, schedule.rev, Options().policy)
    head = (HOPE, 9, schedule.now() // 1000 + 9000, 30_000, "host")
    claim = (schedule.start + 2, "", str(schedule.start + 3), "")
    ended = (0, T1, "ok", "text")
    code, _, _, answer = schedule.run(SERVE, (*ALL, *JOB.serving(10)), *head, *slots, *ended, *claim, T3)
    assert code == 1
    assert not granted(answer), "it is running still, in the other slot"
    assert schedule.log() == ["skipped 0", "ok 1"]


def test_what_belongs_to_others_is_left_alone(schedule: Schedule) -> None:
    schedule.command("DEL", JOB.log)
    schedule.command("SET", JOB.log, "data", "EX", 60)
    assert schedule.serve(base=schedule.start, ticks=(schedule.start + 1,), want=T1) == [codes.WRONG_TYPE, JOB.log, b"string"]
    schedule.command("HSET", JOB.job, "v", "2")
    assert schedule.serve() == [-3, b"2"]
    schedule.command("DEL", JOB.job)
    schedule.command("SET", JOB.job, "data", "EX", 60)
    assert schedule.serve() == [codes.WRONG_TYPE, JOB.job, b"string"]
    assert schedule.run(COMMAND, (*ALL, KEYS.jobs, JOB.job, JOB.log), "run", "id", "job") == [
        codes.WRONG_TYPE,
        JOB.job,
        b"string",
    ]
    assert schedule.run(REGISTER, (*ALL, KEYS.jobs, JOB.job), HOPE, 99, 1, "h", "", 1, "job", "d", "w", "o")[1] == [
        codes.WRONG_TYPE,
        JOB.job,
        b"string",
    ]


def test_who_serves_is_told_of_orders(box: Box) -> None:
    schedule = Schedule(box)
    schedule.register()
    box.listen("a", "b")
    schedule.serve()
    schedule.serve(listener_id=OTHER)
    schedule.run(COMMAND, (*ALL, KEYS.jobs, JOB.job, JOB.log), "run", "id", "job")
    assert box.heard("a") == [f"3 {HOPE}"]
    assert box.heard("b") == [f"3 {OTHER}"]
    assert granted(schedule.serve(AGAIN, want=T1))
    schedule.serve(AGAIN, end=(T1, "again"))
    assert (box.heard("a"), box.heard("b")) == ([], [f"3 {OTHER}"]), "who gives a run up knows it"
    assert granted(schedule.serve(AGAIN, want=T2))
    old = schedule.rev
    schedule.register(origin="app:newer", listener_id=OTHER)
    box.heard("a"), box.heard("b")
    schedule.rev = old
    assert (schedule.serve(AGAIN)[0], box.heard("b")) == (codes.REDEFINED, []), "no run was given up"
    assert schedule.serve(AGAIN, end=(T2, "again"))[0] == codes.REDEFINED
    assert box.heard("b") == [f"3 {OTHER}"], "also where who gives it up does not know the job as it is now"


def test_every_key_is_declared(box: Box) -> None:
    schedule = Schedule(box)
    with box.watched() as commands:
        schedule.register()
        schedule.serve(base=schedule.start, ticks=(schedule.start + 1,), want=T1)
        schedule.run(COMMAND, (*ALL, KEYS.jobs, JOB.job, JOB.log), "cancel", "id", "job")
        schedule.serve(end=(T1, "ok"))
        schedule.look()
    touched = {key for command in commands for key in box.keys_in(command)}
    assert touched <= {key.decode() for key in (*ALL, KEYS.jobs, *JOB.serving(10))}
    assert len(touched) >= 6


def _prepared(box: Box, *, queued: bool = False, crashed: bool = False, ended: bool = False) -> Schedule:
    """A job that runs; with another tick behind it; without its lease; or that has ended."""
    schedule = Schedule(box)
    schedule.register()
    schedule.serve(QUEUE, base=schedule.start, ticks=(schedule.start + 1, schedule.start + 2)[: 1 + queued], want=T1)
    schedule.serve(QUEUE, listener_id=OTHER)
    if ended:
        schedule.serve(QUEUE, listener_id=OTHER, end=(T1, "ok"))
    if crashed:
        schedule.command("DEL", RUN)
    schedule.command("HSET", JOB.job, "rev", 0)  # the one that the cases name: else they would be told of a change, and no more
    return schedule


def _names(*keys: bytes) -> tuple[str, ...]:
    return tuple(key.decode() for key in keys)


_SERVING = _names(*ALL, *JOB.serving(1))
_ORDERED = _names(*ALL, KEYS.jobs, JOB.job, JOB.log)
_HEAD = (token("b", 9), 9, 10**15, 30_000, "host")
_NEW = (token("b", 9), 9, 30_000, "host", "")
_END = (0, T1, "ok", "text")
CASES: list[tuple[Script[Any], tuple[str, ...], tuple[object, ...], Callable[[Box], object]]] = [
    (REGISTER, _names(*ALL, KEYS.jobs, JOB.job), (*_NEW, 1, "job", "d", "w", "o"), Box.clear_keys),
    (REGISTER, _names(*ALL, KEYS.jobs, JOB.job), (*_NEW, 1, "job", "e", "w", "o"), _prepared),
    (REGISTER, _names(*ALL, KEYS.jobs, JOB.job), (*_NEW[:4], "strict", 1, "job", "e", "w", "o"), _prepared),
    (SERVE, _SERVING, (*_HEAD, 1, 0, QUEUE.policy, *_END, "", "", "", "", ""), partial(_prepared, queued=True)),
    (SERVE, _SERVING, (*_HEAD, 1, 0, AGAIN.policy, "", "", "", "", "", "", "", "", T2), partial(_prepared, crashed=True)),
    (
        SERVE,
        _SERVING,
        (*_HEAD, 1, 0, AGAIN.policy, "", "", "", "", "", "", "", "", T2),
        lambda box: box.redis.set(JOB.job, "x", 9),
    ),
    *((COMMAND, _ORDERED, (what, "id", "job"), _prepared) for what in ("pause", "resume", "run", "cancel", "remove")),
    (COMMAND, _ORDERED, ("remove", "id", "job"), Box.clear_keys),
    (JOBS, _names(*ALL, *JOB.looking()), (10, 9), _prepared),
    (JOBS, _names(*ALL, *JOB.looking()), (10, 9), partial(_prepared, ended=True)),
    (RENEW, _names(*JOB.run(0)), (T1, 30_000, 1), _prepared),
]
"""Each script in situations in which it needs all that it may do: see `test_access`."""
