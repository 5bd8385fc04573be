"""The options of `FairLock` for both APIs: those of a `Lock`, without the ones for handing on inside a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Never

from holdfast._api.lock import BaseLock, L
from holdfast._api.options import refuse_mistaken
from holdfast._durations import Seconds
from holdfast._net.clients import Client
from holdfast._net.redaction import hides_client


class BaseFairLock(BaseLock[L, Client]):
    """The options of a lock that is never handed on inside a process. The server grants it in the order of arrival."""

    _shared = False

    @hides_client("FairLock.__init__")
    def __init__(
        self,
        client: Client,
        name: str | bytes,
        *,
        ttl: Seconds = 30.0,
        wait: Seconds | None = None,
        renew: bool = True,
        on_lost: Callable[[L], object] | None = None,
        max_hold: Seconds | None = None,
        progress_within: Seconds | None = None,
        label: str | None = None,
        prefix: str = "hf:",
        key: str | bytes | None = None,
        replicas: int = 0,
        quarantine: bool | Seconds = False,
        deadlock: Literal["wait", "raise"] = "wait",
        **mistaken: Never,
    ) -> None:
        refuse_mistaken(mistaken, type(self).__name__)
        super().__init__(
            client,
            name,
            ttl=ttl,
            wait=wait,
            renew=renew,
            on_lost=on_lost,
            max_hold=max_hold,
            progress_within=progress_within,
            label=label,
            prefix=prefix,
            key=key,
            replicas=replicas,
            quarantine=quarantine,
            deadlock=deadlock,
        )
