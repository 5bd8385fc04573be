"""Checks every model, and that every wrong variant of it fails: spin makes a program of each, gcc compiles it, it is run.

python3 models/check.py                   all of them, as a table; exit code 1 if anything is not as expected
python3 models/check.py handover lease    these models alone
python3 models/check.py --show lock_handover NO_HELP    how a wrong variant fails, step by step

Needs spin and gcc, and nothing else of the project.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
AT_ONCE = 2
DEPTH = 20_000
"""Steps that a run of a model has at most; a search that would need more is not complete, and said so."""
MEMORY_MB = 4000


class Variant(NamedTuple):
    """A model under some #defines, and what must come out."""

    model: str
    defines: str
    breaks: str
    """A part of the assertion that must be found violated; empty: everything must hold."""
    text: str
    """What it is, or what is wrong with it."""

    @property
    def wrong(self) -> bool:
        return bool(self.breaks)


VARIANTS = [
    Variant("lock_lease", "", "", "a lease, its renewals, late copies, a slow clock"),
    Variant("lock_lease", "FENCES", "", "fences and the guard, while the server forgets once"),
    Variant("lock_lease", "NO_MARGIN", "clock", "nothing is taken off the lease for clocks of different speed"),
    Variant("lock_lease", "FROM_ANSWER", "clock", "the lease counts from the answer, not from the request"),
    Variant(
        "lock_lease", "LATE_ANSWER", "mark", "an answer read after the deadline is believed, though others have had the lock"
    ),
    Variant("lock_lease", "NO_NUMBER", "clock", "renewals have no number: a late copy shortens the lease"),
    Variant("lock_lease", "NO_SHORTEN", "clock", "a shorter lease is asked for, and the old one believed until the answer"),
    Variant("lock_lease", "RENEW_ADDS", "expires<=", "a renewal adds to what is left: with each copy the lock lasts longer"),
    Variant("lock_lease", "RENEW_CREATES", "holder!=", "a renewal writes the lock again that is gone"),
    Variant("lock_lease", "NO_COMPARE", "clock", "release does not compare the token: a late copy frees another's lock"),
    Variant("lock_lease", "JUMP", "clock", "the server's clock steps forward: no lease survives that, on any server"),
    Variant("lock_lease", "SAME_FENCE", "fence>issued", "a new holder gets the fence of the last one"),
    Variant("lock_lease", "FENCES COUNTER_ONLY", "fence>issued", "fences are counted, and the count is forgotten"),
    Variant("lock_lease", "FENCES CLOCK_ONLY", "fence>issued", "fences are the time, and two grants fall into one grain of it"),
    Variant("lock_lease", "FENCES NO_GUARD", "written", "nobody checks the fence: a stopped holder's write arrives late"),
    Variant("lock_handover", "", "", "two processes, the first of which tries twice, and one fault"),
    Variant("lock_handover", "ATTEMPTS=1 FAULTS=2", "", "two processes, and two faults"),
    Variant("lock_handover", "PROCESSES=3 ATTEMPTS=1 FAULTS=0", "", "three processes, no fault"),
    Variant("lock_handover", "NO_REFRESH", "idle", "who waits sends no sign of life: a lost message is never made good"),
    Variant("lock_handover", "NO_HELP", "idle", "refresh does not hand over a free lock: its last holder died, so nobody does"),
    Variant("lock_handover", "HEAD_ONLY", "idle", "the first in line is waited for, dead or not"),
    Variant("lock_handover", "NO_CLAIM_WINDOW", "idle", "a hand-over writes a lock without expiry, and the winner is dead"),
    Variant(
        "lock_handover", "LEAVES_QUEUE_ONLY", "ended", "giving up leaves the queue alone: a lock handed over meanwhile stays"
    ),
    Variant("lock_handover", "NO_REVOKE", "ended", "the token is not declared dead: a late copy joins the queue for nobody"),
    Variant("lock_handover", "REFRESH_INSERTS", "ended", "refresh makes a place that is gone: a late one does it for nobody"),
    Variant(
        "lock_handover",
        "NO_COMPARE",
        "holder==token",
        "release does not compare the token: sent again, it frees the next one's lock",
    ),
    Variant(
        "lock_handover", "SAME_TOKEN", "holder==token", "an attempt uses the token of the one before: a late release frees it"
    ),
    Variant("lock_handover", "FROM_READING", "holder==token", "a hand-over counts from when its message was read"),
    Variant("lock_handover", "FAULTS=2 NO_FENCE_CHECK", "holder==token", "a message with an old fence is believed"),
    Variant("permit", "", "", "two who want one permit, one who wants both, and two faults"),
    Variant("permit", "TRIES=2 FAULTS=1", "", "the same, each tries twice, and one fault"),
    Variant("permit", "LIMIT=3", "", "three permits: two who want one, one who wants all"),
    Variant("permit", "BARGE", "overtaken", "who comes takes what is enough, though somebody waits who wants more"),
    Variant("permit", "NO_EXPIRY", "idle", "permits of the dead are not taken back before counting"),
    Variant("permit", "NO_HELP", "idle", "refresh gives nobody what is free: a lost message is never made good"),
    Variant("permit", "RELEASE_BLIND", "used==", "release counts down without looking if anything is held"),
    Variant("permit", "FROM_READING", "<=2", "a hand-over counts from when its message was read"),
    Variant("permit", "DOWNGRADE_LATE", "<=2", "a writer who becomes a reader is believed to be one before he knows"),
    Variant("multilock", "", "", "two who want both locks, each in another order, and one who wants one of them"),
    Variant("multilock", "GIVEN_ORDER", "state[0]==4", "they are taken in the order in which they are named"),
    Variant("multilock", "IN_PART", "state[i]!=2", "what is free is taken, though not all is, and the answer is no"),
    Variant("multilock", "KEEPS_FIRST", "state[i]!=2", "who gives up keeps the first"),
    Variant("election", "", "", "two candidates who take turns, one observer"),
    Variant("election", "NO_COMPARE", "top", "what an old leader says late counts, whoever has the lock"),
    Variant("election", "NO_TELL", "asleep", "a new leader tells nobody"),
    Variant("election", "LISTED_AFTER", "asleep", "an observer looks first, and is listed after that"),
    Variant("election", "BELIEVES_ON", "left[0]>0", "who hands over believes to lead until it is answered"),
    Variant("quorum_fence", "VANISH COPIES", "", "confirmed fences; keys vanish at any time, requests are carried out twice"),
    Variant("quorum_fence", "CLIENTS=3", "", "confirmed fences, three clients"),
    Variant("quorum_fence", "FORGETS HINT", "", "a server forgets, and a hint from a clock lifts its counter again"),
    Variant(
        "quorum_fence",
        "TO_VOTERS NO_COMPARE VANISH",
        "",
        "no look at the counter will do if no request is ever carried out twice",
    ),
    Variant("quorum_fence", "CLIENTS=3 NAIVE", "all_used", "the highest is written back to any majority, whoever has the key"),
    Variant(
        "quorum_fence",
        "TO_VOTERS NO_COMPARE VANISH COPIES",
        "all_used",
        "no look at the counter: an old answer and a new grant",
    ),
    Variant(
        "quorum_fence", "NO_COMPARE VANISH", "all_used", "the same, asked of all servers: one that grants late confirms, too"
    ),
    Variant("quorum_fence", "COPIES COUNT_COPIES", "below", "a second answer of one server counts as a second vote"),
    Variant("quorum_fence", "ONE_CONFIRM VANISH", "all_used", "one confirmation is taken for enough"),
    Variant("quorum_fence", "FORGETS", "below", "a server forgets its counter, and nothing lifts it again"),
    Variant("quorum_amnesia", "", "", "the guard: servers forget twice, in three ways"),
    Variant("quorum_amnesia", "NO_GUARD", "left", "who has forgotten votes at once"),
    Variant("quorum_amnesia", "SHORT_QUARANTINE", "left", "it is shut for less than the longest lease"),
    Variant("quorum_amnesia", "AT_CONNECTION", "left", "it is looked at when a connection opens: a flush breaks none"),
    Variant(
        "quorum_amnesia", "NO_RUN_ID", "left", "the marker does not name the run: the end of the log is lost, the marker is not"
    ),
    Variant("quorum_amnesia", "LONGER_LEASE", "left", "somebody's lease is longer than the quarantine, and not refused"),
    Variant("quorum_amnesia", "RENEW_CREATES", "left", "a renewal votes where its key is gone"),
    Variant("timestamp", "", "", "the timestamp lock: late requests, lost answers, equal values"),
    Variant("timestamp", "AHEAD", "until", "a clock is ahead: it steals a live lock. Clocks that agree are an assumption"),
    Variant("timestamp", "DELETE_FIRST", "until", "who sees that it is over deletes the key, and starts again"),
    Variant("timestamp", "PLAIN_GETSET", "until", "who loses the race late writes an older time over the winner's"),
    Variant("timestamp", "CLAIM", "until", "no answer, but one's own value in the key: it may be somebody else's"),
    Variant("timestamp", "BLIND", "until", "a late release deletes whatever is there"),
    Variant("timestamp", "RESEND", "until", "a release without an answer is sent again: one copy may come late"),
    Variant("schedule", "", "", "ticks of a job: late requests, lost answers, a crash, a run that is cut short"),
    Variant("schedule", "LOSSES=2", "", "the same, and two answers are lost"),
    Variant("schedule", "TICKS=3", "", "three ticks"),
    Variant("schedule", "NO_CLAIM", "begun", "nobody compares the last tick: two processes claim the same one"),
    Variant("schedule", "NO_NUMBER", "last==", "requests have no number: a late copy takes a run that nobody knows of"),
    Variant("schedule", "EARLY", "begun", "a tick is claimed before it is due: one whose clock is ahead has done with it"),
    Variant("schedule", "FORGETS_WHO", "last==", "who asks again is not known by his token: his run waits for somebody else"),
    Variant("schedule", "NEW_TOKEN", "last==", "without an answer a new token is taken: the run under the old one is nobody's"),
    Variant("schedule", "BLIND_END", "begun", "the end of a run does not say of which: it ends another one"),
    Variant("lock_local_passing", "", "", "three threads pass a lease on, another process waits"),
    Variant("lock_local_passing", "NO_DEADLINE", "has_stopped||", "passed on without a look at what is left of the lease"),
    Variant("lock_local_passing", "AFTER_LOSS", "next>highest", "the lease was lost, and is passed on all the same"),
    Variant("lock_local_passing", "NO_BOUND", "passes<=", "passed on for as long as somebody of the process wants it"),
    Variant("lock_local_passing", "NO_LIMIT", "waited<=", "no limit in time: the message that another one waits was lost"),
    Variant("lock_local_passing", "BEYOND_BLOCK", "highest", "fences are drawn beyond the end of the block"),
    Variant("lock_local_passing", "LATE_BLOCK", "highest", "the server learns of the used fences when the lock is given back"),
    Variant("lock_local_passing", "FENCE_AGAIN", "highest", "the fence of a cancelled pass is used again"),
    Variant("lock_local_passing", "DROPPED_PASS", "stopped||", "a thread that is cancelled as it is passed the lock keeps it"),
    Variant("ticket", "", "", "a lock handed over by a ticket that two redeem, with late copies of all requests"),
    Variant("ticket", "NO_COMPARE", "revoked", "a ticket is exchanged for the lock, whoever has it"),
    Variant("ticket", "TAKES_FREE", "revoked", "a ticket takes the lock when it is free, used or not"),
    Variant("ticket", "GIVER_NOT_DEAD", "revoked", "the giver can take the lock again, and makes the ticket once more"),
    Variant("ticket", "FOR_THE_DEAD", "revoked", "who has given up redeems the ticket by a late copy"),
    Variant("ticket", "NOTHING_TAKEN_BACK", "revoked", "the giver gets no answer, and leaves a ticket behind"),
    Variant("ticket", "NO_EXTEND", ">top", "who asks again counts from then, and the server from the first time"),
    Variant("ticket", "FROM_ANSWER", ">top", "the lease of who redeems it counts from the answer"),
    Variant("ticket", "SAME_FENCE", ">top", "who redeems it gets the giver's fence"),
    Variant(
        "single_flight", "", "", "a value that is loaded, stored, deleted and invalidated, with late copies of all requests"
    ),
    Variant("single_flight", "NO_LEASE", "acked", "who has lost his lease stores what he has loaded"),
    Variant(
        "single_flight",
        "NO_BOUND",
        "acked",
        "the same token stores under a later lease what it has loaded under an earlier one",
    ),
    Variant("single_flight", "LEAVES_LEASE", "acked", "a deletion leaves the loader his lease"),
    Variant("single_flight", "FLOOR_BEHIND", "acked", "an invalidation does not cover the last fence that was issued"),
    Variant("single_flight", "READS_VOID", "acked", "a value is found whatever its tag's floor is"),
    Variant(
        "single_flight", "FENCE_AT_LANDING", "acked", "the fence is drawn when the value is stored, not when its load begins"
    ),
    Variant("single_flight", "PUTS TRIES=4", "", "the same, and a new version is also put there; whoever puts it may give up"),
    Variant("single_flight", "PUTS PUT_AT_ONCE", "acked", "a version is put there with one request: a late copy puts it again"),
    Variant("single_flight", "PUTS PUT_LEAVES_OLDER", "acked", "a put that is refused leaves the older value there"),
    Variant("rendezvous_latch", "", "", "three calls, late copies of all of them, one who waits; it is set back once"),
    Variant("rendezvous_latch", "NO_MEMORY", "left", "calls are not remembered: a copy counts again"),
    Variant("rendezvous_latch", "LEVEL_ONLY", "at!=", "who waits looks if it is open now, not if it was"),
    Variant("rendezvous_latch", "LOOKS_THEN_LISTS", "at!=", "who waits is listed after he has looked, not at the same time"),
    Variant("rendezvous_latch", "NO_TELL", "at!=", "who waits is not told"),
    Variant("rendezvous_latch", "BELIEVES", "since", "who waits believes any message, and does not look"),
    Variant(
        "rendezvous_barrier", "", "", "five visitors, three at a time, late copies; one leaves, one dies, it is reset once"
    ),
    Variant("rendezvous_barrier", "NO_REVOKE", "at[i]!=", "who leaves is forgotten: a late copy of his request has a place"),
    Variant("rendezvous_barrier", "REFUSES_ONLY", "at[i]!=", "who was told that it is broken is forgotten: a late copy comes"),
    Variant("rendezvous_barrier", "COUNTS_COPIES", "n==", "who asks again counts twice"),
    Variant(
        "rendezvous_barrier", "FORGETS", "passed", "who went on is forgotten: who looks only then is told that it is broken"
    ),
    Variant("rendezvous_barrier", "NO_DEADLINE", "live&&dead", "a place lasts for ever: the others wait for a dead one"),
]


class Result(NamedTuple):
    """What came out."""

    holds: bool
    broken: str
    """The assertion that was violated."""
    states: int
    seconds: float
    """Of the search, without the time to compile it."""
    trouble: str = ""


def build(variant: Variant, folder: Path) -> str:
    """Compile a variant in this folder; answers what was wrong with that."""
    defines = [f"-D{define}" for define in variant.defines.split()]
    for command in (
        ["spin", "-a", *defines, str(HERE / f"{variant.model}.pml")],
        # Wrong variants are soon found wrong: quicker without optimising.
        [
            "gcc",
            "-O0" if variant.wrong else "-O2",
            "-w",
            "-DSAFETY",
            "-DNOREDUCE",
            "-DREVERSE",
            f"-DMEMLIM={MEMORY_MB}",
            "-o",
            "pan",
            "pan.c",
        ],
    ):
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode or "rror" in done.stdout:
            return (done.stdout + done.stderr).strip()
    return ""


def search(folder: Path) -> Result:
    """Go through all states of a compiled variant, or until an assertion is violated."""
    start = time.monotonic()
    done = subprocess.run(["./pan", f"-m{DEPTH}"], cwd=folder, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - start
    text = done.stdout
    errors = re.search(r"errors: (\d+)", text)
    states = re.search(r"^ *([\d.e+]+) states, stored", text, re.MULTILINE)
    broken = re.search(r"assertion violated +(.+) \(at depth", text)
    other = re.search(r"^pan:1: (?!assertion).*", text, re.MULTILINE)
    if errors is None or states is None:
        return Result(False, "", 0, seconds, (text + done.stderr).strip()[-500:])
    trouble = other[0] if other else ""
    if errors[1] == "0" and ("max search depth too small" in text or "Search not completed" in text):
        trouble = "the search was not complete"
    found = "assert" + broken[1].replace(" ", "") if broken else ""
    return Result(errors[1] == "0", found, int(float(states[1])), seconds, trouble)


def check(variant: Variant) -> Result:
    with tempfile.TemporaryDirectory(prefix="models-") as folder:
        trouble = build(variant, Path(folder))
        return Result(False, "", 0, 0.0, trouble) if trouble else search(Path(folder))


def as_expected(variant: Variant, result: Result) -> bool:
    if result.trouble:
        return False
    return not result.holds and variant.breaks in result.broken if variant.wrong else result.holds


def lines(variants: list[Variant], results: Iterator[Result]) -> Iterator[str]:
    """The table, a line as soon as it is known; the last says how it ended, and begins with ok if it is as expected."""
    yield f"{'model':14} {'variant':34} {'expected':9} {'got':6} {'states':>10} {'seconds':>8}"
    states = 0
    bad = 0
    for variant, result in zip(variants, results, strict=True):
        expected, got = "fails" if variant.wrong else "holds", "holds" if result.holds else "fails"
        name = f"{variant.model:14} {variant.defines or '(as it is)':34}"
        yield f"{name} {expected:9} {got:6} {result.states:10,} {result.seconds:8.1f}"
        states += result.states
        if not as_expected(variant, result):
            bad += 1
            yield f"  NOT AS EXPECTED: {result.trouble or result.broken or 'nothing was violated'}"
    yield f"{'ok' if not bad else 'FAILED'}: {len(variants) - bad} of {len(variants)} as expected, {states:,} states"


def show(variant: Variant) -> None:
    """The steps of a wrong variant to where it fails."""
    with tempfile.TemporaryDirectory(prefix="models-") as name:
        folder = Path(name)
        trouble = build(variant, folder) or search(folder).trouble
        trail = next(folder.glob("*.trail"), None)
        if trouble or trail is None:
            sys.exit(trouble or "it does not fail")
        defines = [f"-D{define}" for define in variant.defines.split()]
        model = str(HERE / f"{variant.model}.pml")
        subprocess.run(["spin", *defines, "-k", str(trail), "-p", "-g", model], cwd=folder, check=False)


def main(arguments: list[str]) -> int:
    for tool in ("spin", "gcc"):
        if shutil.which(tool) is None:
            print(f"{tool} is not installed (Debian, Ubuntu: apt-get install spin gcc)", file=sys.stderr)
            return 1
    if arguments[:1] == ["--show"]:
        wanted = (arguments[1], " ".join(arguments[2:]))
        show(next(variant for variant in VARIANTS if (variant.model, variant.defines) == wanted))
        return 0
    models = {variant.model for variant in VARIANTS}
    if not set(arguments) <= models:
        print(f"usage: check.py [MODEL ...], of {', '.join(sorted(models))}; check.py --show MODEL DEFINES", file=sys.stderr)
        return 2
    chosen = [variant for variant in VARIANTS if not arguments or variant.model in arguments]
    start = time.monotonic()
    line = ""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for line in lines(chosen, pool.map(check, chosen)):
            print(line, flush=True)
    print(f"{time.monotonic() - start:.0f} s, {AT_ONCE} at a time")
    return 0 if line.startswith("ok") else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
