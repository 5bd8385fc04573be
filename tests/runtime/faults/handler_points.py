"""Raises KeyboardInterrupt at each point at which CPython would run a signal handler, one point after the other.

CPython runs handlers where a function or a generator begins or is resumed (RESUME), after a call of something that is not
written in Python, and after a jump backwards. A blocking call (recv, acquire) may also raise before it has done anything.
A tracer that raises elsewhere shows states that no signal can produce.
"""

from __future__ import annotations

import dis
import linecache
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self, TypeVar

import holdfast
from support.sources import turn

T = TypeVar("T")

HOME = str(Path(holdfast.__file__).parent)

BLOCKING = {"recv", "acquire", "sendall", "select", "poll", "sleep", "connect"}
CALLS = {"CALL", "CALL_KW", "CALL_FUNCTION_EX"}


Instructions = dict[int, tuple[str, int]]
"""Name and argument by offset."""

Table = tuple[tuple[int, int, int], ...]
"""Start, end and target of what is handled, see InternalDocs/exception_handling.md of CPython."""

_known: dict[int, tuple[CodeType, Instructions, Table]] = {}
"""By id: the hash of a code object is made of all that is in it, each time."""


def _parts(code: CodeType) -> tuple[CodeType, Instructions, Table]:
    found = _known.get(id(code))
    if found is None:
        instructions = {one.offset: (one.opname, one.arg or 0) for one in dis.get_instructions(code)}
        found = _known[id(code)] = code, instructions, _table(code)
    return found


def _instructions(code: CodeType) -> Instructions:
    return _parts(code)[1]


def _table(code: CodeType) -> Table:
    numbers: list[int] = []
    more = 0
    for byte in code.co_exceptiontable:
        if more:
            numbers[-1] = (numbers[-1] << 6) | (byte & 63)
        else:
            numbers.append(byte & 63)
        more = byte & 64
    return tuple(
        (2 * start, 2 * (start + length), 2 * target) for start, length, target, _ in zip(*(iter(numbers),) * 4, strict=True)
    )


def _handled_at(code: CodeType, offset: int) -> int | None:
    """Return the place at which an exception of this instruction is handled."""
    return next((target for start, end, target in _parts(code)[2] if start <= offset < end), None)


Point = tuple[int, int, str, int]
"""Which code (its id), where in it, what happens there, and for which time."""

TIMES = 2
"""How often the same instruction of one run is looked at."""


class Points:
    """Raises at the first point that this thread reaches in holdfast's own code and that is not ``done`` yet."""

    def __init__(self, done: set[Point], every: int) -> None:
        self.done = done
        self._skip = every
        self.where = ""
        self._times: Counter[tuple[int, int, str]] = Counter()
        self._last: dict[FrameType, int] = {}
        """The instruction that each frame has begun."""
        self._inner: dict[FrameType, str] = {}
        """The functions that this instruction has called so far."""

    def __enter__(self) -> Self:
        self._before = sys.gettrace(), sys.getprofile()
        self._tracer, self._profiler = self._trace, self._profile  # kept: CPython 3.11 calls them when they are gone
        sys.setprofile(self._profiler)
        sys.settrace(self._tracer)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        sys.settrace(self._before[0])
        sys.setprofile(self._before[1])
        self._last.clear()
        self._inner.clear()
        return kind is KeyboardInterrupt and bool(self.where)

    def _reached(self, frame: FrameType, what: str) -> None:
        if self.where:
            return
        place = id(frame.f_code), frame.f_lasti, what
        self._times[place] += 1
        point = (*place, self._times[place])
        if point in self.done or self._times[place] > TIMES:
            return
        self.done.add(point)
        self._skip -= 1
        if self._skip:
            return
        code, line = frame.f_code, frame.f_lineno
        text = linecache.getline(code.co_filename, line).strip()
        self.where = f"{code.co_filename.removeprefix(HOME)}:{line} {code.co_name} ({what}): {text}"
        raise KeyboardInterrupt

    def _profile(self, frame: FrameType, event: str, function: Any) -> None:
        if not self.where and frame.f_code.co_filename.startswith(HOME):
            if event == "c_call":
                self._inner[frame] = "C"
                if function.__name__ in BLOCKING:
                    self._reached(frame, f"before {function.__name__}")
            elif event == "c_return":
                self._reached(frame, f"after {function.__name__}")

    def _trace(self, frame: FrameType, event: str, _: object) -> Any:
        if self.where:
            return None
        caller = frame.f_back
        if event == "call" and caller is not None and caller in self._last:
            self._inner[caller] = frame.f_code.co_name
        if not frame.f_code.co_filename.startswith(HOME):
            return None
        if event == "call":
            frame.f_trace_opcodes = True
            name, argument = _instructions(frame.f_code).get(frame.f_lasti, ("", 0))
            if name == "RESUME" and argument & 3 < 2:
                self._reached(frame, "begins")
        elif event == "opcode":
            self._opcode(frame)
        elif event == "return":
            self._last.pop(frame, None)
            self._inner.pop(frame, None)
        return self._tracer

    def _opcode(self, frame: FrameType) -> None:
        code, now, before = frame.f_code, frame.f_lasti, self._last.get(frame)
        inner = self._inner.pop(frame, "")
        self._last[frame] = now
        if before is None:
            return
        name = _instructions(code)[before][0]
        if "JUMP_BACKWARD" in name and "NO_INTERRUPT" not in name and now < before:
            self._reached(frame, "jumps back")
        # A class, or another object that is called: nobody is told of that, but of the methods of which it consists. A
        # coroutine that is made is told of by nobody either, and is no point.
        made = not inner and _instructions(code)[now][0] == "GET_AWAITABLE"
        of_a_class = not inner or (inner.startswith("__") and inner != code.co_name)
        if name in CALLS and of_a_class and not made and _handled_at(code, now) == _handled_at(code, before):
            self._reached(frame, "after a call")


def at_every_point(action: Callable[[T], object], prepare: Callable[[], T], every: int = 1) -> Iterator[str]:
    """Run ``action`` again and again, each time with what ``prepare`` makes, and interrupt it at another point each time,
    until it ends undisturbed; yields each point. ``every``: at one of so many points only, others after each change of a
    source."""
    done: set[Point] = set()
    first = 1 + turn("points") % every
    while True:
        subject = prepare()
        with Points(done, first) as points:
            action(subject)
        first = every
        if not points.where:
            return
        yield points.where
