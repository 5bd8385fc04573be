"""Row 7: fork while holding or waiting. The child holds nothing, keeps nothing of its parent alive, has its own locks."""

from __future__ import annotations

import ast
import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

import holdfast
import holdfast.aio
from holdfast import _lazy
from holdfast._core.lock.replies import CLAIM_WINDOW_S
from holdfast._lazy import later
from support.apis import Admin, Api, at_most, until
from support.peer import Peer
from support.servers import PrivateServer
from support.witness import lease_record

if TYPE_CHECKING:
    from conftest import NewServer

pytestmark = [
    pytest.mark.filterwarnings("ignore::holdfast.HoldfastWarning"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning"),  # which is what is tested here
]

TTL = 1.2


def in_child(action: Callable[[], Any]) -> Any:
    """Return the result of a call in a forked child; or the error, by name."""
    hear, say = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(say, repr(action()).encode())
        except BaseException as error:
            os.write(say, repr(f"{type(error).__name__}: {error}").encode())
        finally:
            os._exit(0)
    os.close(say)
    with os.fdopen(hear, "rb") as pipe:
        said = pipe.read()
    os.waitpid(pid, 0)
    return ast.literal_eval(said.decode())


def run(api: Api, what: Callable[..., Any], *args: Any) -> Any:
    """`api.call` in a child, where the thread of its event loop does not exist: the result, or the error's name."""
    try:
        return asyncio.run(what(*args)) if api.name == "asyncio" else what(*args)
    except Exception as error:
        return type(error).__name__


@pytest.mark.fault(7)
def test_row_7_a_child_holds_nothing(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 7: release raises NotHeld, remaining is 0, check raises; the parent's lock stays and is renewed."""
    lock = api.Lock(server.url, name, ttl=TTL)
    assert api.call(lock.acquire)
    lease, token = lock.lease, admin.token()
    seen = in_child(
        lambda: [
            run(api, lock.release),
            run(api, lease.release),
            run(api, lease.renew),
            lease.remaining(),
            lease.lost.is_set(),
            run(api, lock.acquire, False),
        ]
    )
    assert seen == ["NotHeld", "NotHeld", "NotHeld", 0.0, True, False]
    admin.renewed()
    assert admin.token() == token
    assert not lease.lost.is_set()
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(7)
@pytest.mark.parametrize("several", [False, True], ids=["Lock", "MultiLock"])
def test_row_7_the_error_in_a_child_says_whose_the_lease_is(server: PrivateServer, name: str, *, several: bool) -> None:
    """Row 7: but not if the lease was released before the fork."""
    locks = [holdfast.Lock(server.url, f"{name} {number}", ttl=TTL) for number in (1, 2)]
    lock = holdfast.MultiLock(locks) if several else locks[0]
    assert lock.acquire()
    assert "is not held by this process: the lease belongs to the process that forked this one" in in_child(lock.release)
    lock.release()
    assert in_child(lock.release).startswith("NotHeld: ")
    assert "forked" not in in_child(lock.release)


@pytest.mark.fault(7)
def test_row_7_a_child_leaves_a_with_and_nothing_happens(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 7: in redis-py the child released the parent's lock here."""
    lock = api.Lock(server.url, name, ttl=TTL)
    enter, leave = ("__enter__", "__exit__") if api.name == "sync" else ("__aenter__", "__aexit__")
    api.call(getattr(lock, enter))
    token = admin.token()
    assert in_child(lambda: run(api, getattr(lock, leave), None, None, None)) is None
    assert admin.token() == token
    api.call(getattr(lock, leave), None, None, None)
    admin.nothing_left()


@pytest.mark.fault(7)
def test_row_7_a_child_has_locks_of_its_own(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 7: by its parent's lock object and by new ones, with renewal, waiting, and tokens of its own."""
    lock = api.Lock(server.url, name, ttl=TTL)
    shared = api.Lock(server.url, f"{name} of the child", ttl=TTL)
    assert api.call(lock.acquire)
    assert api.call(shared.acquire)
    api.call(shared.release)
    token = admin.token()
    assert token is not None

    def child() -> list[Any]:
        own = api.Lock(server.url, name, ttl=TTL)

        async def use_async() -> list[Any]:
            async with shared as lease:
                await asyncio.to_thread(renewed, shared.name)
                lease.check()
                return [lease_record(lease).token, await own.acquire(timeout=0.2)]

        def use() -> list[Any]:
            with shared as lease:
                renewed(shared.name)
                lease.check()
                return [lease_record(lease).token, own.acquire(timeout=0.2)]

        return [*run(api, use_async if api.name == "asyncio" else use), len(admin_places())]

    def admin_places() -> list[str]:
        with closing(Admin(server, name)) as own:
            return own.places()

    def renewed(its_name: str) -> None:
        with closing(Admin(server, its_name)) as own:
            own.renewed()

    child_token, taken, places = in_child(child)
    assert child_token.split(".")[0] != token.split(".")[0]
    assert (taken, places) == (False, 0)
    assert admin.token() == token
    api.call(lock.release)
    admin.nothing_left()


@pytest.mark.fault(7)
def test_row_7_a_child_is_told_nothing_of_its_parents_loss(api: Api, server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 7: a lease that the child does not hold cannot be lost there: no callback, no thread."""
    told: list[int] = []
    lock = api.Lock(server.url, name, ttl=0.5, renew=False, on_lost=lambda _: told.append(os.getpid()))
    assert api.call(lock.acquire)
    lease = lock.lease

    def child() -> list[Any]:
        threading.Event().wait(0.6)
        lease.lost.is_set()
        threading.Event().wait(0.05)
        return [run(api, lease.check), [t.name for t in threading.enumerate() if t.name.startswith("holdfast")], told]

    assert in_child(child) == ["NotHeld", [], []]
    until(lambda: told == [os.getpid()])


def connections(admin: Admin) -> list[str]:
    """Of the user "peer"."""
    return [client["id"] for client in admin.redis.client_list() if client["user"] == "peer"]


@pytest.mark.turns
@pytest.mark.parametrize("state", ["held", "waiting"])
def test_danger_inherited_sockets_do_not_outlive_the_parent(api: Api, new_server: NewServer, name: str, state: str) -> None:
    """Danger "inherited inbox socket": the parent is killed, its child lives on; the server sees every connection end."""
    server = new_server()
    admin = Admin(server, name)
    admin.redis.acl_setuser("peer", enabled=True, passwords=["+secret"], keys=["*"], channels=["*"], categories=["+@all"])
    blocker = holdfast.FairLock(server.url, name, ttl=30)
    with Peer(api.name, server.url.replace("unix://", "unix://peer:secret@"), name, ttl=30) as peer:
        peer.ask("holdfast.fencing.accept(url, 'something', 1)")  # a pooled connection of the sync API
        if state == "waiting":
            assert blocker.acquire()
        peer.ask("start(lock.acquire)")
        until(lambda: len(admin.places()) == 1 if state == "waiting" else admin.token())
        process = (admin.places() or [admin.token() or ""])[0].split(".")[0]
        until(lambda: admin.redis.exists(f"hf:proc:{process}"))  # so the keeper is connected
        child = peer.ask("fork()")
        assert admin.listeners(process) == (1 if state == "waiting" else 0)
        assert connections(admin)
        peer.kill()
        until(lambda: not connections(admin), 1)
        assert admin.redis.publish(f"hf:inbox:{process}", "1 x 1") == 0
        os.kill(child, 0)  # it is alive
        if state == "waiting":
            lock = api.FairLock(server.url, name, ttl=5)
            taken = api.start(lock.acquire, timeout=5)
            until(lambda: len(admin.places()) == 2)
            with at_most(CLAIM_WINDOW_S / 2):  # nothing is claimed for the one that is dead
                blocker.release()
                assert taken.result(5)
            api.call(lock.release)
    admin.close()


def test_danger_a_request_under_way_at_the_fork_does_not_keep_its_connection(new_server: NewServer, name: str) -> None:
    """Danger "inherited inbox socket": the connection of a thread that awaits a reply is not among the idle ones."""
    server = new_server()
    admin = Admin(server, name)
    admin.redis.acl_setuser("peer", enabled=True, passwords=["+secret"], keys=["*"], channels=["*"], categories=["+@all"])
    url = server.url.replace("unix://", "unix://peer:secret@")
    with Peer("sync", url, name, ttl=30) as peer:
        admin.redis.client_pause(60_000, all=False)  # only writes
        peer.ask("start(lock.acquire)")
        until(lambda: any(one["cmd"].startswith("eval") for one in admin.redis.client_list() if one["user"] == "peer"))
        child = peer.ask("fork()")
        assert connections(admin)
        peer.kill()
        until(lambda: not connections(admin), 3)
        os.kill(child, 0)  # it is alive
        admin.redis.client_unpause()
    admin.close()


@pytest.mark.fault(7)
def test_row_7_a_child_that_ends_normally_takes_nothing_along(server: PrivateServer, admin: Admin, name: str) -> None:
    """Row 7: what runs at exit in the child gives back nothing of its parent's."""
    with Peer("sync", server.url, name, ttl=5) as peer:
        assert peer.ask("lock.acquire()")
        token = admin.token()
        assert peer.ask("(lambda pid: os.waitpid(pid, 0)[1] if pid else sys.exit(0))(os.fork())") == 0
        assert admin.token() == token
        assert peer.ask("lock.lease.check()") is None
        assert peer.ask("lock.release()") is None
    admin.nothing_left()


@pytest.mark.turns
@pytest.mark.fault(7)
def test_row_7_a_thread_of_the_parent_may_be_anywhere_at_the_fork(
    api: Api, server: PrivateServer, admin: Admin, name: str
) -> None:
    """Row 7: forked again and again while other threads acquire and release: no child hangs on a mutex nobody will free."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def busy(number: int) -> None:
        lock = holdfast.Lock(server.url, f"{name} {number}", ttl=5)
        try:
            while not stop.is_set():
                with lock:
                    pass
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=busy, args=(number,)) for number in range(3)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for thread in threads:
        thread.start()
    try:
        for number in range(20):
            lock = api.Lock(server.url, f"{name} child {number}", ttl=5)
            assert in_child(lambda lock=lock: run(api, api.taken_and_given_back, lock)) is True  # type: ignore[misc]
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        for thread in threads:
            thread.join()
    assert errors == []


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[tuple[Callable[[str], Any], threading.Event]]:
    """Lazy names of a module whose import, which a thread has begun, lasts until the event is set."""
    go, begun = threading.Event(), threading.Event()
    monkeypatch.setitem(sys.modules, "slow_gates", SimpleNamespace(go=go, begun=begun))
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "slow_to_import.py").write_text("import slow_gates\nslow_gates.begun.set()\nslow_gates.go.wait()\nname = 1\n")
    get = later({"__name__": "lazy"}, {"name": "slow_to_import"})
    thread = threading.Thread(target=get, args=("name",))
    thread.start()
    assert begun.wait(10)
    yield get, go
    go.set()
    thread.join()
    sys.modules.pop("slow_to_import", None)


def test_row_7_a_child_can_import_what_a_thread_of_the_parent_is_importing(slow: Any) -> None:
    """The child inherits the module's lock, which is held by a thread that does not exist there."""
    get, go = slow
    pids = list[int]()

    def fork() -> None:
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(10)
            os._exit(0 if get("name") == 1 else 1)
        pids.append(pid)

    forking = threading.Thread(target=fork)
    forking.start()
    forking.join(0.1)
    assert not pids, "the fork waits for the import"
    go.set()
    forking.join()
    assert os.waitpid(pids[0], 0)[1] == 0


def test_row_7_a_fork_does_not_wait_long_for_an_import(slow: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The import could wait for the thread that forks."""
    monkeypatch.setattr(_lazy, "FORK_WAITS_S", 0.01)
    assert not slow[1].is_set()
    assert in_child(lambda: 17) == 17
