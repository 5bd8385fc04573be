"""Is the public interface what is written down? See `house.public`."""

from __future__ import annotations

import ast
import asyncio
import inspect
import re
import textwrap
from types import ModuleType

import pytest

import holdfast
from holdfast import aio, schedule
from holdfast._local.server.process import PrivateServer
from house import public

OF_OTHERS = {
    "Any", "AsyncIterator", "Awaitable", "Callable", "Coroutine", "Event", "Exception", "Generic", "Iterable", "Iterator",
    "Literal", "Mapping", "None", "Pipeline", "Redis", "Self", "Never", "T", "P", "F", "L", "Skipped_co",
}  # fmt: skip
"""Names in annotations that are not holdfast's."""

UNNAMED = {
    "Decorator": "a protocol: what `locked` and `once` return is used as a decorator, and nothing else",
    "Function": "the type of a decorated function",
}
"""Names in annotations of public functions that users need not import, each with the reason."""


def test_names_and_signatures() -> None:
    assert public.names() == public.NAMES.read_text(), "run `make api`, and review what it changes"


def test_help() -> None:
    assert public.helps() == public.HELP.read_text(), "run `make api`, and review what it changes"


def test_errors() -> None:
    assert public.errors() == public.ERRORS.read_text(), "run `make api`, and review what it changes"


def test_the_help_of_the_package_names_what_users_call() -> None:
    told = set(re.findall(r"\w+", str(holdfast.__doc__)))
    errors = {name for name in holdfast.__all__ if hasattr(holdfast.errors, name)}
    results = public.GIVEN | {"BrokenBarrier", "LockStatistics", "Once", "RedeemedLock", "Transaction"}
    assert set(holdfast.__all__) - told - public.ALIASES - errors - results == set()


@pytest.mark.parametrize("api", [holdfast, aio], ids=["sync", "asyncio"])
def test_the_example_in_the_help_of_the_package_runs(
    api: ModuleType, server: PrivateServer, capsys: pytest.CaptureFixture[str]
) -> None:
    example = re.findall(r"^    .*\n|^\n(?=    )", str(api.__doc__).partition("\n")[2], re.MULTILINE)
    text = textwrap.dedent("".join(example)).replace("redis://localhost", server.url)
    code = compile(text, "help", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
    result = eval(code, {})  # noqa: S307 (the example)
    if inspect.iscoroutine(result):
        asyncio.run(result)
    assert re.fullmatch(r"nobody else has the lock; fence \d{16}\n", capsys.readouterr().out)


@pytest.mark.parametrize("api", [holdfast, aio], ids=["sync", "asyncio"])
def test_users_can_import_the_types_of_all_results(api: ModuleType) -> None:
    (section,) = re.findall(rf"^## {re.escape(api.__name__)}\n(.*?)(?=^## |\Z)", public.names(), re.MULTILINE | re.DOTALL)
    returned = {
        name
        for result in re.findall(r"\) -> (.*)|^    \.\w+ -> (.*)", section, re.MULTILINE)
        for name in re.findall(r"\b[A-Z]\w*", "".join(result))
    }
    assert sorted(returned - OF_OTHERS - UNNAMED.keys() - {*api.__all__, *schedule.__all__}) == []


def test_every_error_can_be_imported_from_both() -> None:
    """A module that imports only `holdfast.aio` handles all errors."""
    errors = {
        name for name in holdfast.__all__ if isinstance(thing := getattr(holdfast, name), type) and issubclass(thing, Exception)
    }
    assert {name for name in errors if getattr(aio, name, None) is not getattr(holdfast, name)} == {"BrokenBarrier"}
    assert issubclass(aio.BrokenBarrier, holdfast.BrokenBarrier)
    assert errors <= set(aio.__all__)
