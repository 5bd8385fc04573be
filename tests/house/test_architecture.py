"""The architecture: allowed imports, sizes of rooms, public names, and that both APIs are alike."""

from __future__ import annotations

import ast
import functools
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import holdfast
import holdfast_lab
from holdfast import aio
from holdfast._api import acquisition
from holdfast._core import control_records, names, requests
from holdfast._core.lock import replies, server_queue
from holdfast._lua import source

ROOT, LAB = Path(holdfast.__file__).parent, Path(holdfast_lab.__file__).parent
MODULES = sorted([*ROOT.rglob("*.py"), *LAB.rglob("*.py")])
CORE = sorted((ROOT / "_core").rglob("*.py"))
SCRIPTS = sorted(path.relative_to(ROOT / "_lua").with_suffix("").as_posix() for path in (ROOT / "_lua").rglob("*.lua"))
CALLED = [name for name in SCRIPTS if "/_" not in name]


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT if path.is_relative_to(ROOT) else LAB.parent))


@functools.cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def for_types_only(tree: ast.Module) -> set[ast.AST]:
    """Return the imports under ``if TYPE_CHECKING``."""
    blocks = [node for node in ast.walk(tree) if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    return {inner for block in blocks for part in block.body for inner in ast.walk(part)}


@functools.cache
def imports(path: Path) -> list[str]:
    """Full names of the modules a file imports when it runs, wherever in it."""
    return list(_imports(path))


def _imports(path: Path, *, types: bool = False) -> Iterator[str]:
    tree = parse(path)
    skipped = set() if types else for_types_only(tree)
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if file_of(full) else str(node.module)


def file_of(module: str) -> Path | None:
    path = ROOT.parent.joinpath(*module.split("."))
    return next((p for p in (path.with_suffix(".py"), path / "__init__.py") if p.exists()), None)


def reachable(start: list[Path]) -> dict[str, str]:
    """Every module that these files import, through modules of ours too; and which file it was."""
    found: dict[str, str] = {}
    todo = list(start)
    while todo:
        path = todo.pop()
        for module in imports(path):
            if module not in found:
                found[module] = relative(path)
                own = file_of(module) if module.split(".")[0] == "holdfast" else None
                if own is not None:
                    todo.append(own)
    return found


# Allowed imports

PURE = {
    "__future__",
    "collections",
    "contextlib",
    "dataclasses",
    "functools",
    "heapq",
    "typing",
    "re",
    "hashlib",
    "_sha1",
    "json",
    "types",
    "weakref",
}
"""All that the core may use of the standard library: no clock, no randomness, no threads, no input or output but the
scripts' own text."""


def test_the_core_decides_and_nothing_else() -> None:
    found = reachable(CORE)
    strangers = {module: by for module, by in found.items() if module.split(".")[0] not in PURE | {"holdfast"}}
    assert strangers == {}
    ours = {module for module in found if module.split(".")[0] == "holdfast"}
    assert {module for module in ours if not re.match(r"holdfast\.(_core|_lua|errors)\b", module)} == set()


def test_the_core_awaits_requests_and_nothing_else() -> None:
    """No event loop, no coroutine of a library: ``await`` is only ever for a request or another operation of ours."""
    operations = {node.name for path in CORE for node in ast.walk(parse(path)) if isinstance(node, ast.AsyncFunctionDef)}
    requests = {
        node.name
        for path in CORE
        for node in ast.walk(parse(path))
        if isinstance(node, ast.ClassDef) and any(ast.unparse(base).startswith(("Request[", "Instant[")) for base in node.bases)
    }
    for path in CORE:
        for node in ast.walk(parse(path)):
            if not isinstance(node, ast.Await):
                continue
            either = [node.value.body, node.value.orelse] if isinstance(node.value, ast.IfExp) else [node.value]
            for awaited in either:
                if ast.unparse(awaited) != "call":  # a request that was handed in
                    assert isinstance(awaited, ast.Call), ast.unparse(node)
                    # operations that were handed in: `acquire.Strategy`
                    called = ast.unparse(awaited.func).removeprefix("strategy.")
                    assert called in operations | requests, f"{relative(path)}: {ast.unparse(node)}"


def test_the_judge_imports_nothing_of_what_it_judges() -> None:
    """A number that it took from there would be wrong wherever the code is."""
    judge = [*sorted((LAB / "judge").glob("*.py")), LAB / "checkers.py"]
    known = ("holdfast_lab.judge", "holdfast_lab.checkers", "holdfast.testing.history")
    offenders = [
        f"{relative(path)} imports {module}"
        for path in judge
        for module in _imports(path, types=True)
        if module.split(".")[0] in {"holdfast", "holdfast_lab"} and not module.startswith(known)
    ]
    assert len(judge) > 8
    assert offenders == []


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        ("holdfast", ["redis", "valkey", "asyncio", "ssl"]),
        ("holdfast.cli", ["redis", "valkey", "asyncio", "ssl"]),
        ("holdfast.aio", ["redis", "valkey"]),
    ],
)
def test_what_is_not_imported_at_the_start(module: str, absent: list[str]) -> None:
    program = f"import sys, {module}; print(*(name for name in {absent!r} if name in sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == []


def test_importing_starts_nothing() -> None:
    program = "import threading, holdfast, holdfast.aio; print(threading.active_count())"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "1\n"


# Small rooms


def test_modules_and_functions_are_of_readable_size() -> None:
    sizes = {relative(path): len(path.read_text().splitlines()) for path in MODULES}
    assert {module: lines for module, lines in sizes.items() if lines > 800} == {}
    functions = {
        f"{relative(path)}:{node.lineno} {node.name}": (node.end_lineno or 0) - node.lineno + 1
        for path in MODULES
        for node in ast.walk(parse(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {function: lines for function, lines in functions.items() if lines > 70} == {}


def test_each_file_says_first_what_it_holds() -> None:
    assert [relative(path) for path in MODULES if not ast.get_docstring(parse(path))] == []


# Public names

LOCK = "acquire key lease locked name progress release statistics ticket"
LEASE = "check fence key lost name progress release remaining renew verify"


def test_names_are_there_before_what_they_stand_for_is_imported() -> None:
    program = """
import sys, holdfast
early = "holdfast._api.lock" in sys.modules
before = set(dir(holdfast))
from holdfast import *
print(early, before >= set(holdfast.__all__) <= set(globals()), Lock is holdfast._api.lock.Lock)
print(fencing is sys.modules["holdfast.fencing"])
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "True", "True", "True"]
    with pytest.raises(AttributeError, match="module 'holdfast' has no attribute 'Lok'"):
        holdfast.Lok  # type: ignore[attr-defined]  # noqa: B018 (and a type checker has to see that, too)


def test_the_classes_for_threads_need_no_asyncio() -> None:
    """Although each stands in one file with the class for asyncio."""
    program = (
        "import sys, holdfast; [getattr(holdfast, name) for name in holdfast.__all__ if name != 'aio']; print(*sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"holdfast._api.lock", "holdfast._api.redlock"} <= set(result.stdout.split())
    assert "asyncio" not in result.stdout.split()


def members(cls: type) -> set[str]:
    bases = [base for base in cls.__mro__ if base.__module__.startswith("holdfast.")]
    names = {name for base in bases for name in vars(base)}
    assigned = {
        ast.unparse(node.target).removeprefix("self.")
        for base in bases
        for node in ast.walk(ast.parse(inspect.getsource(base)))
        if isinstance(node, ast.AnnAssign) and ast.unparse(node.target).startswith("self.")
    }
    return {name for name in names | assigned if not name.startswith("_")}


@pytest.mark.parametrize("api", [holdfast, aio], ids=["sync", "asyncio"])
def test_public_members(api: ModuleType) -> None:
    assert members(api.Lock) == members(api.FairLock) == set(LOCK.split())
    assert members(api.Lease) == set(LEASE.split())
    assert members(api.LockLease) == {*LEASE.split(), "ticket"}


@pytest.mark.parametrize("cls", [holdfast.Once, aio.Once], ids=["sync", "asyncio"])
def test_public_members_of_once(cls: type) -> None:
    assert members(cls) == {"current", "forget", "run"}


@pytest.mark.parametrize("cls", [holdfast.Election, aio.Election], ids=["sync", "asyncio"])
def test_public_members_of_leader(cls: type) -> None:
    whom = "candidate is_leader key lease name statistics term value"
    assert members(cls) == set(f"campaign hand_over leader observe proclaim resign {whom}".split())


@pytest.mark.parametrize("cls", [holdfast.RLock, aio.RLock])
def test_an_rlock_has_what_a_lock_has(cls: type) -> None:
    assert members(cls) == set(LOCK.split())


@pytest.mark.parametrize("cls", [holdfast.Redlock, aio.Redlock, holdfast.RedeemedLock, aio.RedeemedLock])
def test_other_locks_have_what_a_lock_has_but_a_ticket(cls: type) -> None:
    assert members(cls) == set(LOCK.split()) - {"ticket"}


WITHOUT_TICKET = "BoundedSemaphore Lease MultiLease MultiLock ReadSide RedeemedLock Redlock Semaphore Term WriteLease WriteSide"


@pytest.mark.parametrize("api", [holdfast, aio], ids=["sync", "asyncio"])
def test_only_locks_on_one_server_have_tickets(api: Any) -> None:
    """A class does not have methods that cannot work on it."""
    having = {name for name in api.__all__ if hasattr(getattr(api, name), "ticket")}
    assert having == {"FairLock", "Lock", "LockLease", "RLock"}
    assert set(WITHOUT_TICKET.split()) <= set(api.__all__)


def test_a_type_checker_sees_that_there_is_no_ticket() -> None:
    """mypy would report an ignore that is not used."""
    calls: tuple[Callable[[], object], ...] = (
        lambda: holdfast.Redlock.ticket,  # type: ignore[attr-defined]
        lambda: holdfast.Semaphore.ticket,  # type: ignore[attr-defined]
        lambda: holdfast.MultiLock.ticket,  # type: ignore[attr-defined]
        lambda: holdfast.MultiLease.ticket,  # type: ignore[attr-defined]
        lambda: holdfast.ReadSide.ticket,  # type: ignore[attr-defined]
        lambda: holdfast.RedeemedLock.ticket,  # type: ignore[attr-defined]
        lambda: holdfast.Term.ticket,  # type: ignore[attr-defined]
        lambda: aio.Redlock.ticket,  # type: ignore[attr-defined]
        lambda: aio.Semaphore.ticket,  # type: ignore[attr-defined]
        lambda: aio.MultiLease.ticket,  # type: ignore[attr-defined]
    )
    for call in calls:
        with pytest.raises(AttributeError):
            call()


def test_the_version_is_written_once() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", holdfast.__version__)


# Two APIs, one lock

OF_ASYNCIO = {
    "BaseAioLock": "BaseSyncLock",
    "The locks of asyncio": "The locks of threads",
    "if this task holds": "if this thread holds",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "asyncio.Event": "threading.Event",
    "an asyncio.Lock": "a threading.Lock",
    "an asyncio.BoundedSemaphore": "a threading.BoundedSemaphore",
    "``async with": "``with",
    "AsyncIterator": "Iterator",
    "Coroutine[Any, Any, T]": "T",
    "Coroutine[Any, Any, _T]": "_T",
    "Awaitable[T]": "T",
    "any task may": "any thread may",
    "redis.asyncio.Redis": "redis.Redis",
    "AsyncClient": "SyncClient",
    "valkey.asyncio.Valkey": "valkey.Valkey",
    "Tasks may share": "Threads may share",
    "is a coroutine function without arguments": "is a function without arguments",
    "classes of `holdfast.aio`": "classes of `holdfast`",
    "this event loop has opened to the servers.": "this process has opened to the servers and does not use now.",
}
STATED_DIFFERENCES = {
    "Lock": (
        "If the lease is lost, the body of ``with`` is cancelled and LeaseLost is raised. ",
        "A lock belongs to one event loop while it is held or awaited; otherwise any event loop may use it. ",
        ", by a thread, so a blocked event loop loses nothing",
    ),
    "Election": ("If leadership is lost, the body of ``with`` is cancelled and LeaseLost is raised. ",),
    "once": ("If the lease is lost, the function is cancelled and LeaseLost is raised. ",),
    "MultiLock": ("If a lease is lost, the body of ``with`` is cancelled and LeaseLost is raised. ",),
    "Schedule": (" Coroutine functions run in the event loop, plain functions in threads.",),
    "Barrier": (" It may be a coroutine function.",),
    "BaseSyncLock.__exit__": (", or was cancelled because of the loss",),
    "RLock.__exit__": (", or was cancelled because of the loss",),
    "Transaction.run": ("a coroutine function, ",),
    "Connection.close": (" A request that is under way fails.",),
}
ON_LOST = {
    "called with the lease, in a thread of its own, when a lease is lost.",
    "called in the loop with the lease when a lease is lost; may be a coroutine function.",
}


def as_sync(text: str) -> str:
    text = re.sub(r"\bAio(?=[A-Z])", "", " ".join(text.split()))
    for theirs, ours in OF_ASYNCIO.items():
        text = text.replace(theirs, ours)
    for sentence in ON_LOST:
        text = text.replace(sentence, "(on_lost)")
    return text


def described(cls: Any) -> dict[str, str]:
    """Docstrings of a function, or of a class and its own public or special methods, under their synchronous names."""
    whose = OF_ASYNCIO.get(cls.__name__, cls.__name__)
    found = {whose: cls.__doc__ or ""}
    for name, thing in vars(cls).items():
        if not name.startswith("_") or name in {"__enter__", "__exit__", "__aenter__", "__aexit__"}:
            found[f"{whose}.{OF_ASYNCIO.get(name, name)}"] = getattr(thing, "__doc__", None) or ""
    return found


SYNC = {
    "BaseSyncLock": acquisition.BaseSyncLock,
    "LockLease": holdfast.LockLease,
    "ReadSide": holdfast.ReadSide,
    "Term": holdfast.Term,
    "WriteLease": holdfast.WriteLease,
    "WriteSide": holdfast.WriteSide,
    "Barrier": holdfast.Barrier,
    "Cache": holdfast.Cache,
    "Connection": holdfast.Connection,
    "connect": holdfast.connect,
    "CountDownLatch": holdfast.CountDownLatch,
    "Event": holdfast.Event,
    "Lock": holdfast.Lock,
    "FairLock": holdfast.FairLock,
    "Election": holdfast.Election,
    "Lease": holdfast.Lease,
    "Inspector": holdfast.Inspector,
    "Once": holdfast.Once,
    "once": holdfast.once,
    "MultiLease": holdfast.MultiLease,
    "MultiLock": holdfast.MultiLock,
    "RWLock": holdfast.RWLock,
    "Redlock": holdfast.Redlock,
    "Semaphore": holdfast.Semaphore,
    "RLock": holdfast.RLock,
    "RedeemedLock": holdfast.RedeemedLock,
    "redeem": holdfast.redeem,
    "Schedule": holdfast.Schedule,
    "Transaction": holdfast.Transaction,
}


def in_asyncio(name: str) -> Any:
    return acquisition.BaseAioLock if name == "BaseSyncLock" else getattr(aio, name)


def test_both_apis_say_the_same() -> None:
    sync = {member: text for name in SYNC for member, text in described(SYNC[name]).items()}
    asynchronous = {member: text for name in SYNC for member, text in described(in_asyncio(name)).items()}
    assert sync.keys() == asynchronous.keys()
    stated = {member: as_sync(text) for member, text in asynchronous.items()}
    for member, differences in STATED_DIFFERENCES.items():
        for difference in differences:
            assert difference in stated[member], f"{member}: a difference that is no more"
            stated[member] = stated[member].replace(difference, "")
    assert stated == {member: as_sync(text) for member, text in sync.items()}


def signatures(cls: Any) -> dict[str, tuple[str, ...]]:
    found = {}
    for name, thing in vars(cls).items():
        function = thing.fget if isinstance(thing, property) else thing
        if not inspect.isfunction(function) or (name.startswith("_") and not name.startswith("__")):
            continue
        signature = inspect.signature(function)
        kind = "property" if isinstance(thing, property) else "method"
        parameters = [as_sync(str(parameter)) for parameter in signature.parameters.values()]
        found[OF_ASYNCIO.get(name, name)] = (kind, *parameters, as_sync(str(signature.return_annotation)))
    return found


def test_both_apis_take_the_same_arguments() -> None:
    assert {name: signatures(in_asyncio(name)) for name in SYNC} == {name: signatures(SYNC[name]) for name in SYNC}


def test_both_apis_memoize_alike() -> None:
    ours, theirs = holdfast.Memoized, aio.Memoized
    assert members(ours) == members(theirs) == {"cache_key", "invalidate"}
    assert described(ours) == described(theirs)
    assert signatures(ours) == signatures(theirs)


@pytest.mark.parametrize("api", [holdfast, aio], ids=["sync", "asyncio"])
def test_a_fair_lock_takes_all_options_but_those_of_passing_on(api: ModuleType) -> None:
    options, fair = (inspect.signature(cls).parameters for cls in (api.Lock, api.FairLock))
    assert set(options) - set(fair) == {"linger", "max_passes", "max_pass_time"}
    assert {name: str(fair[name]) for name in fair} == {name: str(options[name]) for name in fair}


def test_what_needs_the_server_is_awaited_and_nothing_else() -> None:
    for name in ("Lock", "Lease"):
        for member, thing in vars(getattr(aio, name)).items():
            if member.startswith("_") or not inspect.isfunction(thing):
                continue
            assert inspect.iscoroutinefunction(thing) is (member != "notice_loss"), member
            assert not inspect.iscoroutinefunction(vars(getattr(holdfast, name))[member])


# The scripts


def header(name: str) -> dict[str, str]:
    lines = (ROOT / "_lua" / f"{name}.lua").read_text().splitlines()
    comment = [line[3:] for line in lines[: next(i for i, line in enumerate(lines) if not line.startswith("--"))]]
    fields = {line.split()[0]: line for line in comment if re.match(r"[A-Z]{4,}  ", line + " ")}
    return {"first": comment[0], **fields}


def test_each_script_states_its_contract() -> None:
    headers = {name: header(name) for name in CALLED}
    missing = {name: {"KEYS", "ARGV", "RETURNS", "SINCE"} - found.keys() for name, found in headers.items()}
    assert {name: fields for name, fields in missing.items() if fields} == {}
    firsts = {name: found["first"] for name, found in headers.items()}
    assert [name for name, first in firsts.items() if not first.endswith((".", ":")) and len(first) <= 40] == []


ALLOWED = {
    "GET", "SET", "DEL", "EXISTS", "PEXPIRE", "PTTL", "TYPE", "TIME", "HGET", "HSET", "HDEL", "HKEYS", "HMGET", "ZADD", "ZREM",
    "ZRANGE", "ZCARD", "ZSCORE", "ZREMRANGEBYSCORE", "PUBLISH", "SPUBLISH", "PUBSUB", "INFO", "GETSET", "GETRANGE", "HSTRLEN",
    "STRLEN",
}  # fmt: skip
"""The commands that an administrator is asked to allow."""


def test_scripts_are_plain_text_with_declared_keys() -> None:
    texts = {name: (ROOT / "_lua" / f"{name}.lua").read_bytes() for name in SCRIPTS}
    assert [name for name, text in texts.items() if not text.isascii() or b"KEYS *" in text] == []
    called = {
        (name, call.split(",")[0].strip().strip("'"))
        for name, text in texts.items()
        for call in re.findall(r"redis\.p?call\(([^)]*)\)", re.sub(rb"--[^\n]*", b"", text).decode())
    }
    assert {(name, command) for name, command in called if command not in ALLOWED} == set()


INCLUDE = re.compile(r"^ *-- INCLUDE +(\S+)$", re.MULTILINE)


def lua_code(name: str) -> str:
    """A file of Lua without comments and texts."""
    text = (ROOT / "_lua" / f"{name}.lua").read_text()
    return re.sub(r"'[^'\n]*'", "''", re.sub(r"--[^\n]*", "", text))


def top_names(code: str) -> set[str]:
    """The constants and functions that a file defines for those that include it."""
    return set(re.findall(r"^local (?:function )?(\w+)", code, re.MULTILINE))


def own_names(code: str) -> set[str]:
    """All that a file defines anywhere: local variables, functions, their arguments, variables of loops."""
    forms = (r"\blocal (?:function )?([\w, ]+)", r"\bfunction ?\w*\(([^)]*)\)", r"\bfor ([\w, ]+?) (?:in|=)")
    return {name for form in forms for text in re.findall(form, code) for name in re.findall(r"\w+", text)}


OF_LUA = {
    "ARGV", "KEYS", "and", "break", "do", "else", "elseif", "end", "err", "false", "for", "function", "if", "in",
    "ipairs", "local", "math", "nil", "not", "ok", "or", "pairs", "redis", "repeat", "return", "string", "table", "then",
    "tonumber", "true", "type", "unpack", "until", "while",
}  # fmt: skip


def free_names(code: str) -> set[str]:
    """Return the names that a file uses and does not define; fields of tables do not count."""
    return set(re.findall(r"(?<![.\w])[A-Za-z_]\w*", code)) - own_names(code)


def test_a_file_includes_what_it_uses_and_no_more() -> None:
    """An included file reads no variable of those that include it: all that it uses it defines, includes, or is given."""
    code = {name: lua_code(name) for name in SCRIPTS}
    origin = {word: name for name in SCRIPTS if "/_" in name for word in top_names(code[name])}
    wrong = {}
    for name in SCRIPTS:
        text = (ROOT / "_lua" / f"{name}.lua").read_text()
        included = set(INCLUDE.findall(text))
        imported = {word for line in re.findall(r"^ *-- CODES +(.+)$", text, re.MULTILINE) for word in line.split()}
        fields = set(re.findall(r"[{,]\s*(\w+) = ", code[name]))
        needed = {
            word: origin.get(word)
            for word in free_names(code[name]) - OF_LUA - imported
            if word in origin or word not in fields
        }
        lacking = {word for word, file in needed.items() if file not in included}
        idle = included - set(needed.values())
        reads = {"KEYS", "ARGV"} & free_names(code[name]) if "/_" in name else set()
        if lacking or idle or reads:
            wrong[name] = (lacking, idle, reads)
    assert wrong == {}


def constant(name: str, text: str) -> int:
    found = re.search(rf"^local {name} = (\d+)", text, re.MULTILINE)
    assert found
    return int(found[1])


def test_constants_of_the_format_are_the_same_on_both_sides() -> None:
    text = source("lock/acquire")
    assert constant("BLOCK", text) == replies.BLOCK
    assert constant("LONGEST", source("inspect/control_records")) == control_records.LONGEST
    assert constant("CLAIM", text) == 1000 * replies.CLAIM_WINDOW_S
    assert constant("KEEP", text) == 1000 * replies.KEEP_S
    assert constant("PLACE", text) == 3 * 1000 * server_queue.REFRESH_EVERY_S
    assert re.findall(r"fields\[3\] [~=]= '(\d+)'", text) == ["1", "1"]
    assert re.findall(r"'v', version or '(\d+)'", text) == ["1"]
    assert "format 1" in inspect.getsource(requests)
    assert names.MAX_NAME == 512


def test_no_text_is_ever_put_into_a_script() -> None:
    """Names and values travel in KEYS and ARGV alone: the text of a script is files as they are."""
    for path in MODULES:
        if path.parent.name == "_lua":
            continue
        text = path.read_text()
        assert "redis.call" not in text
        assert "redis.pcall" not in text
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in {"Script", "_lua.source", "source"}:
                assert isinstance(node.args[0], ast.Constant), f"{relative(path)}: {ast.unparse(node)}"
            if isinstance(node, ast.Attribute) and node.attr == "body":
                allowed = {"_net/protocol.py", "testing/keyspace/engine.py", "holdfast_lab/bench/bare.py"}
                assert relative(path) in allowed, f"{relative(path)}: {ast.unparse(node)}"
    loader = parse(ROOT / "_lua" / "__init__.py")
    formats = [node for node in ast.walk(loader) if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod)]
    assert formats == []
    assert ".format(" not in ast.unparse(loader)
