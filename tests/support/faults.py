"""Fixtures of the fault tests: both APIs, and a proxy in front of the common server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import holdfast
from holdfast._core.lock.replies import ACQUIRE, REFRESH, RELEASE, RENEW
from holdfast._core.lock.ticket import EXCHANGE_TOKEN
from support.apis import Admin, Aio, Api, Sync
from support.levels import level
from support.proxy import Proxy
from support.servers import PrivateServer


@pytest.fixture(autouse=True)
def _fresh_process(request: pytest.FixtureRequest, dropped_is_found: None) -> Iterator[None]:
    """No keeper and no connection of one fault test meets the next."""
    yield
    if level(request.path) == "faults":
        holdfast.close()


@pytest.fixture(params=["sync", "asyncio"])
def api(request: pytest.FixtureRequest, _fresh_process: None) -> Iterator[Api]:
    """Each of the two APIs."""
    api: Api = Sync() if request.param == "sync" else Aio()
    yield api
    api.close()


@pytest.fixture
def both_apis(_fresh_process: None) -> Iterator[tuple[Sync, Aio]]:
    """Both at once, where the test takes long by its nature."""
    apis = Sync(), Aio()
    yield apis
    apis[1].close()


@pytest.fixture
def any_api(_fresh_process: None) -> Api:
    """One of the two, where only the keeper is harmed, which is the same for both."""
    return Sync()


@pytest.fixture
def admin(server: PrivateServer, name: str) -> Iterator[Admin]:
    """Looks at the lock ``name`` on the common server, which knows all scripts."""
    admin = Admin(server, name)
    for script in (ACQUIRE, REFRESH, RELEASE, RENEW, EXCHANGE_TOKEN):
        admin.redis.script_load(script.body)
    yield admin
    admin.close()


@pytest.fixture
def proxy(server: PrivateServer, admin: Admin) -> Iterator[Proxy]:
    """In front of the common server."""
    with Proxy(server) as proxy:
        yield proxy
