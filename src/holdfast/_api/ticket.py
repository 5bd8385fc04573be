"""The text of tickets, and how a lease becomes a ticket. `holdfast._api.redeem` takes over the lock of a ticket."""

from __future__ import annotations

import base64
import json
import re
from contextlib import nullcontext
from typing import Any, NamedTuple

from holdfast._api import error_map, options
from holdfast._api.lease_core import LeaseCore
from holdfast._core import control_records
from holdfast._core.lock import ticket as ticket_operations
from holdfast._core.lock.acquire import KeyConflict
from holdfast._core.lock.records import Attempt
from holdfast._core.lock.spec import Spec
from holdfast._core.lock.ticket import NotExchanged
from holdfast._core.names import lock_keys, name_of, raw_key, start
from holdfast._core.requests import WireError
from holdfast._durations import Seconds
from holdfast.errors import ConfigError, HoldfastError

FORMAT = "hft1."
"""Start of every ticket, with the version of its format. The rest is a JSON list in base64."""

TOKEN = re.compile(r"[0-9a-f]{12}(\{[0-9a-fA-F]{4}\})?(@([0-9a-f]{2}){1,512})?\.[0-9a-f]{32}")
"""Pattern of a ticket's token: id of the process that issued the ticket, the prefix of the lock if the key does not show
it, and 128 random bits."""

UNKNOWN_END = 9_999_999_999_999
"""Placeholder for a ticket's end (milliseconds of server time) until it is known. It has as many digits as a real one."""

LONGEST = 8192
"""Maximum number of characters of a ticket. It may contain the lock's name of up to 512 bytes twice, with each byte escaped."""


class Ticket(str):
    """A held lock on its way to another process, which takes it over with `holdfast.redeem`.

    Send or store it like any other text: by JSON, pickle, ``.encode()``, ``file.write`` or as a task's argument. Anybody who
    has the ticket can take over the lock, so treat it as a secret. Therefore ``repr``, ``str``, ``print``, ``%s`` and f-strings
    show only the name of the lock; `reveal` returns the full text.
    """

    __slots__ = ()

    def reveal(self) -> str:
        """Return the full text of the ticket, which is a secret."""
        return str.__str__(self)

    def __repr__(self) -> str:
        try:
            name = repr(read(self.reveal()).name)
        except ConfigError:
            name = "nothing"  # The object was created from a text that is not a ticket.
        return f"<holdfast ticket for {name}>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)


class TicketFields(NamedTuple):
    """The fields that a ticket contains."""

    name: str
    key: bytes
    token: str
    ends: int
    """Server time in milliseconds at which the ticket expires."""
    quarantine: float
    """Seconds of the lock's ``quarantine``; 0: none."""
    replicas: int
    """Number of replicas that must confirm an acquisition."""

    def __repr__(self) -> str:
        return f"<what a ticket for {self.name!r} says>"


def write(spec: Spec, token: str, ends: int) -> Ticket:
    """Return a ticket for a lock that this token holds now, until server time ``ends`` (milliseconds)."""
    said = [spec.name, spec.keys[0].decode("latin-1"), token, ends, spec.quarantine, spec.replicas]
    return Ticket(FORMAT + base64.urlsafe_b64encode(json.dumps(said, separators=(",", ":")).encode()).decode())


def read(ticket: object) -> TicketFields:
    if isinstance(ticket, bytes):
        ticket = ticket.decode("ascii", "replace")
    if not isinstance(ticket, str):
        raise bad(f"is not text, but of type {type(ticket).__name__}")
    text = str.__str__(ticket).strip()  # Not str(ticket), which hides the text; and files end with a newline.
    if text.startswith("<holdfast ticket"):
        raise bad("is the printed form of a ticket; pass the ticket itself, or the text that its reveal() returns")
    if not text.startswith(FORMAT) or len(text) > LONGEST:
        raise bad("is not a ticket")
    try:
        name, key, token, ends, quarantine, replicas = control_records.parse(
            base64.b64decode(text[len(FORMAT) :], b"-_", validate=True), LONGEST
        )
        told = TicketFields(
            control_records.text(name, LONGEST),
            control_records.text(key, LONGEST).encode("latin-1"),
            control_records.text(token, LONGEST).encode("ascii").decode(),
            control_records.whole(ends, 0, 2**53),
            control_records.number(quarantine),
            control_records.whole(replicas, 0, 2**31),
        )
    except (ValueError, TypeError):
        raise bad("is damaged") from None  # The original error would show parts of the ticket, which is a secret.
    if not told.key or not told.token or told.quarantine < 0:
        raise bad("is damaged")
    return told


def bound(told: TicketFields, prefix: str, key: str | bytes | None) -> None:
    """Check that a ticket is for the key of the lock that it names. Raises ConfigError if not.

    Redeeming a ticket replaces that key and finally deletes it, so a forged or altered ticket must not name another key.
    """
    if not TOKEN.fullmatch(told.token):
        raise bad("is damaged: it has no valid token")
    if key is not None:
        if raw_key(key) != told.key:
            raise bad(f"is for the key {_shown(told.key)}, not for key={key!r}")
        return
    name = name_of(told.key, start(prefix))
    if name is None or _shown(name) != repr(told.name) or lock_keys(name, prefix, None)[0] != told.key:
        raise bad(
            f"is for lock {told.name!r} with the key {_shown(told.key)}, but with this call's prefix the lock has another key; "
            "pass the prefix= or the key= with which the lock was created"
        )


def _shown(raw: bytes) -> str:
    return repr(raw.decode(errors="backslashreplace"))


def bad(why: str) -> ConfigError:
    return ConfigError(f"ticket: the given value {why}", parameter="ticket")


class Issue:
    """The replacement of a lease by a ticket. Once the replacement has begun, this process no longer uses the lease.

    The lease goes on only if the server has certainly not issued the ticket.
    """

    def __init__(self, core: LeaseCore, expires: Seconds, token: str = "") -> None:
        self._core = core
        spec = core.held_lease.spec
        self._seconds = options.seconds(expires, "expires", options.MIN_TTL, spec.quarantine or options.MAX_TTL)
        self._ticket = Attempt(spec, token)
        self._begun = False

    async def operation(self) -> Ticket:
        """Issue the ticket on the server and return it. `LockLease.ticket` runs this operation."""
        self._begin()
        held_lease, ticket = self._core.held_lease, self._ticket
        try:
            found = await ticket_operations.issue(ticket, held_lease.token, self._seconds)
        except (WireError, KeyConflict) as error:
            if ticket.maybe_in_flight:
                raise self._lost("the server did not confirm the ticket, so the lock was released") from error
            self._go_on()
            if isinstance(error, WireError):
                raise error_map.server_error(held_lease.spec, error) from error_map.cause(error)
            raise ConfigError(f"lock {self._core.name!r} cannot be handed over: {error}", parameter="name") from error
        except BaseException:
            self._lost("issuing a ticket was interrupted, so the lock was released")
            raise
        if isinstance(found, NotExchanged):
            raise self._lost("its key is gone, or another client holds the lock")
        held_lease.end()
        self._core.handed_over = True
        self._core.count_time(self._core.process.clock())
        if self._core.attempt.local_queue is not None:
            self._core.attempt.local_queue.on_released(self._core.attempt)
        return write(held_lease.spec, ticket.token, found.ends)

    async def undo(self) -> None:
        """Revoke the ticket after an interrupt at an unknown point, because nobody has received the ticket."""
        if self._begun:
            self._lost("issuing a ticket was interrupted, so the lock was released")
            await ticket_operations.take_back(self._ticket, self._core.held_lease.token)

    def _begin(self) -> None:
        """Stop using and renewing the lease. Once the ticket exists, a renewal would report the lease as lost."""
        core = self._core
        core.check()
        core.may_hand_over()
        local_queue, held_lease = core.attempt.local_queue, core.held_lease
        with local_queue.mutex if local_queue is not None else nullcontext():
            if held_lease.over or (local_queue is not None and not local_queue.has_lease(core.attempt)):
                raise core.not_held()
            self._begun = held_lease.over = True
        core.forget()

    def _go_on(self) -> None:
        """Resume the lease, because the server has certainly not issued the ticket."""
        self._core.held_lease.over = self._begun = False
        self._core.look_again()

    def _lost(self, reason: str) -> HoldfastError:
        core = self._core
        core.held_lease.over = core.handed_over = False
        if core.held_lease.lose(reason):
            core.forget()
            core.notice_loss()
        return core.lease_lost()


def issue(core: Any, expires: Seconds, token: str = "") -> Ticket:
    """Issue a ticket for the lease of a thread. ``token``: token of the ticket; empty: draw a new one."""
    issuing = Issue(core, expires, token)
    try:
        return core.run(issuing.operation)  # type: ignore[no-any-return]
    except HoldfastError:
        raise
    except BaseException:
        # An exception of an interrupt or a signal handler can come at any line.
        core.run(issuing.undo)
        raise


async def aio_issue(core: Any, expires: Seconds) -> Ticket:
    ticket: Ticket = await core.run(Issue(core, expires).operation)
    return ticket
