"""Writes down what is public: names, signatures and members of the modules, the help of each subcommand, and error texts.

PYTHONPATH=tests python -m house.public     # writes names.txt, help.txt and errors.txt again (`make api`)

A change of the public interface is a change of these files, which is reviewed like code.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import inspect
import io
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Generic

from holdfast import _connection, cli
from holdfast._api import flow, foreign_words

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import ModuleType

HERE = Path(__file__).parent
NAMES, HELP, ERRORS = HERE / "names.txt", HERE / "help.txt", HERE / "errors.txt"

MODULES = (
    "holdfast",
    "holdfast.aio",
    "holdfast.errors",
    "holdfast.schedule",
    "holdfast.fencing",
    "holdfast.sqlalchemy",
    "holdfast.django",
    "holdfast.doctor",
    "holdfast.legacy",
    "holdfast.legacy.aio",
    "holdfast.testing",
    "holdfast.testing.recording",
    "holdfast.testing.history",
    "holdfast_lab.checkers",
    "holdfast_lab.machine",
)
GIVEN = {
    "Broken", "CacheStatistics", "Connection", "Cycle", "CycleWaiter", "Elected", "Holder", "Lease", "LockInfo",
    "LockLease", "Memoized", "MigratingLease", "MultiLease", "Outcome", "ReadSide", "RunLease", "Running", "Term",
    "TimestampLease", "Waiter", "WriteLease", "WriteSide",
}  # fmt: skip
"""Classes whose objects users get, and do not make."""

ALIASES = {"AsyncClient", "Seconds", "SyncClient"}
"""Types for annotations. `house/typed` checks what type checkers know of them; when the program runs, they mean little."""

SPECIAL = {
    "__aenter__", "__aexit__", "__aiter__", "__await__", "__call__", "__contains__", "__enter__", "__exit__", "__iter__",
    "__len__",
}  # fmt: skip


def public(module: ModuleType) -> list[str]:
    """Return ``__all__``, or what the module itself defines under a name without underscore."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__)
    defined: set[str] = set()
    for node in ast.parse(Path(str(module.__file__)).read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined.update(ast.unparse(target) for target in targets)
    return sorted(name for name in defined if not name.startswith("_"))


def written(annotation: object) -> str:
    """Return an annotation as it stands in the source, with the names that classes have in `holdfast.aio`."""
    if annotation is inspect.Parameter.empty:
        return ""
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\bAio(?=[A-Z])", "", text)


def default(value: object) -> str:
    """Return a default value as it may stand in the source."""
    if isinstance(value, frozenset):
        return "{" + ", ".join(map(repr, sorted(value))) + "}"
    shown = repr(value)
    return shown if len(shown) <= 80 else f"{type(value).__name__}(...)"


def parameters(function: object, *, skip_self: bool) -> tuple[list[str], str]:
    """Return the parameters of a function, each as in its signature, and the annotation of its result."""
    signature = inspect.signature(function)  # type: ignore[arg-type]
    shown, star = [], False
    for at, parameter in enumerate(signature.parameters.values()):
        if at == 0 and skip_self:
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            shown.append("*")
        star = star or parameter.kind in {parameter.KEYWORD_ONLY, parameter.VAR_POSITIONAL}
        prefix = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        kind = written(parameter.annotation)
        text = f"{prefix}{parameter.name}{': ' * bool(kind)}{kind}"
        if parameter.default is not parameter.empty:
            text += f" = {default(parameter.default)}" if kind else f"={default(parameter.default)}"
        shown.append(text)
        if parameter.kind is parameter.POSITIONAL_ONLY:
            shown = [one for one in shown if one != "/"] + ["/"]
    return shown, written(signature.return_annotation)


def function_lines(name: str, function: object, *, skip_self: bool = False) -> Iterator[str]:
    """Yield a function in a line, or, where that is long, each parameter in one."""
    shown, result = parameters(function, skip_self=skip_self)
    end = f" -> {result}" if result else ""
    kind = "async def" if inspect.iscoroutinefunction(function) else "def"
    line = f"{kind} {name}({', '.join(shown)}){end}"
    if len(line) <= 110:
        yield line
        return
    yield f"{kind} {name}("
    yield from (f"    {one}," for one in shown)
    yield f"){end}"


@functools.cache
def assigned(cls: type) -> dict[str, str]:
    """Return the attributes that a class's methods set on ``self``, with their annotations where they have some."""
    found: dict[str, str] = {}
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(cls)))):
        if isinstance(node, ast.AnnAssign):
            found[ast.unparse(node.target)] = ast.unparse(node.annotation)
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                    found.setdefault(ast.unparse(one), "")
    return {
        name.removeprefix("self."): kind for name, kind in found.items() if name.startswith("self.") and name.count(".") == 1
    }


def members(cls: type) -> Iterator[str]:
    """Yield the public members of a class of ours, those of its bases included."""
    bases = [base for base in cls.__mro__ if base.__module__.startswith(("holdfast.", "holdfast_lab."))]
    attributes: dict[str, str] = {}
    things: dict[str, object] = {}
    for base in reversed(bases):
        attributes |= assigned(base)
        attributes |= {name: written(kind) for name, kind in vars(base).get("__annotations__", {}).items()}
        things |= vars(base)
    for name in sorted({*attributes, *things}):
        if name.startswith("_") and name not in SPECIAL:
            continue
        thing = things.get(name)
        if isinstance(thing, foreign_words.NoWith):
            continue
        if isinstance(thing, property | functools.cached_property):
            getter = thing.fget if isinstance(thing, property) else thing.func
            yield f"{name} -> {parameters(getter, skip_self=True)[1]}"
        elif name in SPECIAL and name != "__call__":
            yield f"{name}(){' -> ' * bool(result := parameters(thing, skip_self=True)[1])}{result}"
        elif isinstance(thing, staticmethod | classmethod):
            yield from function_lines(name, thing.__func__, skip_self=isinstance(thing, classmethod))
        elif inspect.isfunction(thing):
            yield from function_lines(name, thing, skip_self=True)
        elif isinstance(thing, _connection.Method):
            called = thing.name.removeprefix("aio_").removeprefix("Aio")
            yield f"{name}: {called} without client; defaults: {', '.join(thing.defaults) or 'none'}"
        else:
            yield f"{name}{': ' * bool(attributes.get(name))}{attributes.get(name, '')}"


def class_lines(name: str, cls: type) -> Iterator[str]:
    """Yield a class: its bases, how it is made, its members."""
    inner = {object, Generic, flow.Steps, flow.InThreads, flow.InTasks, foreign_words.ForeignMethods}
    bases = [base.__name__ for base in cls.__mro__[1:] if base not in inner and not base.__name__.startswith(("_", "Base"))]
    yield f"class {name}({', '.join(bases)})"
    if name not in GIVEN and not issubclass(cls, BaseException):
        with contextlib.suppress(ValueError, TypeError):  # made by something that is not of Python
            yield from (f"    {line}" for line in function_lines("__init__", cls, skip_self=False))
    yield from (f"    .{line}" if not line.startswith((" ", ")")) else f"    {line}" for line in members(cls))


def thing_lines(name: str, thing: object) -> Iterator[str]:
    """Yield what is behind one public name."""
    if inspect.isclass(thing):
        yield from class_lines(name, thing)
    elif inspect.isfunction(thing):
        yield from function_lines(name, thing)
    elif inspect.ismodule(thing):
        yield f"module {name}"
    else:
        yield f"{name}: {type(thing).__name__}"


@functools.cache
def names() -> str:
    """Return names.txt."""
    lines = ["# What is public, written by `make api`."]
    written_before: dict[int, str] = {}
    for module in map(importlib.import_module, MODULES):
        lines += ["", f"## {module.__name__}", ""]
        for name in public(module):
            thing = getattr(module, name)
            if name in ALIASES:
                lines.append(f"type {name}")
            elif inspect.isclass(thing) and id(thing) in written_before:
                lines.append(f"class {name}: as {written_before[id(thing)]}")
            else:
                lines += thing_lines(name, thing)
                written_before[id(thing)] = f"{module.__name__}.{name}"
    return "\n".join(lines) + "\n"


def help_of(subcommand: str) -> str:
    """Return what its ``--help`` prints."""
    told = io.StringIO()
    with contextlib.redirect_stdout(told), contextlib.suppress(SystemExit):
        cli.main([subcommand, "--help"] if subcommand else ["--help"])
    return told.getvalue()


def helps() -> str:
    """Return help.txt."""
    parts = [f"$ holdfast {name}{' ' * bool(name)}--help\n{help_of(name)}" for name in ["", *cli.COMMANDS]]
    return "\n".join(line.rstrip() for line in "\n".join(parts).splitlines()) + "\n"


def errors() -> str:
    """Return errors.txt: the text of each mistake of `test_mistakes` and `test_mistaken_values`, and of `live_errors`."""
    from api.unit.test_mistaken_values import MISTAKES
    from api.unit.test_mistakes import CALLS, CLIENTS
    from house import live_errors

    lines: dict[str, None] = {}  # a set that keeps the order
    calls = [*(one[0] for one in CLIENTS), *(one[0] for one in CALLS), *(one[0] for one in MISTAKES)]
    for call in calls:
        try:
            call()
        except (TypeError, ValueError) as error:
            lines[f"{type(error).__name__}: {re.sub(r'0x[0-9a-f]+', '0x...', str(error))}"] = None
    return (
        "\n".join(
            [
                "# The texts of errors about wrong arguments, written by `make api`.",
                "",
                *lines,
                "",
                "# The texts of errors that a server, or its absence, causes.",
                "",
                *live_errors.texts(),
            ]
        )
        + "\n"
    )


if __name__ == "__main__":
    NAMES.write_text(names())
    HELP.write_text(helps())
    ERRORS.write_text(errors())
