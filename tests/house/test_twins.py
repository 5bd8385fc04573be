"""No algorithm is written twice, once for threads and once for asyncio: bodies of functions are compared without ``await``."""

from __future__ import annotations

import ast
import copy
from pathlib import Path
from typing import Any

import holdfast

ROOT = Path(holdfast.__file__).parent

SHORT = 3
"""Most statements of a body that may stand twice: a shell over a flow has no more."""

APART = ("bench",)
"""Folders left out: what a benchmark measures must be the plain loop of each API, with no flow in between."""

LEFT = {
    ("_core/lock/node.py local_queue", "_core/quorum/nodes.py local_queue"),
}
"""Bodies that still stand twice. The list only becomes shorter."""


class Plain(ast.NodeTransformer):
    """Removes what differs between the two APIs: async, await, `complete`, annotations, and the names of asyncio."""

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> Any:
        return self.visit(ast.FunctionDef(**vars(node)))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> Any:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> Any:
        node.annotation = None
        return node

    def visit_AsyncWith(self, node: ast.AsyncWith) -> Any:
        return self.visit(ast.With(**vars(node)))

    def visit_AsyncFor(self, node: ast.AsyncFor) -> Any:
        return self.visit(ast.For(**vars(node)))

    def visit_Await(self, node: ast.Await) -> Any:
        return self.visit(node.value)

    def visit_Call(self, node: ast.Call) -> Any:
        if isinstance(node.func, ast.Name) and node.func.id == "complete":
            return self.visit(node.args[0])
        return self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> Any:
        node.id = node.id.removeprefix("Aio").removeprefix("aio_")
        return node

    def visit_Attribute(self, node: ast.Attribute) -> Any:
        node.attr = node.attr.replace("__aenter__", "__enter__").replace("__aexit__", "__exit__")
        return self.generic_visit(node)


def body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.stmt]:
    """The statements of a function, without its docstring."""
    return function.body[1:] if ast.get_docstring(function) is not None else function.body


def twins(sources: dict[str, str]) -> set[tuple[str, ...]]:
    """The functions whose long bodies are the same, each as "file name"."""
    found: dict[str, list[str]] = {}
    for file, source in sources.items():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                statements = [Plain().visit(copy.deepcopy(statement)) for statement in body(node)]
                if sum(isinstance(part, ast.stmt) for one in statements for part in ast.walk(one)) > SHORT:
                    found.setdefault("\n".join(map(ast.dump, statements)), []).append(f"{file} {node.name}")
    return {tuple(sorted(places)) for places in found.values() if len(places) > 1}


SYNC = """
def take(self, wait: float) -> Lease:
    with self.mutex:
        lease = complete(self.ask(Lock, wait))
    for one in lease.parts:
        one.check()
    return lease
"""
ASYNCIO = """
async def take_in_task(self, wait):
    '''Take it.'''
    async with self.mutex:
        lease = await self.ask(AioLock, wait)
    async for one in lease.parts:
        await one.check()
    return lease
"""


def test_twins_are_found() -> None:
    assert twins({"a": SYNC, "b": ASYNCIO}) == {("a take", "b take_in_task")}
    assert twins({"a": SYNC, "b": ASYNCIO.replace("one.check", "one.look")}) == set()


def test_no_body_stands_twice() -> None:
    paths = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.rglob("*.py"))}
    assert twins({name: path.read_text() for name, path in paths.items() if not name.startswith(APART)}) == LEFT
