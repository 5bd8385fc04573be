"""The change of a defect: by an operator, at the nth place of a function where it can act, or of a text into another one.

The operators are few, and the same for Python and Lua:

negated            a condition, or a comparison, becomes its opposite
boundary shifted   < becomes <=, and so on
always, never      a condition is always true, or always false
operand dropped    an operand of `and` or `or` does not count
term dropped       only the first term of a sum, difference, product or quotient is left
sign swapped       + becomes -, * becomes /, and so on
unit swapped       a number is a thousand times too large or too small; PX becomes EX, PTTL becomes TTL
one more, one less a number is changed by one
constant changed   true becomes false, min becomes max, and so on
time swapped       the time at which an answer arrived replaces that at which its request was sent
exchanged          two neighbouring arguments are exchanged
dropped            a statement is left out, unless a name would have no value then
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Operator = Literal[
    "negated",
    "boundary shifted",
    "always",
    "never",
    "operand dropped",
    "term dropped",
    "sign swapped",
    "unit swapped",
    "one more",
    "one less",
    "constant changed",
    "time swapped",
    "exchanged",
    "dropped",
]

WORDS = {
    "PX": "EX",
    "EX": "PX",
    "PEXPIRE": "EXPIRE",
    "EXPIRE": "PEXPIRE",
    "PTTL": "TTL",
    "PEXPIREAT": "EXPIREAT",
    "SETEX": "PSETEX",
}
"""Of the strings of commands: which have the other unit."""

SWAPPED = {"min": "max", "max": "min", "floor": "ceil", "ceil": "floor", "any": "all", "all": "any"}
TIMES = {"sent": "came", "came": "sent"}


@dataclass(frozen=True)
class Nth:
    """The place of an operator in its function, counted from 1."""

    operator: Operator
    number: int = 1


@dataclass(frozen=True)
class Instead:
    """Replace a text of the function by another. Blanks, line ends and comments do not count.

    If the text occurs several times, ``number`` selects one of them.
    """

    old: str
    new: str
    number: int = 1


Change = Nth | Instead


@dataclass(frozen=True)
class Place:
    """The change that an operator makes in a source: the text from ``start`` to ``end`` becomes ``new``."""

    function: str
    """Its qualified name; empty for what stands in none."""
    operator: str
    start: int
    end: int
    new: str

    def planted(self, source: str) -> str:
        return source[: self.start] + self.new + source[self.end :]


def scaled(number: float) -> float:
    """A number in the unit next to its own."""
    return number // 1000 if number and number % 1000 == 0 else number * 1000


def nth(places: Iterable[Place], function: str, change: Nth) -> Place:
    found = [place for place in places if (place.function, place.operator) == (function, change.operator)]
    if not 0 < change.number <= len(found):
        raise LookupError(f"{function or 'the source'} has {len(found)} places for {change.operator!r}, not {change.number}")
    return found[change.number - 1]


def only(found: list[Place], change: Instead) -> Place:
    if len(found) < change.number or (len(found) > 1 and change.number == 1):
        raise LookupError(f"{change.old!r} stands {len(found)} times")
    return found[change.number - 1]
