"""Each page of the built site is fine in a browser that has no network and opens the pages as files.

`make docs` builds the site and runs these tests. They need Chromium.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote_plus, urldefrag

import pytest
from playwright.sync_api import Page, sync_playwright

from make_site import SITE
from prepare import navigation

HTML = SITE / "html"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
DESKTOP, PHONE = 1280, 390
"""Widths of windows, in pixels."""
PATIENCE = 120_000
"""Milliseconds after which a page that does not come, or does not change, is a failure: on a machine that does other things."""

EXPECTED = {
    "stampede": "cache.html",
    "primary dies": "faults.html",
    "support": "support.html",
    "who maintains": "support.html",
    "stable api": "support.html",
    "memory per lock": "capacity.html",
    "LockTimeout": "reference/holdfast.errors.html",
    "LeaseLost": "reference/holdfast.errors.html",
    "HOLDFAST_URL": "environment.html",
    "fencing token": "fences.html",
    "GC pause": "fences.html",
    "Redlock": "redlock.html",
    "nightly job": "schedule.html",
    "permissions": "access-control.html",
    "NOPERM": "access-control.html",
    "password": "servers.html",
    "TLS": "tls.html",
    "sentinel": "sentinel.html",
    "failover": "sentinel.html",
    "cluster": "cluster.html",
    "split brain": "replicas.html",
    "clock jumps": "faults.html",
    "clock skew": "faults.html",
    "evicted": "faults.html",
    "OOM": "troubleshooting.html",
    "stuck lock": "troubleshooting.html",
    "lock not released": "troubleshooting.html",
    "deadlock": "deadlocks.html",
    "who holds the lock": "inspecting.html",
    "prometheus": "inspecting.html",
    "opentelemetry": "inspecting.html",
    "metrics": "inspecting.html",
    "logging": "errors.html",
    "performance": "benchmarks.html",
    "event loop blocked": "leases.html",
    "managed service": "managed.html",
    "elasticache": "managed.html",
    "when not to use": "when-not.html",
    "postgres": "when-not.html",
    "rate limit": "when-not.html",
    "pgbouncer": "databases.html",
    "zookeeper": "coming-from.html",
    "windows": "promises.html",
    "thread_local": "coming-from-redis-py.html",
    "blocking_timeout": "coming-from-redis-py.html",
    "endpoint": "fastapi.html",
    "idempotency": "fastapi.html",
    "django": "django.html",
    "celery": "celery.html",
    "fakeredis": "testing.html",
    "kubernetes": "kubernetes.html",
    "systemd": "cron.html",
    "crontab": "cron.html",
}
"""Words that a reader may look for, and the page that explains them, or that says what holdfast does not have."""

LOOK = """() => ({
    beyond: Math.max(0, document.scrollingElement.scrollWidth - innerWidth),
    heading: document.querySelector("h1").checkVisibility(),
    broken: [...document.images].filter((one) => one.complete && !one.naturalWidth).map((one) => one.src),
    scheme: Number(getComputedStyle(document.body).backgroundColor.match(/[0-9]+/)[0]) > 127 ? "light" : "dark",
})"""
"""Script that returns how a page looks to a reader. ``beyond``: by how many pixels it is wider than the window."""


PICTURES = """() => [...document.querySelectorAll("article img[src$='.svg']")].map((one) => ({
    url: one.src,
    width: one.clientWidth,
    reached: one.clientWidth <= one.parentElement.clientWidth || getComputedStyle(one.parentElement).overflowX == "auto",
}))"""
"""Script that returns the pictures of a page: how wide they are, and whether the reader can get all of each into the window."""

TEXT = """() => {
    const shown = (one) => one.textContent.trim() && one.checkVisibility({opacityProperty: true});
    const sizes = [...document.querySelectorAll("text")].filter(shown).map((one) => parseFloat(getComputedStyle(one).fontSize));
    return Math.min(...sizes) / document.documentElement.viewBox.baseVal.width;
}"""
"""Script that returns the size of the smallest text of a picture, as a part of the picture's width."""


class Reader:
    """A tab of a browser, and all that the browser complains of."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE)
        page.on("console", self._hear)
        page.on("pageerror", lambda error: self.complaints.append(f"{page.url}: {error}"))
        page.on("requestfailed", self._miss)

    def _hear(self, message: Any) -> None:
        if message.type in {"warning", "error"}:
            self.complaints.append(f"{self.page.url}: {message.text}")

    def _miss(self, request: Any) -> None:
        if request.failure != "net::ERR_ABORTED":  # which only says that the next page was opened before the icon had come
            self.complaints.append(f"{self.page.url}: {request.url}: {request.failure}")

    def open(self, url: str, *, width: int = DESKTOP, scheme: Any = "light") -> None:
        """Open a page in a window of this width, as a reader whose system has this theme."""
        self.look(width, scheme)
        self.page.goto(url)

    def look(self, width: int, scheme: Any) -> None:
        """Give the window this width, and the system this theme."""
        self.page.set_viewport_size({"width": width, "height": 800})
        self.page.emulate_media(color_scheme=scheme)


@pytest.fixture(scope="module")
def window() -> Iterator[Reader]:
    """One window for all tests: to start a browser takes longer than to open a page."""
    program = next(filter(None, map(shutil.which, BROWSERS)), None)
    if program is None:
        pytest.exit("Chromium is missing: apt-get install chromium", returncode=1)
    with sync_playwright() as playwright, playwright.chromium.launch(executable_path=program, args=["--no-sandbox"]) as started:
        yield Reader(started.new_context(offline=True, reduced_motion="reduce").new_page())


@pytest.fixture
def reader(window: Reader) -> Iterator[Reader]:
    """The window, with the theme of the system. The browser must not complain of anything during the test."""
    window.complaints.clear()
    yield window
    assert window.complaints == []


@pytest.mark.parametrize(("width", "scheme"), [(DESKTOP, "light"), (DESKTOP, "dark"), (PHONE, "light"), (PHONE, "dark")])
def test_the_navigation_leads_to_every_page(reader: Reader, width: int, scheme: str) -> None:
    reader.open((HTML / "index.html").as_uri(), width=width, scheme=scheme)
    links = reader.page.evaluate("[...document.querySelectorAll('nav.md-nav--primary a')].map((one) => one.href)")
    entries = {urldefrag(link)[0] for link in links}
    assert entries == {(HTML / entry).with_suffix(".html").as_uri() for entry in navigation()}


@pytest.mark.parametrize("entry", navigation())
def test_a_page(reader: Reader, entry: str) -> None:
    """Wide and light, then narrow and dark: it fits into the window, and nothing is broken. Loading takes the longest: once."""
    reader.open((HTML / entry).with_suffix(".html").as_uri())
    for width, scheme in ((DESKTOP, "light"), (PHONE, "dark")):
        reader.look(width, scheme)
        reader.page.wait_for_function(f"(scheme) => ({LOOK})().scheme == scheme", arg=scheme)  # a script of the page notices it
        assert reader.page.evaluate(LOOK) == {"beyond": 0, "heading": True, "broken": [], "scheme": scheme}


def test_pictures_can_be_read_on_a_phone(reader: Reader) -> None:
    """No text is smaller than 10 pixels, and a picture that is wider than the window can be moved sideways."""
    texts: dict[str, float] = {}
    wrong = []
    pages = [(HTML / entry).with_suffix(".html") for entry in navigation()]
    for file in (page for page in pages if '.svg"' in page.read_text(encoding="utf-8")):
        reader.open(file.as_uri(), width=PHONE)
        for picture in reader.page.evaluate(PICTURES):
            url = picture["url"]
            if url not in texts:
                reader.open(url)
                texts[url] = reader.page.evaluate(TEXT)
            if picture["width"] * texts[url] < 10 or not picture["reached"]:
                wrong.append((file.name, url.rpartition("/")[2], picture["width"], round(picture["width"] * texts[url], 1)))
    assert len(texts) >= 15
    assert wrong == []


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_the_button_changes_the_theme(reader: Reader, width: int) -> None:
    reader.open((HTML / "locks.html").as_uri(), width=width, scheme="light")
    seen = []
    for _ in range(3):
        reader.page.locator("form[data-md-component=palette] label:visible").click()
        seen.append(reader.page.evaluate(LOOK)["scheme"])
    assert seen == ["light", "dark", "light"]  # that of the system comes first and last


@pytest.mark.parametrize("width", [DESKTOP, PHONE])
def test_search(reader: Reader, width: int) -> None:
    """Each of these words finds the page that explains it among the first three results, and one of them is opened."""
    reader.open((HTML / "index.html").as_uri(), width=width)
    reader.page.locator("[for=__search]:visible, button.md-search__button:visible").first.click()
    reader.page.get_by_text("Loading search").wait_for(state="hidden")
    found = {}
    for words in EXPECTED:
        reader.page.get_by_placeholder("Search").fill(words)
        results = reader.page.locator(f"a[href*='?h={quote_plus(words)}']")
        results.first.wait_for()
        first = results.evaluate_all("(links) => links.slice(0, 3).map((one) => one.pathname)")
        found[words] = [path.rpartition("/html/")[2] for path in first]
    assert {words: EXPECTED[words] in pages for words, pages in found.items()} == dict.fromkeys(EXPECTED, True), found
    results.first.click()
    reader.page.wait_for_url("**/cron.html?h=cron*")


def test_the_menu_of_a_phone(reader: Reader) -> None:
    reader.open((HTML / "index.html").as_uri(), width=PHONE)
    reader.page.locator("label[for=__drawer]:visible").first.click()
    reader.page.get_by_text("Operate").locator("visible=true").first.click()
    reader.page.get_by_role("link", name="Access control").locator("visible=true").first.click()
    reader.page.wait_for_url("**/access-control.html")
    assert reader.page.evaluate(LOOK)["heading"]
