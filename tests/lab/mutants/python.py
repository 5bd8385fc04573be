"""The operators on Python: what each makes of the nodes of a syntax tree."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import TypeVar

from lab.mutants.operators import SWAPPED, TIMES, WORDS, Change, Nth, Place, nth, only, scaled

CONTRARY: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
SHIFTED: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
SIGNS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
}
CONDITIONAL = (ast.If, ast.While, ast.IfExp)
SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
SIMPLE = (ast.Expr, ast.Assign, ast.AugAssign, ast.Return, ast.Raise, ast.Delete, ast.Break, ast.Continue)
ATOMS = (ast.Name, ast.Constant, ast.Attribute, ast.Call, ast.Subscript)

Node = TypeVar("Node", bound=ast.AST)
Nodes = list[ast.AST]
"""An expression, or statements that follow each other."""

Lines = list[tuple[int, str]]
"""The start of each line, and the line."""


def _walk(node: ast.AST, function: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Yield all nodes, and the function of each. Code without an effect at run time is left out: types, and formatted texts."""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "bases"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, ast.JoinedStr):
                continue
            yield function, child
            inner = f"{function}.{child.name}".lstrip(".") if isinstance(child, SCOPES) else function
            yield from _walk(child, inner)


def places(source: str, within: str | None = None) -> Iterator[Place]:
    """Return the places at which each operator can act, in order; ``within`` one function, if it is given."""
    at = _offsets(source)
    bound: set[tuple[str, str]] = set()
    for function, node in _all(source)[1:]:
        if within not in {None, function}:
            continue
        for operator, old, new in _variants(node, function, bound):
            yield Place(function, operator, *_span(at, [old]), _text([new], 0))
        if isinstance(node, ast.arg):
            bound.add((function, node.arg))


def _variants(node: ast.AST, function: str, bound: set[tuple[str, str]]) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Return the changes of a node by the operators: the operator, the old text, and the new one."""
    if isinstance(node, CONDITIONAL):
        for operator, new in _of_a_condition(node.test, loop=isinstance(node, ast.While)):
            yield operator, node.test, new
    elif isinstance(node, ast.Constant):
        for operator, new in _of_a_constant(node.value):
            yield operator, node, new
    elif isinstance(node, ast.expr):
        for operator, new in _of_an_expression(node):
            yield operator, node, new
    elif isinstance(node, SIMPLE) and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        if all((function, name) in bound for name in names):
            yield "dropped", node, ast.Pass()
        bound.update((function, name) for name in names)


def _of_a_condition(test: ast.expr, *, loop: bool) -> Iterator[tuple[str, ast.expr]]:
    if _contrary(test) is None:  # or it is found where the expression is
        yield "negated", ast.UnaryOp(ast.Not(), test)
    if not isinstance(test, ast.Constant):
        if not loop:
            yield "always", ast.Constant(True)
        yield "never", ast.Constant(False)


def _of_a_constant(value: object) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(value, bool):
        yield "constant changed", ast.Constant(not value)
    elif isinstance(value, int | float):
        if value:
            yield "unit swapped", ast.Constant(scaled(value))
        yield "one more", ast.Constant(value + 1)
        yield "one less", ast.Constant(value - 1)
    elif isinstance(value, str) and value in WORDS:
        yield "unit swapped", ast.Constant(WORDS[value])


def _of_an_expression(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    new = _contrary(node)
    if new is not None:
        yield "negated", new
    match node:
        case ast.Compare(ops=[op]) if type(op) in SHIFTED:
            yield "boundary shifted", _with(node, ops=[SHIFTED[type(op)]()])
        case ast.BoolOp(values=values):
            for number in range(len(values)):
                rest = values[:number] + values[number + 1 :]
                yield "operand dropped", _with(node, values=rest) if len(rest) > 1 else rest[0]
        case ast.BinOp(left=left, op=sign) if type(sign) in SIGNS and not isinstance(left, ast.Constant | ast.JoinedStr):
            yield "term dropped", left
            yield "sign swapped", _with(node, op=SIGNS[type(sign)]())
        case ast.Name(id=name, ctx=ast.Load()) if name in SWAPPED:
            yield "constant changed", ast.Name(SWAPPED[name])
        case ast.Attribute(attr=name, ctx=ast.Load()) if name in TIMES:
            yield "time swapped", _with(node, attr=TIMES[name])
        case ast.Call(func=func, args=args) if not (
            any(isinstance(each, ast.Starred) for each in args) or _is_min_or_max(func)
        ):
            for number, (one, other) in enumerate(pairwise(args)):
                yield "exchanged", _with(node, args=[*args[:number], other, one, *args[number + 2 :]])


def _is_min_or_max(node: ast.expr) -> bool:
    """Return True if a function does not mind the order of its arguments."""
    return isinstance(node, ast.Name) and node.id in {"min", "max"}


def _contrary(node: ast.expr) -> ast.expr | None:
    match node:
        case ast.Compare(ops=[op]):
            return _with(node, ops=[CONTRARY[type(op)]()])
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return operand
    return None


def _with(node: Node, **fields: object) -> Node:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def plant(source: str, function: str, change: Change) -> str:
    """The source with this change."""
    if isinstance(change, Nth):
        return nth(places(source, function), function, change).planted(source)
    at = _offsets(source)
    old, new = _parsed(change.old), _parsed(change.new)
    wanted, kind = [ast.dump(_bare(node)) for node in old], type(_bare(old[0]))
    found = set[Place]()  # an expression that is a statement is found twice
    for where, nodes in _runs(source, len(old)):
        if where == function and type(_bare(nodes[0])) is kind and [ast.dump(_bare(node)) for node in nodes] == wanted:
            start, end = _span(at, nodes)
            indent = start - source.rfind("\n", 0, start) - 1
            found.add(Place(function, "", start, end, _text(new, indent)))
    return only(sorted(found, key=lambda place: place.start), change).planted(source)


@lru_cache(8)
def _all(source: str) -> list[tuple[str, ast.AST]]:
    """All nodes of a file, and the function each is in. Kept, as several defects of one file follow each other."""
    tree = ast.parse(source)
    return [("", tree), *_walk(tree)]


def _runs(source: str, length: int) -> Iterator[tuple[str, Nodes]]:
    """Each expression, and so many statements as follow each other."""
    for function, node in _all(source):
        inner = f"{function}.{node.name}".lstrip(".") if isinstance(node, SCOPES) else function
        if isinstance(node, ast.expr):
            yield function, [node]
        for field in ("body", "orelse", "finalbody"):
            body = getattr(node, field, None)
            if isinstance(body, list):
                yield from ((inner, body[first : first + length]) for first in range(len(body) - length + 1))


def _parsed(text: str) -> Nodes:
    body = ast.parse(text).body
    return [body[0].value] if len(body) == 1 and isinstance(body[0], ast.Expr) else list(body) or [ast.Pass()]


def _bare(node: ast.AST) -> ast.AST:
    """An expression that is a statement, as an expression."""
    return node.value if isinstance(node, ast.Expr) else node


def _offsets(source: str) -> Lines:
    lines = source.splitlines(keepends=True)
    return list(zip(accumulate(map(len, lines), initial=0), lines, strict=False))


def _span(at: Lines, nodes: Nodes) -> tuple[int, int]:
    first, last = nodes[0], nodes[-1]
    assert isinstance(first, ast.expr | ast.stmt)
    assert isinstance(last, ast.expr | ast.stmt)
    assert last.end_lineno is not None
    assert last.end_col_offset is not None
    return _offset(at, first.lineno, first.col_offset), _offset(at, last.end_lineno, last.end_col_offset)


def _offset(at: Lines, line: int, column: int) -> int:
    """The compiler counts columns in bytes."""
    start, text = at[line - 1]
    return start + len(text.encode()[:column].decode())


def _text(nodes: Nodes, indent: int) -> str:
    """As source: an expression in parentheses, as nobody knows what it stands next to."""
    if len(nodes) == 1 and isinstance(nodes[0], ast.expr):
        text = ast.unparse(nodes[0])
        return text if isinstance(nodes[0], ATOMS) else f"({text})"
    return "\n".join(ast.unparse(node) for node in nodes).replace("\n", "\n" + " " * indent)
