"""The keeper's connection over a client of the user's: how its thread listens, without a server."""

from __future__ import annotations

import queue
from types import SimpleNamespace
from typing import Any

from holdfast._core.requests import Command, Unknown
from holdfast._net.client_adapter import ClientLine

SUBSCRIBE = Command(("SUBSCRIBE", "channel"), 60.0)
PATIENCE = 20.0


class Subscription:
    """Of a client, as redis-py has it."""

    def __init__(self, *, broken: bool) -> None:
        self.broken = broken
        self.messages: list[dict[str, Any]] = []
        self.closed = False

    def subscribe(self, _channel: str) -> None:
        if self.broken:
            raise OSError("away")
        self.messages.append({"type": "subscribe"})

    def get_message(self, timeout: float) -> dict[str, Any] | None:
        return self.messages.pop() if self.messages else None

    def close(self) -> None:
        self.closed = True


class Endpoint:
    """Of a client whose first subscription works, and no other one."""

    address = "the server"

    def __init__(self) -> None:
        self.subscriptions: list[Subscription] = []
        self.client = SimpleNamespace(pubsub=self.pubsub)

    def pubsub(self) -> Subscription:
        self.subscriptions.append(Subscription(broken=bool(self.subscriptions)))
        return self.subscriptions[-1]


def test_a_subscription_that_was_given_up_is_not_lost_once_more() -> None:
    endpoint, said = Endpoint(), queue.SimpleQueue[object]()
    keeper = SimpleNamespace(call=lambda what: what(), safely=lambda action, *args: action(*args))
    line = ClientLine(keeper, endpoint, lambda _push: None, lambda: said.put("closed"))  # type: ignore[arg-type]
    line.call(SUBSCRIBE, lambda answer, _sent: said.put(answer))
    assert said.get(timeout=PATIENCE) is None, "subscribed"
    line.fail("the server no longer counts this inbox as subscribed")
    assert said.get(timeout=PATIENCE) == "closed"
    line.call(SUBSCRIBE, lambda answer, _sent: said.put(answer))
    assert isinstance(said.get(timeout=PATIENCE), Unknown)
    line.call(SUBSCRIBE, lambda answer, _sent: said.put(answer))
    assert isinstance(said.get(timeout=PATIENCE), Unknown), "and nobody is told again that it was closed"
    line.close()
    thread = line._thread
    assert thread is not None
    thread.join(PATIENCE)
    assert [each.closed for each in endpoint.subscriptions] == [True, True, True]
