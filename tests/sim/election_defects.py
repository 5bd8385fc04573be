"""Deliberate defects of leader election, see `mutations`."""

from __future__ import annotations

from functools import partial

from sim.script_defects import Mutation


def _defect(where: str, name: str, file: str, old: str, new: str, breaks: str) -> Mutation:
    return Mutation(name, where.format(file), old, new, breaks, of="election")


_lua = partial(_defect, "_lua/{}.lua")
_core = partial(_defect, "_core/{}.py")
_face = partial(_defect, "{}.py")

ELECTION = (
    _lua("proclaim-tells-nobody", "proclaim", "tell(observers)\nreturn {1}", "return {1}", "observers are not told who leads"),
    _lua("observer-not-listed", "observe", "if hope ~= '' then", "if false then", "observers are not among those who are told"),
    _lua(
        "observer-sees-the-one-before",
        "observe",
        "if fields[2] ~= holder then return {2, remaining} end\n",
        "",
        "while the next one has not said who he is, observers see the one before",
    ),
    _lua(
        "transfer-to-anyone", "transfer", "    if name == wanted then\n", "    if true then\n", "the first in line is given it"
    ),
    _lua(
        "names-stay-in-line",
        "_line",
        "'at:' .. token, 'as:' .. token)",
        "'at:' .. token)",
        "who leaves the line leaves his name behind",
    ),
    _face(
        "resigns-in-silence",
        "_leader",
        "        await leading.vacate(self._attempt.office)\n",
        "",
        "observers are not told that the leader has resigned",
    ),
    _face(
        "believes-while-handing-over",
        "_leader",
        "        tenure.over = True  # while",
        "        pass  # while",
        "who hands over believes to lead until he is answered",
    ),
    _core(
        "elected-counted-from-answer",
        "leading",
        "deadline = answer.sent + ttl",
        "deadline = answer.came + ttl",
        "the lease of a leader counts from when the answer came",
    ),
    _core(
        "observer-sleeps-on",
        "leading",
        "contact + min(view.remaining + AGAIN, SPAN)",
        "contact + SPAN",
        "observers do not look when the lease of the leader ends",
    ),
)
