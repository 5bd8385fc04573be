"""One module decides what a user has passed as ``client``: `holdfast._net.resolve`. Others ask it, or read the `Endpoint`.

Each other place that examines a client, a URL or an endpoint by itself has a reason here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast

ROOT = Path(holdfast.__file__).parent

OF_CLIENTS = {
    "connection_class",
    "connection_kwargs",
    "connection_pool",
    "immediate_execute_command",
    "nodes_manager",
    "sentinel_manager",
}
"""Attributes by which clients of redis-py and valkey-py are told apart."""

ARGUMENTS = {"client", "clients", "servers", "url", "urls", "endpoint", "place", "finder", "pool", "stream"}
"""Names, without a leading underscore, of variables that hold what a user has passed, or what was found for it."""

OF_ENDPOINTS = {"client", "cluster", "finder", "local"}
"""Attributes of an endpoint that are None for most kinds."""

PARTS = {"startswith", "partition", "rpartition", "removeprefix", "split", "replace", "find", "index"}


def questions(source: str) -> Iterator[str]:
    """Return what a module examines: "client" (an object of a client library), "type", "URL" or "endpoint"."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Attribute(_, name) if name in OF_CLIENTS:
                yield "client"
            case ast.Call(ast.Name("hasattr" | "getattr"), [_, ast.Constant(name), *_]) if name in {*OF_CLIENTS, "url"}:
                yield "client"
            case ast.Call(ast.Attribute(_, "iscoroutinefunction"), [ast.Attribute(_, "execute_command")]):
                yield "client"
            case ast.Call(ast.Name("isinstance"), [tested, _]) if name_of(tested) in ARGUMENTS:
                yield "type"
            case ast.Call(ast.Attribute(_, method), [ast.Constant(text), *_]) if method in PARTS and is_scheme(text):
                yield "URL"
            case ast.Compare(ast.Constant(text), [ast.In() | ast.NotIn()], _) if is_scheme(text):
                yield "URL"
            case ast.Compare(tested, [ast.Is() | ast.IsNot()], [ast.Constant(None)]) if shows_kind(tested):
                yield "endpoint"


def name_of(tested: ast.expr) -> str:
    return ast.unparse(tested).rpartition(".")[2].lstrip("_")


def shows_kind(tested: ast.expr) -> bool:
    """Return True for an attribute that shows the kind of an endpoint, and for a variable with a Cluster."""
    return name_of(tested) in OF_ENDPOINTS if isinstance(tested, ast.Attribute) else name_of(tested) == "cluster"


def is_scheme(text: object) -> bool:
    return isinstance(text, str) and ("://" in text or text == "local:")


TRANSPORT = "it chooses the code for this kind of endpoint"
SHARD = "it finds the server of a key in a Cluster"

OTHERS = {
    "client": {
        "_api/transaction_options.py": "the address in error messages of a transaction that the user's own client sends",
        "_net/own_clients.py": "it closes a client that holdfast has made for a URL",
        "_net/resolve.py": "it is the module that decides",
        "_net/sentinel.py": "it reads the settings of a client after `resolve` has found that it asks Sentinels",
        "doctor/probe.py": "it reports the settings of the pool of a client whose own calls are used",
    },
    "type": {
        "_api/base_lock.py": "the endpoints of a lock on several servers are a tuple",
        "_api/caller.py": "a caller is also made for an endpoint that was found already",
        "_api/multilock.py": "the endpoints of a lock on several servers are a tuple",
        "_api/redlock.py": "the first argument is always several servers, also an iterator of them; this checks it",
        "_api/rlock.py": "the endpoints of a lock on several servers are a tuple",
        "_net/own_clients.py": "it makes a client for a URL of Sentinels",
        "_net/resolve.py": "it is the module that decides",
        "_runtime/drivers/aio.py": "it asks which transport `stream_to` has chosen",
        "_runtime/drivers/replication.py": "for mypy: locks that wait for replicas are refused with other transports",
        "_runtime/drivers/sync.py": "it asks which transport `pool_to` has chosen",
        "_runtime/keeper/thread.py": "the endpoints of a lock on several servers are a tuple",
        "doctor/__init__.py": "the names of servers that vote together are the keys of a mapping",
    },
    "URL": {
        "_api/redlock.py": "it chooses the hint of an error",
        "_local/environment.py": "it hides passwords in a text of which nobody knows whether it is a valid URL",
        "_local/server/paths.py": "it parses the URL of a local server",
        "cli/output.py": "it hides passwords in a text that is printed, wherever a URL is in it",
        "cli/servers.py": "it names the variable whose text is not a URL",
        "_net/url.py": "it is the module that parses URLs",
    },
    "endpoint": {
        "_api/acquisition.py": SHARD,
        "_api/base_lock.py": "options that this kind of server cannot have, and the slot of a lock in a Cluster",
        "_api/caller.py": SHARD,
        "_api/election_lock.py": SHARD,
        "_api/inspector.py": SHARD,
        "_api/redlock.py": "a Cluster cannot vote",
        "_api/transaction.py": TRANSPORT,
        "_net/aio_connection.py": TRANSPORT,
        "_net/cluster.py": "it looks for a Cluster in its table",
        "_net/endpoint.py": "it is the class of endpoints",
        "_net/pipelined_connection.py": TRANSPORT,
        "_net/protocol.py": "an error after which Sentinels have to be asked again",
        "_net/sync_connection.py": TRANSPORT,
        "_net/system.py": TRANSPORT,
        "_net/transport.py": TRANSPORT,
        "_runtime/drivers/aio_choice.py": TRANSPORT,
        "_runtime/drivers/choice.py": TRANSPORT,
        "_runtime/keeper/foreign_locks.py": "it makes no calls of the user's own client, which has other work",
        "_runtime/keeper/lines.py": TRANSPORT,
        "_runtime/keeper/thread.py": "all shards of a Cluster share its state",
        "cli/demo/stage.py": TRANSPORT,
        "doctor/__init__.py": "what cannot be checked together, or from another event loop",
        "doctor/probe.py": TRANSPORT,
        "doctor/targets.py": TRANSPORT,
    },
}
"""For each question, the modules that ask it, each with the reason. The questions are those of `questions`."""


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('hasattr(client, "nodes_manager")', "client"),
        ('getattr(client, "url", client)', "client"),
        ("client.connection_pool", "client"),
        ("inspect.iscoroutinefunction(client.execute_command)", "client"),
        ("isinstance(self._client, Mapping)", "type"),
        ("isinstance(servers, list | tuple)", "type"),
        ('url.startswith("redis://")', "URL"),
        ('scheme == 1 or "://" in text', "URL"),
        ("endpoint.cluster is None", "endpoint"),
        ("if self.endpoint.finder is not None: pass", "endpoint"),
        ('isinstance(name, str) and name.startswith("hf:")', ""),
        ("are_several(client)", ""),
    ],
)
def test_questions_are_found(source: str, found: str) -> None:
    assert set(questions(source)) == ({found} if found else set())


def test_each_module_that_examines_a_client_or_an_endpoint_has_a_reason() -> None:
    found = {(asked, path.relative_to(ROOT).as_posix()) for path in ROOT.rglob("*.py") for asked in questions(path.read_text())}
    assert found == {(asked, module) for asked, modules in OTHERS.items() for module in modules}
