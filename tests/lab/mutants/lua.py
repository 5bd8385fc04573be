"""The operators on Lua: what each makes of the tokens of a script."""

from __future__ import annotations

import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from itertools import pairwise

from lab.mutants.operators import SWAPPED, WORDS, Change, Nth, Place, nth, only, scaled

TOKEN = re.compile(
    r"""(?P<blank>\s+|--\[\[.*?\]\]|--[^\n]*)
    |(?P<word>(?:and|break|do|else|elseif|end|false|for|function|if|in|local|nil|not|or|repeat|return|then|true|until|while)\b)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<number>0[xX][0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?)
    |(?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*")
    |(?P<sign>\.\.\.|\.\.|==|~=|<=|>=|.)""",
    re.VERBOSE | re.DOTALL,
)
VALUES = {"nil", "true", "false", "end"}
BLOCKS = {"function", "if", "do", "repeat"}
OPENING, CLOSING = {"(", "[", "{"}, {")", "]", "}"}
BEHIND = {";", "break", "do", "else", "elseif", "end", "for", "if", "in", "local", "repeat", "return", "then", "until", "while"}
"""Characters behind an expression that do not belong to it."""
CONTRARY = {"==": "~=", "~=": "==", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
SHIFTED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
SIGNS = {"+": "-", "-": "+", "*": "/", "/": "*"}
_OR = {"or", ",", "="}
_AND = _OR | {"and"}
_SUM = _AND | set(CONTRARY) | {"+", "-", ".."}
_PRODUCT = _SUM | {"*", "/", "%"}
STRONGER = {"or": _OR, "and": _AND, "+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT}
"""The ends of an operand, for each operator."""


@dataclass(frozen=True)
class Token:
    kind: str
    text: str
    start: int
    end: int
    function: str
    """Which function it stands in; empty in none."""

    @property
    def plain(self) -> bool:
        """Whether it is a name of the script's own."""
        return self.kind == "name"

    @property
    def ends_value(self) -> bool:
        """Whether an expression may end with it."""
        return self.plain or self.kind in {"number", "string"} or self.text in CLOSING | VALUES


def tokens(source: str) -> list[Token]:
    """Without blanks and comments."""
    found: list[Token] = []
    blocks: list[str | None] = []
    for match in TOKEN.finditer(source):
        kind, text = str(match.lastgroup), match.group()
        if kind == "blank":
            continue
        if len(found) > 1 and found[-2].text == "local" and found[-1].text == "function":
            blocks[-1] = text
        if text in BLOCKS:
            blocks.append(None)
        elif text in {"end", "until"} and blocks:
            blocks.pop()
        function = next((name for name in reversed(blocks) if name), "")
        found.append(Token(kind, text, match.start(), match.end(), function))
    return found


def places(source: str) -> Iterator[Place]:
    """Return the places at which each operator can act, in order."""
    every = tokens(source)
    found = [*_in_conditions(source, every), *_in_statements(every), *_in_expressions(every), *_in_calls(source, every)]
    yield from sorted(found, key=lambda place: (place.start, place.end))


def _place(operator: str, first: Token, last: Token, new: str) -> Place:
    return Place(first.function, operator, first.start, last.end, new)


def _in_conditions(source: str, every: list[Token]) -> Iterator[Place]:
    for number, token in enumerate(every):
        if token.text in {"if", "elseif", "while"}:
            condition = every[number + 1 : _behind(every, number + 1)]
            texts, ends = {each.text for each in condition}, (condition[0], condition[-1])
            if texts & {"and", "or"} or not texts & {*CONTRARY, "not"}:
                yield _place("negated", *ends, f"not ({source[condition[0].start : condition[-1].end]})")
            if token.text != "while":
                yield _place("always", *ends, "true")
            yield _place("never", *ends, "false")


def _in_statements(every: list[Token]) -> Iterator[Place]:
    """Calls, assignments to what has a value already, and returns. No expression has a name behind a value."""
    for number, token in enumerate(every):
        begins = number == 0 or every[number - 1].text in {"then", "do", "else", "repeat", ";"} or every[number - 1].ends_value
        if begins and (token.plain or token.text == "return"):
            yield _place("dropped", token, every[_behind(every, number + 1) - 1], "")


def _of_a_token(token: Token) -> Iterator[tuple[str, str]]:
    text = token.text
    if text in CONTRARY:
        yield "negated", CONTRARY[text]
    if text in SHIFTED:
        yield "boundary shifted", SHIFTED[text]
    if text == "not":
        yield "negated", ""
    if text in {"true", "false"}:
        yield "constant changed", "false" if text == "true" else "true"
    if token.kind == "string" and text[1:-1] in WORDS:
        yield "unit swapped", f"'{WORDS[text[1:-1]]}'"
    if token.kind == "number":
        value = float(text) if re.search("[.eE]", text) else int(text, 0)
        if value:
            yield "unit swapped", f"{scaled(value):.15g}"
        yield "one more", f"{value + 1:.15g}"
        yield "one less", f"{value - 1:.15g}"


def _in_expressions(every: list[Token]) -> Iterator[Place]:
    for number, token in enumerate(every):
        text, before = token.text, every[number - 1] if number else token
        for operator, new in _of_a_token(token):
            yield _place(operator, token, token, new)
        if text in SWAPPED and before.text == ".":
            yield _place("constant changed", token, token, SWAPPED[text])
        if text in {"and", "or"}:
            yield _place("operand dropped", every[_before(every, number - 1, STRONGER[text]) + 1], token, "")
        if text in {"and", "or"} or (text in SIGNS and before.ends_value):
            first = number + 1 + (every[number + 1].text == "-")
            last = every[_behind(every, first, STRONGER[text]) - 1]
            yield _place("operand dropped" if text in {"and", "or"} else "term dropped", token, last, "")
        if text in SIGNS and before.ends_value:
            yield _place("sign swapped", token, token, SIGNS[text])


def _in_calls(source: str, every: list[Token]) -> Iterator[Place]:
    for number, token in enumerate(every):
        before = every[number - 1]
        if token.text == "(" and before.plain and before.text not in {"min", "max"} and every[number - 2].text != "function":
            command = before.text in {"call", "pcall"}  # its name stays where it is
            for (first, last), (third, fourth) in pairwise([*_arguments(every, number)][command:]):
                one, other = source[first.start : last.end], source[third.start : fourth.end]
                yield _place("exchanged", first, fourth, other + source[last.end : third.start] + one)


def _behind(every: list[Token], number: int, stops: AbstractSet[str] = frozenset()) -> int:
    """The first token behind the expression, or the list of them, that goes on at this one; or behind a part of it, if it is to
    end before some operators."""
    depth = 0
    while number < len(every):
        token = every[number]
        if depth == 0 and (token.text in CLOSING | BEHIND | stops or (token.plain and every[number - 1].ends_value)):
            return number
        depth += (token.text in OPENING | BLOCKS) - (token.text in CLOSING | {"end", "until"})
        number += 1
    return number


def _before(every: list[Token], number: int, stops: set[str]) -> int:
    """The same to the left."""
    depth = 0
    while number >= 0:
        text = every[number].text
        if depth == 0 and text in OPENING | BEHIND | stops:
            return number
        depth += (text in CLOSING) - (text in OPENING)
        number -= 1
    return number


def _arguments(every: list[Token], opening: int) -> Iterator[tuple[Token, Token]]:
    """The first and the last token of each argument of a call."""
    at = opening
    while every[at].text in {"(", ","} and every[at + 1].text != ")":
        first, at = at + 1, _behind(every, at + 1, {","})
        yield every[first], every[at - 1]


def plant(source: str, function: str, change: Change) -> str:
    """The source with this change."""
    if isinstance(change, Nth):
        return nth(places(source), function, change).planted(source)
    old = [token.text for token in tokens(change.old)]
    every = tokens(source)
    runs = (every[first : first + len(old)] for first in range(len(every)))
    found = [
        Place(function, "", run[0].start, run[-1].end, change.new)
        for run in runs
        if [token.text for token in run] == old and run[0].function == function
    ]
    return only(found, change).planted(source)
