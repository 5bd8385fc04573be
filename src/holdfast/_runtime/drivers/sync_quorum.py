"""The driver of operations on several servers, in the calling thread. The asyncio driver is `_runtime.drivers.aio_quorum`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from holdfast._core.requests import (
    AwaitNotice,
    GiveBack,
    NewToken,
    Now,
    Poll,
    RunOn,
    Sleep,
    Subscribe,
    Unsubscribe,
    WaitLocally,
)
from holdfast._net.endpoint import Endpoint
from holdfast._runtime.drivers.sync import Runner
from holdfast._runtime.fanout import fanouts_of
from holdfast._runtime.process import Process

if TYPE_CHECKING:
    from holdfast._core.requests import QuorumRequest


class Driver(Runner):
    def __init__(self, process: Process, endpoints: tuple[Endpoint, ...]) -> None:
        self.process = process
        self.endpoint = self.servers = endpoints
        self._fanouts = fanouts_of(process, endpoints)

    def do(self, request: QuorumRequest) -> Any:  # noqa: C901, PLR0911 - one for each kind of request
        match request:
            case Poll():
                return self._fanouts.poll(request)
            case NewToken():
                return self.process.token()
            case Now():
                return self.process.clock()
            case WaitLocally():
                return self._wait_locally(request.attempt)
            case Sleep():
                return self.process.system.sleep(request.seconds)
            case Subscribe():
                return self._subscribe(request)
            case AwaitNotice():
                return self._await_notice(request)
            case Unsubscribe():
                return self.process.unsubscribe(self.servers, request.listener)
            case GiveBack():
                return self.process.send_until_answered(self.servers, request)
            case RunOn():
                return request.home.run(request.operation)
            case _:
                assert_never(request)
