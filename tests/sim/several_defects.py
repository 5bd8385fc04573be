"""Deliberate defects of several locks at once, see `mutations`."""

from __future__ import annotations

from sim.script_defects import Mutation


def _defect(name: str, file: str, old: str, new: str, breaks: str) -> Mutation:
    return Mutation(name, file, old, new, breaks, of="several")


CORE, GATHER, SCATTER = "_core/multilock.py", "_lua/gather.lua", "_lua/scatter.lua"

SEVERAL = (
    _defect(
        "several-in-the-order-given",
        CORE,
        "return sorted(several, key=place)",
        "return list(several)",
        "several locks are taken in the order in which they are named",
    ),
    _defect(
        "several-taken-in-part",
        GATHER,
        "then return {i} end",
        "then break end",
        "a run that is to take all or none takes those before the first that is not free",
    ),
    _defect(
        "several-with-dead-tokens",
        GATHER,
        "if dead or type(waiters)",
        "if type(waiters)",
        "a late copy of a request for several takes what was given up",
    ),
    _defect(
        "several-without-expiry-of-the-state",
        GATHER,
        "  keep_alive(state, queue, fields[4], ttl, now)\n",
        "",
        "the state of a lock that was taken with others stays for ever",
    ),
    _defect(
        "several-keep-the-first",
        CORE,
        "        if blocked is not None:\n            await undo(parts)\n",
        "",
        "when time runs out for one lock, those before it stay taken",
    ),
    _defect(
        "several-undo-the-last",
        CORE,
        "        finally:\n            await undo(parts[:-1])",
        "        finally:\n            pass",
        "who is cancelled gives back only the last of several locks",
    ),
    _defect(
        "several-cancelled-while-given-back",
        CORE,
        "        await undo(parts)\n        raise\n    if wrong",
        "        raise\n    if wrong",
        "who is cancelled while he gives several locks back keeps those whose turn had not come",
    ),
    _defect(
        "several-unknown-is-no",
        CORE,
        "[doubt or isinstance(error, Unknown) for doubt in doubts]",
        "doubts",
        "a request for several locks that got no answer counts as not done",
    ),
    _defect(
        "several-counted-from-answer",
        CORE,
        "deadline = answer.sent + spec",
        "deadline = answer.came + spec",
        "the leases of several locks count from when the answer came",
    ),
    _defect(
        "several-with-one-lost",
        CORE,
        "        if any(part.lost for part in parts[:number]):\n            raise PartLost\n",
        "",
        "a lock that was lost while others were waited for counts as held",
    ),
    _defect(
        "several-given-back-to-nobody",
        SCATTER,
        "if waiters > 0 and answer ~= -1 then hand_over(lock, state, queue, now_us(), false, fields[1]) end",
        "",
        "who gives several locks back leaves them to the others to find out",
    ),
    _defect(
        "several-given-back-whoever-has-them",
        SCATTER,
        "if holder == ARGV[2 * i - 1] then",
        "if holder then",
        "several locks are deleted, whoever has them",
    ),
    _defect(
        "several-ahead-of-their-own-process",
        CORE,
        "if any(gate.who is not None or gate.tenure is not None for gate in gates):",
        "if False:",
        "who wants several asks the server, although others of his process have one of them, or wait for it",
    ),
)
