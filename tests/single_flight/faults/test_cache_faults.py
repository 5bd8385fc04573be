"""A cache between faults: what comes late is not stored over what is newer."""

from __future__ import annotations

import pytest

from single_flight.live.either_cache import either
from support.proxy import Proxy
from support.servers import PrivateServer
from support.witness import in_thread


@pytest.mark.parametrize("api", ["sync", "asyncio"])
def test_a_late_copy_of_a_set_is_not_stored_over_what_is_newer(server: PrivateServer, name: str, api: str) -> None:
    with Proxy(server) as proxy, either(api) as make:
        cache, other = make(proxy.url, name), make(server.url, name)
        cache.set("a", 0)
        late = proxy.on("other", action="hold")
        setting = in_thread(cache.set, "a", 1)
        assert late.seen.wait(10)
        proxy.drop_client(late.requests[0].link)
        setting.result(10)
        assert other.get("a") == 1
        other.invalidate("a")
        late.go()
        assert late.done.wait(10)
        assert other.get("a") is None
