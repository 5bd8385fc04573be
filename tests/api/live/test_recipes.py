"""The recipes for frameworks, as their pages have them: each runs in the framework itself, with its own worker or command."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis

import holdfast
from docs.pages import ROOT, blocks
from holdfast import testing
from support.servers import private

PATIENCE = 60.0
"""Seconds after which a worker counts as hung."""

SHOP = """
import os
import redis

client = redis.Redis.from_url(os.environ["HOLDFAST_URL"])

def import_orders(name):
    client.rpush("imported", name)

def send_mail(address):
    client.rpush("mails", address)
"""
"""The user's own module, which the recipes call."""

SETTINGS = """
import os
SECRET_KEY = "of a test"
USE_TZ = True
INSTALLED_APPS = ["shop"]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": os.path.join(os.path.dirname(__file__), "shop.db")}}
HOLDFAST_URL = os.environ["HOLDFAST_URL"]
"""
MANAGE = """
import os
import sys
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
from django.core.management import execute_from_command_line
execute_from_command_line(sys.argv)
"""
MODELS = """
from django.db import models

class Stock(models.Model):
    sku = models.CharField(primary_key=True, max_length=20)
    pieces = models.IntegerField()
"""
MIGRATION = """
import time
from django.db import migrations, models

class Migration(migrations.Migration):
    initial = True
    operations = [
        migrations.RunPython(lambda apps, editor: time.sleep(0.2)),
        migrations.CreateModel("Stock", [
            ("sku", models.CharField(primary_key=True, max_length=20)),
            ("pieces", models.IntegerField()),
        ]),
    ]
"""
SELL = """
import os
os.environ["DJANGO_SETTINGS_MODULE"] = "settings"
import django
django.setup()
from django.test import RequestFactory
from shop.models import Stock
from shop.views import sell
Stock.objects.create(sku="A1", pieces=1)
print([sell(RequestFactory().post("/"), "A1").content.decode() for _ in range(2)])
"""


class Recipe:
    """A directory with the files of a page, and a server of its own, which frameworks may fill."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url, self.directory = url, directory
        self.client = redis.Redis.from_url(url)
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.env = {
            **os.environ,
            "HOLDFAST_URL": url,
            "PATH": path,
            "PYTHONPATH": str(directory),
            "RQ_REDIS_URL": url,
        }

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")

    def write_page(self, page: str) -> list[str]:
        """Write the files of a page, and return the commands that it names."""
        for block in blocks(ROOT / "docs" / page, "python"):
            if named := re.match(r"# (\S+\.py)\n", block.text):
                self.write({named[1]: block.text})
        return [line for block in blocks(ROOT / "docs" / page, "text") for line in block.text.splitlines()]

    @contextmanager
    def process(self, command: str, where: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """A program that runs until the end of the block."""
        directory = self.directory / where
        directory.mkdir(exist_ok=True)
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(
                shlex.split(command), cwd=directory, env=self.env, stdout=log, stderr=log, start_new_session=True
            )
        try:
            yield process
        finally:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(PATIENCE)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def python(self, program: str) -> str:
        """Run a program to its end, and return its output."""
        return self.run(f"{sys.executable} -c {shlex.quote(program)}")[1]

    def run(self, command: str) -> tuple[int, str]:
        done = subprocess.run(
            shlex.split(command),
            cwd=self.directory,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        return done.returncode, done.stdout

    def log(self, where: str = "") -> str:
        return (self.directory / where / "log").read_text(encoding="utf-8", errors="replace")

    def found(self, name: str) -> list[bytes]:
        """The items of a list on the server."""
        items: Any = self.client.lrange(name, 0, -1)
        return list(items)


@pytest.fixture
def recipe(tmp_path: Path) -> Iterator[Recipe]:
    with private(port=True, password="") as server:
        yield Recipe(server.url, tmp_path)


def until(condition: Callable[[], Any], why: Callable[[], str] = str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, why()
        time.sleep(0.02)


ENQUEUE = {
    "celery.md": """
import tasks
tasks.import_orders.delay("eu")
for _ in range(2):  # as a broker delivers a task again
    tasks.send_mail.apply_async(("kim@example.org",), task_id="the-same")
""",
    "rq": """
import jobs
jobs.enqueue()
jobs.queue.enqueue(jobs.send_mail, "lee@example.org", job_id="the-same")
jobs.queue.push_job_id("the-same")
""",
    "dramatiq": """
import actors
actors.import_orders.send("eu")
message = actors.send_mail.message("kim@example.org")
for _ in range(2):
    actors.broker.enqueue(message)
""",
}


@pytest.mark.turns
@pytest.mark.parametrize(
    ("page", "command", "options", "enqueue", "mails"),
    [
        ("celery.md", "celery -A tasks worker", "--concurrency 1 --loglevel warning", ENQUEUE["celery.md"], 1),
        ("rq-dramatiq.md", "rq worker --with-scheduler", "", ENQUEUE["rq"], 2),
        ("rq-dramatiq.md", "dramatiq actors", "--processes 1 --threads 2", ENQUEUE["dramatiq"], 1),
    ],
    ids=["celery", "rq", "dramatiq"],
)
def test_a_task_queue(recipe: Recipe, page: str, command: str, options: str, enqueue: str, mails: int) -> None:
    """A task whose lock is busy is tried again, and blocks no worker. A task that is delivered twice sends one mail."""
    assert command in recipe.write_page(page)
    recipe.write({"shop.py": SHOP})
    busy = holdfast.Lock(recipe.url, "import:eu")
    busy.acquire()
    recipe.python(enqueue)
    with recipe.process(f"{command} {options}"):
        try:
            until(lambda: len(recipe.found("mails")) == mails, recipe.log)
            assert recipe.found("imported") == []
        finally:
            busy.release()
        until(lambda: recipe.found("imported") == [b"eu"], recipe.log)
    assert len(recipe.found("mails")) == mails


@pytest.mark.turns("recipes")
def test_one_celery_beat_of_two(recipe: Recipe) -> None:
    """When the process that leads is killed, the other one starts its beat."""
    (command,) = [line for line in recipe.write_page("celery.md") if line.startswith("holdfast elect")]
    recipe.write({"shop.py": SHOP})
    command = command.replace("elect", "elect --ttl 3")

    def running() -> list[str]:
        return [place for place in ("one", "two") if "beat" in recipe.log(place)]

    with recipe.process(command, "one") as one, recipe.process(command, "two") as two:
        until(running, lambda: recipe.log("one") + recipe.log("two"))
        (first,) = running()
        {"one": one, "two": two}[first].kill()
        until(lambda: len(running()) == 2, lambda: recipe.log("one") + recipe.log("two"))


@pytest.mark.turns("recipes")
def test_django(recipe: Recipe) -> None:
    """Of three migrations at once, one migrates. A command is refused while it runs elsewhere. One piece is sold once."""
    recipe.write_page("django.md")
    packages = ["shop", "shop/management", "shop/management/commands", "shop/migrations"]
    recipe.write(dict.fromkeys([f"{package}/__init__.py" for package in packages], ""))
    recipe.write({"settings.py": SETTINGS, "manage.py": MANAGE})
    recipe.write({"shop/models.py": MODELS, "shop/migrations/0001_initial.py": MIGRATION})
    manage = f"{sys.executable} manage.py"
    with ThreadPoolExecutor(3) as containers:
        done = list(containers.map(recipe.run, [f"{manage} migrate"] * 3))
    assert [code for code, _ in done] == [0, 0, 0], done
    assert sorted("Applying shop.0001_initial... OK" in said for _, said in done) == [False, False, True]

    with holdfast.Lock(recipe.url, "send_invoices"):
        code, said = recipe.run(f"{manage} send_invoices")
        assert code == 1
        assert "not started: " in said
    assert recipe.run(f"{manage} send_invoices") == (0, "invoice 0\ninvoice 1\ninvoice 2\n")
    assert recipe.python(SELL) == "['sold', 'sold out']\n"


@contextmanager
def fastapi_page(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[dict[str, Any], testing.Memory]]:
    """The names of the page's first part: the dependency, and the errors as responses."""
    first, errors, *_ = blocks(ROOT / "docs" / "fastapi.md", "python")
    with testing.memory() as memory:
        monkeypatch.setenv("HOLDFAST_URL", memory.url)
        page: dict[str, Any] = {}
        exec(first.text + errors.text, page)  # noqa: S102
        yield page, memory


def post(app: Any, path: str, sent: Callable[[], object] = bool) -> httpx2.Response:
    """Send a request to an application; ``sent`` is called when it sends the response."""

    async def watched(scope: Any, receive: Any, send: Any) -> None:
        async def look(message: Any) -> None:
            sent()
            await send(message)

        await app(scope, receive, look)

    async def main() -> httpx2.Response:
        transport = httpx2.ASGITransport(watched)
        async with app.router.lifespan_context(app), httpx2.AsyncClient(transport=transport, base_url="http://test") as browser:
            return await browser.post(path)

    return asyncio.run(main())


def test_the_lock_of_an_endpoint_is_released_before_the_response(monkeypatch: pytest.MonkeyPatch) -> None:
    with fastapi_page(monkeypatch) as (page, memory):
        held = []
        response = post(page["app"], "/invoices/7/close", lambda: held.append(memory.holder("invoice:7")))
    assert (response.status_code, set(held)) == (200, {None})


def test_a_lease_that_is_lost_in_an_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """The endpoint is cancelled, and the client gets 503."""
    cancelled = []
    with fastapi_page(monkeypatch) as (page, memory):

        async def import_invoice(number: int, lease: Any) -> None:
            memory.steal(f"invoice:{number}")
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                cancelled.append(number)
                raise

        import_invoice.__annotations__["lease"] = page["InvoiceLock"]
        page["app"].post("/invoices/{number}/import")(import_invoice)
        response = post(page["app"], "/invoices/7/import")
    assert (response.status_code, response.json()) == (503, {"error": "LeaseLost"})
    assert cancelled == [7]
