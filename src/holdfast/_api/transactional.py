"""The decorator `transactional` runs a function in a transaction, and repeats it after a conflict.

The function's arguments name the keys.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from holdfast._api import transaction_options
from holdfast._api.flow import as_coroutine_function, as_function
from holdfast._api.functions import is_async, named, refuse_generator, takes_options
from holdfast._api.options import explain_words
from holdfast._api.templates import Filled
from holdfast._api.transaction import AioTransaction, BaseTransaction, Transaction
from holdfast._core.transaction import TRIES
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient, Connected, SyncClient
from holdfast._net.redaction import hides_client
from holdfast.errors import ConfigError

P = ParamSpec("P")
S = TypeVar("S")
T = TypeVar("T")
Tx_contra = TypeVar("Tx_contra", bound=BaseTransaction[Any], contravariant=True)


class Decorator(Protocol):
    """A decorator that removes the parameter ``tx``: the first of a function, or the first after ``self`` of a method."""

    @overload
    def __call__(self, function: Callable[Concatenate[Tx_contra, P], T], /) -> Callable[P, T]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[S, Tx_contra, P], T], /) -> Callable[Concatenate[S, P], T]: ...


@takes_options('@transactional(client, "stock:{sku}")')
@hides_client(words=explain_words)
def transactional(
    client: SyncClient | AsyncClient | Connected, *templates: str, tries: int = TRIES, wait: Seconds | None = None
) -> Decorator:
    """Run a function, plain or coroutine, in a transaction, and repeat it after each conflict with another client.

        @holdfast.transactional(client, "stock:{sku}")
        def sell(tx: holdfast.Transaction, sku: str) -> bool:
            left = int(tx.read.get(f"stock:{sku}") or 0)
            if left:
                tx.queue.set(f"stock:{sku}", left - 1)
            return left > 0

        sell("apple")

    The function has a parameter ``tx``, which receives the transaction after WATCH. Callers do not pass it. The function may
    run several times, with all its other effects.

    Args:
        client: as for `transaction`; for a coroutine function, an asyncio client or a URL.
        templates: the keys to watch, filled from the function's arguments, including defaults. They may contain names of
            arguments, but no attributes or indexes. Write ``{{`` for a brace.
        tries: as for `Transaction.run`.
        wait: as for `Transaction.run`.

    Raises ConfigError at decoration if an option or a template is invalid. Calls return and raise what `Transaction.run`
    returns and raises.
    """
    transaction_options.limits(tries, wait)

    @hides_client()
    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        refuse_generator(function, "its body would run after EXEC; use a with statement inside it")
        signature, at = _without_tx(function)
        awaited = is_async(function)
        make: Any = AioTransaction if awaited else Transaction
        make(client, *templates)  # Refuses missing keys and a client of the other API now, not at the first call.

        async def begin(*args: Any, **kwargs: Any) -> Any:
            def body(tx: object) -> Any:
                if at is None or len(args) < at:
                    return function(*args, tx=tx, **kwargs)
                return function(*args[:at], tx, *args[at:], **kwargs)

            result = make(client, *keys(args, kwargs)).run(body, tries=tries, wait=wait)
            return await result if awaited else result

        run = as_coroutine_function(begin, function) if awaited else as_function(begin, function)
        run.__signature__ = signature  # type: ignore[attr-defined]
        keys = Filled(run, *templates)
        return run

    return decorate


def _without_tx(function: Callable[..., Any]) -> tuple[inspect.Signature, int | None]:
    """Return the signature that callers see, and the position of ``tx`` among the arguments; None: keyword-only."""
    signature = inspect.signature(function)
    names, tx = list(signature.parameters), signature.parameters.get("tx")
    if tx is None or tx.kind in {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD}:
        raise ConfigError(f"{named(function)} needs a parameter tx, which receives the transaction", parameter="function")
    rest = [parameter for name, parameter in signature.parameters.items() if name != "tx"]
    at = None if tx.kind is inspect.Parameter.KEYWORD_ONLY else names.index("tx")
    return signature.replace(parameters=rest), at
