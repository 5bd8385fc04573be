"""Check that every model holds, and that every wrong variant of it fails, with spin and gcc.

python3 models/check.py                                 check all, and print a table; exit code 1 if a result is not as expected
python3 models/check.py lock_handover lock_lease        check only these models
python3 models/check.py --show lock_handover NO_HELP    show step by step how a wrong variant fails

spin makes a C program of each variant, gcc compiles it, and the program searches all states. Nothing else of the project is
needed.
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
"""Maximum number of steps of a run. A search that needs more is reported as not complete."""
MEMORY_MB = 4000


class Variant(NamedTuple):
    """A model with some #defines, and the expected result."""

    model: str
    defines: str
    breaks: str
    """Text that the violated assertion must contain, without spaces; empty: all assertions must hold."""
    text: str
    """Description of the variant, or of what is wrong with it."""

    @property
    def wrong(self) -> bool:
        return bool(self.breaks)


VARIANTS = [
    Variant("lock_lease", "", "", "a lease, its renewals, late copies, a slow clock"),
    Variant("lock_lease", "FENCES", "", "fences and the fence check; the server loses its data once"),
    Variant("lock_lease", "NO_MARGIN", "clock", "no margin is taken off the lease for clocks of different speed"),
    Variant("lock_lease", "FROM_ANSWER", "clock", "the lease counts from the reply, not from the request"),
    Variant(
        "lock_lease", "LATE_ANSWER", "mark", "a reply read after the deadline is believed, though others have had the lock"
    ),
    Variant("lock_lease", "NO_NUMBER", "clock", "renewals have no number: a late copy shortens the lease"),
    Variant("lock_lease", "NO_SHORTEN", "clock", "a shorter lease is requested, and the old one believed until the reply"),
    Variant("lock_lease", "RENEW_ADDS", "expires<=", "a renewal adds to what is left: with each copy the lock lasts longer"),
    Variant("lock_lease", "RENEW_CREATES", "holder!=", "a renewal writes a lock again that is gone"),
    Variant("lock_lease", "NO_COMPARE", "clock", "release does not compare the token: a late copy frees another client's lock"),
    Variant("lock_lease", "JUMP", "clock", "the server's clock steps forward: no lease survives that, on any server"),
    Variant("lock_lease", "SAME_FENCE", "fence>issued", "a new holder gets the fence of the last one"),
    Variant("lock_lease", "FENCES COUNTER_ONLY", "fence>issued", "fences are counted, and the count is lost"),
    Variant(
        "lock_lease",
        "FENCES CLOCK_ONLY",
        "fence>issued",
        "fences are the time, and two grants fall into one grain of the clock",
    ),
    Variant("lock_lease", "FENCES NO_GUARD", "written", "nothing checks the fence: a stopped holder's write arrives late"),
    Variant("lock_handover", "", "", "two processes, the first of which tries twice, and one fault"),
    Variant("lock_handover", "ATTEMPTS=1 FAULTS=2", "", "two processes, and two faults"),
    Variant("lock_handover", "PROCESSES=3 ATTEMPTS=1 FAULTS=0", "", "three processes, no fault"),
    Variant("lock_handover", "NO_REFRESH", "idle", "waiters send no refreshes: a lost message is never replaced"),
    Variant(
        "lock_handover", "NO_HELP", "idle", "refresh does not hand over a free lock: its last holder died, so nothing does"
    ),
    Variant("lock_handover", "HEAD_ONLY", "idle", "all wait for the first waiter, dead or not"),
    Variant("lock_handover", "NO_CLAIM_WINDOW", "idle", "a hand-over writes a lock without expiry, and the winner is dead"),
    Variant(
        "lock_handover", "LEAVES_QUEUE_ONLY", "ended", "giving up only leaves the queue: a lock handed over meanwhile stays"
    ),
    Variant("lock_handover", "NO_REVOKE", "ended", "the token is not revoked: a late copy joins the queue for nobody"),
    Variant("lock_handover", "REFRESH_INSERTS", "ended", "refresh creates a lost place: a late one does it for nobody"),
    Variant(
        "lock_handover",
        "NO_COMPARE",
        "holder==token",
        "release does not compare the token: sent again, it frees the next holder's lock",
    ),
    Variant(
        "lock_handover", "SAME_TOKEN", "holder==token", "an attempt uses the token of the previous one: a late release frees it"
    ),
    Variant("lock_handover", "FROM_READING", "holder==token", "a hand-over counts from when its message was read"),
    Variant("lock_handover", "FAULTS=2 NO_FENCE_CHECK", "holder==token", "a message with an old fence is believed"),
    Variant("permit", "", "", "two clients that want one permit, one that wants both, and two faults"),
    Variant("permit", "TRIES=2 FAULTS=1", "", "the same, each tries twice, and one fault"),
    Variant("permit", "LIMIT=3", "", "three permits: two clients that want one, one that wants all"),
    Variant("permit", "BARGE", "overtaken", "a newcomer takes free permits, though a client waits that wants more"),
    Variant("permit", "NO_EXPIRY", "idle", "expired permits are not removed before counting"),
    Variant("permit", "NO_HELP", "idle", "refresh grants no free permits: a lost message is never replaced"),
    Variant("permit", "RELEASE_BLIND", "used==", "release counts down without a check that anything is held"),
    Variant("permit", "FROM_READING", "<=2", "a hand-over counts from when its message was read"),
    Variant("permit", "DOWNGRADE_LATE", "<=2", "the server treats a writer as a reader before the writer knows"),
    Variant("multilock", "", "", "two clients that want both locks, each in another order, and one that wants one of them"),
    Variant("multilock", "GIVEN_ORDER", "state[0]==4", "the locks are acquired in the order in which they are named"),
    Variant("multilock", "IN_PART", "state[i]!=2", "free locks are acquired although one is busy, and the reply is no"),
    Variant("multilock", "KEEPS_FIRST", "state[i]!=2", "a client that gives up keeps the first lock"),
    Variant("election", "", "", "two candidates who take turns, one observer"),
    Variant("election", "NO_COMPARE", "top", "a late proclamation of an old leader counts, whichever client has the lock"),
    Variant("election", "NO_TELL", "asleep", "a new leader notifies nobody"),
    Variant("election", "LISTED_AFTER", "asleep", "an observer looks first, and is listed after that"),
    Variant("election", "BELIEVES_ON", "left[0]>0", "a leader that hands over believes that it leads until the reply"),
    Variant(
        "quorum_fence",
        "VANISH COPIES",
        "",
        "a majority confirms each fence; keys vanish at any time, and requests are repeated",
    ),
    Variant("quorum_fence", "CLIENTS=3", "", "a majority confirms each fence; three clients"),
    Variant("quorum_fence", "FORGETS HINT", "", "a server loses its data, and a hint from a clock raises its counter again"),
    Variant(
        "quorum_fence",
        "TO_VOTERS NO_COMPARE VANISH",
        "",
        "the counter need not be compared if no request is ever carried out twice",
    ),
    Variant(
        "quorum_fence",
        "CLIENTS=3 NAIVE",
        "all_used",
        "the highest is written back to any majority, whichever client has the key",
    ),
    Variant(
        "quorum_fence",
        "TO_VOTERS NO_COMPARE VANISH COPIES",
        "all_used",
        "the counter is not compared: an old reply and a new grant",
    ),
    Variant(
        "quorum_fence", "NO_COMPARE VANISH", "all_used", "the same, asked of all servers: one that grants late also confirms"
    ),
    Variant("quorum_fence", "COPIES COUNT_COPIES", "below", "a second reply of one server counts as a second vote"),
    Variant("quorum_fence", "ONE_CONFIRM VANISH", "all_used", "one confirmation is taken for enough"),
    Variant("quorum_fence", "FORGETS", "below", "a server loses its counter, and nothing raises it again"),
    Variant("quorum_amnesia", "", "", "the quarantine: servers lose data twice, in three ways"),
    Variant("quorum_amnesia", "NO_GUARD", "left", "a server that has lost its data votes at once"),
    Variant("quorum_amnesia", "SHORT_QUARANTINE", "left", "the quarantine is shorter than the longest lease"),
    Variant("quorum_amnesia", "AT_CONNECTION", "left", "clients look only when a connection opens: a flush breaks none"),
    Variant("quorum_amnesia", "NO_RUN_ID", "left", "the marker has no run id: the end of the log is lost, the marker is not"),
    Variant("quorum_amnesia", "LONGER_LEASE", "left", "a client's lease is longer than the quarantine, and not refused"),
    Variant("quorum_amnesia", "RENEW_CREATES", "left", "a renewal votes although its key is gone"),
    Variant("timestamp", "", "", "the timestamp lock: late requests, lost replies, equal values"),
    Variant("timestamp", "AHEAD", "until", "a clock is ahead: it steals a live lock. Clocks that agree are an assumption"),
    Variant(
        "timestamp", "DELETE_FIRST", "until", "a client that sees that the time has passed deletes the key, and starts again"
    ),
    Variant(
        "timestamp", "PLAIN_GETSET", "until", "a client that loses the race late overwrites the winner's time with an older one"
    ),
    Variant(
        "timestamp", "CLAIM", "until", "no reply, but the client's own value in the key: another client may have written it"
    ),
    Variant("timestamp", "BLIND", "until", "a late release deletes any lock"),
    Variant("timestamp", "RESEND", "until", "a release without a reply is sent again: one copy may arrive late"),
    Variant("schedule", "", "", "ticks of a job: late requests, lost replies, a crash, a run that is cut short"),
    Variant("schedule", "LOSSES=2", "", "the same, and two replies are lost"),
    Variant("schedule", "TICKS=3", "", "three ticks"),
    Variant("schedule", "NO_CLAIM", "begun", "the last tick is not compared: two processes claim the same one"),
    Variant("schedule", "NO_NUMBER", "last==", "requests have no number: a late copy claims a run that nobody knows of"),
    Variant("schedule", "EARLY", "begun", "a tick is claimed before it is due: by a process whose clock is ahead"),
    Variant(
        "schedule",
        "FORGETS_WHO",
        "last==",
        "a process that asks again is not recognized by its token: its run waits for another",
    ),
    Variant("schedule", "NEW_TOKEN", "last==", "without a reply a new token is used: nobody has the run under the old one"),
    Variant("schedule", "BLIND_END", "begun", "the end of a run does not name the run: it ends another one"),
    Variant("lock_local_passing", "", "", "three threads hand a lease on, another process waits"),
    Variant("lock_local_passing", "NO_DEADLINE", "has_stopped||", "handed on without a check of the rest of the lease"),
    Variant("lock_local_passing", "AFTER_LOSS", "next>highest", "the lease was lost, and is handed on all the same"),
    Variant("lock_local_passing", "NO_BOUND", "passes<=", "handed on for as long as a thread of the process wants it"),
    Variant("lock_local_passing", "NO_LIMIT", "waited<=", "no limit in time: the message that another process waits was lost"),
    Variant("lock_local_passing", "BEYOND_BLOCK", "highest", "fences are used beyond the end of the block"),
    Variant("lock_local_passing", "LATE_BLOCK", "highest", "the server learns of the used fences at the release"),
    Variant("lock_local_passing", "FENCE_AGAIN", "highest", "the fence of a cancelled thread is used again"),
    Variant(
        "lock_local_passing", "DROPPED_PASS", "stopped||", "a thread that is cancelled as the lock is handed on to it keeps it"
    ),
    Variant("ticket", "", "", "a lock handed over by a ticket that two clients redeem, with late copies of all requests"),
    Variant("ticket", "NO_COMPARE", "revoked", "a ticket is exchanged for the lock, whichever client has it"),
    Variant("ticket", "TAKES_FREE", "revoked", "a ticket acquires a free lock, used or not"),
    Variant("ticket", "GIVER_NOT_DEAD", "revoked", "the giver can acquire the lock again, and makes the ticket once more"),
    Variant("ticket", "FOR_THE_DEAD", "revoked", "an attempt that was given up redeems the ticket by a late copy"),
    Variant("ticket", "NOTHING_TAKEN_BACK", "revoked", "the giver gets no reply, and leaves a ticket behind"),
    Variant("ticket", "NO_EXTEND", ">top", "a client that asks again counts from then, and the server from the first time"),
    Variant("ticket", "FROM_ANSWER", ">top", "the lease of a redeemed lock counts from the reply"),
    Variant("ticket", "SAME_FENCE", ">top", "the client that redeems the ticket gets the giver's fence"),
    Variant(
        "single_flight", "", "", "a value that is loaded, stored, deleted and invalidated, with late copies of all requests"
    ),
    Variant("single_flight", "NO_LEASE", "acked", "a loader that has lost its lease stores its value"),
    Variant(
        "single_flight",
        "NO_BOUND",
        "acked",
        "a value loaded under an earlier lease is stored under a later one of the same token",
    ),
    Variant("single_flight", "LEAVES_LEASE", "acked", "a deletion leaves the loader its lease"),
    Variant("single_flight", "FLOOR_BEHIND", "acked", "an invalidation does not cover the last fence that was issued"),
    Variant("single_flight", "READS_VOID", "acked", "a value is found whatever the floor of its tag is"),
    Variant(
        "single_flight", "FENCE_AT_LANDING", "acked", "the fence is issued when the value is stored, not when its load begins"
    ),
    Variant("single_flight", "PUTS TRIES=4", "", "the same, and a writer also stores a new version; it may give up"),
    Variant("single_flight", "PUTS PUT_AT_ONCE", "acked", "a version is stored with one request: a late copy stores it again"),
    Variant("single_flight", "PUTS PUT_LEAVES_OLDER", "acked", "a set that is refused leaves the older value there"),
    Variant("rendezvous_latch", "", "", "three calls, late copies of all of them, one waiter; the latch is reset once"),
    Variant("rendezvous_latch", "NO_MEMORY", "left", "calls are not remembered: a copy counts again"),
    Variant("rendezvous_latch", "LEVEL_ONLY", "at!=", "a waiter asks whether the latch is open now, not whether it was"),
    Variant("rendezvous_latch", "LOOKS_THEN_LISTS", "at!=", "a waiter is listed after it has looked, not at the same time"),
    Variant("rendezvous_latch", "NO_TELL", "at!=", "the waiter is not notified"),
    Variant("rendezvous_latch", "BELIEVES", "since", "the waiter believes any message, and does not look"),
    Variant(
        "rendezvous_barrier", "", "", "five participants, three at a time, late copies; one leaves, one dies, it is reset once"
    ),
    Variant(
        "rendezvous_barrier",
        "NO_REVOKE",
        "at[i]!=",
        "a participant that leaves is forgotten: a late copy of its request has a place",
    ),
    Variant(
        "rendezvous_barrier",
        "REFUSES_ONLY",
        "at[i]!=",
        "a participant that was told of the breakage is forgotten: a late copy arrives",
    ),
    Variant("rendezvous_barrier", "COUNTS_COPIES", "n==", "a participant that asks again counts twice"),
    Variant(
        "rendezvous_barrier",
        "FORGETS",
        "passed",
        "the outcome is forgotten: one that passed and asks later is told that the barrier is broken",
    ),
    Variant("rendezvous_barrier", "NO_DEADLINE", "live&&dead", "a place lasts forever: the others wait for a dead participant"),
]


class Result(NamedTuple):
    """The result of one search."""

    holds: bool
    broken: str
    """The assertion that was violated."""
    states: int
    seconds: float
    """Seconds of the search, without the time to compile the program."""
    trouble: str = ""


def build(variant: Variant, folder: Path) -> str:
    """Compile a variant in ``folder``. Return the error message of spin or gcc; empty if there is none."""
    defines = [f"-D{define}" for define in variant.defines.split()]
    for command in (
        ["spin", "-a", *defines, str(HERE / f"{variant.model}.pml")],
        # A wrong variant fails early, so optimizing it would take longer than it saves.
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
    """Search all states of a compiled variant, or until an assertion is violated."""
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
    """Yield the lines of the table, each as soon as it is known. The last line begins with "ok" if all results are as
    expected."""
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
    """Print the steps of a wrong variant up to its failure."""
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
        known = ", ".join(sorted(models))
        print(f"usage: check.py [MODEL ...] or check.py --show MODEL DEFINES; MODEL is one of {known}", file=sys.stderr)
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
