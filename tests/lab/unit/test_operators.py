"""The effects of the operators of deliberate defects on a source, in Python and in Lua."""

from __future__ import annotations

from textwrap import dedent

import pytest

from lab.mutants import lua, python
from lab.mutants.operators import Change, Instead, Nth, Operator

PYTHON = dedent(
    """
    LIMIT = 3000

    class LocalQueue:
        def leave(self, now, answer):
            if self.open and now < answer.sent + LIMIT - 2:
                self.count -= 1  # one less
            elif not self.open:
                self.tell("PX", now)
            return min(now, 5) if now else None
    """
)
LUA = dedent(
    """
    local LIMIT = 3000  -- ms
    local function leave(now, sent)
      if open and (now < sent + LIMIT - 2 or now == 0) then
        redis.call('SET', key, now, 'PX', LIMIT)
        count = count - 1
      elseif not open then return nil end
      return math.min(now, 5)
    end
    if leave(1, 2) then return {1} end
    """
)


@pytest.mark.parametrize(
    ("operator", "number", "old", "new"),
    [
        ("negated", 1, "self.open and now < answer.sent + LIMIT - 2", "(not (self.open and now < answer.sent + LIMIT - 2))"),
        ("negated", 2, "now < answer.sent + LIMIT - 2", "(now >= answer.sent + LIMIT - 2)"),
        ("negated", 3, "not self.open", "self.open"),
        ("boundary shifted", 1, "now < answer.sent + LIMIT - 2", "(now <= answer.sent + LIMIT - 2)"),
        ("always", 2, "not self.open", "True"),
        ("never", 1, "self.open and now < answer.sent + LIMIT - 2", "False"),
        ("operand dropped", 1, "self.open and now < answer.sent + LIMIT - 2", "(now < answer.sent + LIMIT - 2)"),
        ("operand dropped", 2, "self.open and now < answer.sent + LIMIT - 2", "self.open"),
        ("term dropped", 1, "answer.sent + LIMIT - 2", "(answer.sent + LIMIT)"),
        ("sign swapped", 2, "answer.sent + LIMIT - 2", "(answer.sent - LIMIT) - 2"),
        ("one more", 1, "LIMIT - 2", "LIMIT - 3"),
        ("unit swapped", 3, '"PX"', "'EX'"),
        ("constant changed", 1, "min(", "max("),
        ("time swapped", 1, "answer.sent", "answer.came"),
        ("exchanged", 1, 'self.tell("PX", now)', "self.tell(now, 'PX')"),
        ("dropped", 1, "self.count -= 1", "pass"),
        ("dropped", 3, "return min(now, 5) if now else None", "pass"),
    ],
)
def test_operators_on_python(operator: Operator, number: int, old: str, new: str) -> None:
    assert python.plant(PYTHON, "LocalQueue.leave", Nth(operator, number)) == PYTHON.replace(old, new)


@pytest.mark.parametrize(
    ("operator", "number", "old", "new"),
    [
        (
            "negated",
            1,
            "open and (now < sent + LIMIT - 2 or now == 0)",
            "not (open and (now < sent + LIMIT - 2 or now == 0))",
        ),
        ("negated", 2, "now < sent", "now >= sent"),
        ("boundary shifted", 1, "now < sent", "now <= sent"),
        ("always", 1, "open and (now < sent + LIMIT - 2 or now == 0)", "true"),
        ("never", 2, "not open", "false"),
        ("operand dropped", 1, "open and (", " ("),
        ("operand dropped", 2, "and (now < sent + LIMIT - 2 or now == 0)", ""),
        ("operand dropped", 3, "now < sent + LIMIT - 2 or", ""),
        ("operand dropped", 4, "or now == 0", ""),
        ("term dropped", 1, "+ LIMIT", ""),
        ("sign swapped", 2, "LIMIT - 2", "LIMIT + 2"),
        ("one less", 1, "LIMIT - 2", "LIMIT - 1"),
        ("unit swapped", 2, "'PX'", "'EX'"),
        ("constant changed", 1, "math.min", "math.max"),
        ("exchanged", 2, "now, 'PX'", "'PX', now"),
        ("dropped", 1, "redis.call('SET', key, now, 'PX', LIMIT)", ""),
        ("dropped", 2, "count = count - 1", ""),
        ("dropped", 3, "return nil", ""),
    ],
)
def test_operators_on_lua(operator: Operator, number: int, old: str, new: str) -> None:
    assert lua.plant(LUA, "leave", Nth(operator, number)) == LUA.replace(old, new)


def test_what_stands_in_no_function() -> None:
    assert python.plant(PYTHON, "", Nth("unit swapped")) == PYTHON.replace("3000", "3")
    assert lua.plant(LUA, "", Nth("unit swapped")) == LUA.replace("3000", "3")
    assert lua.plant(LUA, "", Nth("dropped")) == LUA.replace("return {1}", "")


@pytest.mark.parametrize(
    ("language", "source", "function", "change", "old", "new"),
    [
        (python, PYTHON, "LocalQueue.leave", Instead("self . tell('PX',\nnow)", "now"), 'self.tell("PX", now)', "now"),
        (python, PYTHON, "LocalQueue.leave", Instead("now", "0", 3), "min(now, 5)", "min(0, 5)"),
        (lua, LUA, "leave", Instead("count=count-1", "count = 0"), "count = count - 1", "count = 0"),
        (lua, LUA, "leave", Instead("now", "0", 4), "now, 'PX'", "0, 'PX'"),
    ],
)
def test_a_text_of_the_function(language: object, source: str, function: str, change: Change, old: str, new: str) -> None:
    plant = python.plant if language is python else lua.plant
    assert plant(source, function, change) == source.replace(old, new)


@pytest.mark.parametrize("change", [Nth("always", 4), Nth("time swapped", 0), Instead("nothing", "x"), Instead("now", "x")])
def test_a_place_that_is_not_there_or_not_the_only_one(change: Change) -> None:
    with pytest.raises(LookupError):
        python.plant(PYTHON, "LocalQueue.leave", change)
    with pytest.raises(LookupError):
        lua.plant(LUA, "leave", change)
