"""Each capability has its files under one name on every floor: see `docs.architecture`."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

import holdfast
import holdfast.aio
from docs import architecture


def test_each_capability_has_files_on_its_floors() -> None:
    found = {name: set(architecture.files_of(name)) for name in architecture.CAPABILITIES}
    assert found == {name: set(capability.floors.split()) for name, capability in architecture.CAPABILITIES.items()}


def glossary() -> set[str]:
    """Return the words of the glossary: the first column of its tables, except of the one about options."""
    text = architecture.GLOSSARY.read_text(encoding="utf-8").partition("## Which options")[0]
    rows = re.findall(r"^\| (?!word \|)([^-|][^|]*) \|", text, re.MULTILINE)
    return {word.strip("`") for row in rows for word in row.split(", ")}


def test_each_word_of_the_glossary_has_its_files() -> None:
    assert set(architecture.CONCEPTS) == glossary()
    places = {
        place for found in architecture.CONCEPTS.values() if found not in architecture.CAPABILITIES for place in found.split()
    }
    assert [place for place in places if not (architecture.ROOT / place).exists()] == []


def test_no_file_has_another_name_of_a_capability() -> None:
    others = [
        path.relative_to(architecture.ROOT).as_posix()
        for top in ("src", "lab", "tests", "models", "docs")
        for path in (architecture.ROOT / top).rglob("*")
        if path.suffix in {".py", ".lua", ".pml", ".md"} and set(re.split(r"[_.]", path.name)) & architecture.OTHER_NAMES
    ]
    assert others == []


def test_the_algorithms_of_a_capability_are_in_one_folder_on_each_floor() -> None:
    for name in architecture.CAPABILITIES:
        for floor in ("core", "lua"):
            files = architecture.files_of(name).get(floor, [])
            assert len({file.rpartition("/")[0] for file in files}) <= 1, files


def test_shared_algorithms_are_listed_under_their_name() -> None:
    listed = {name: architecture.listed(name) for name in architecture.CAPABILITIES}
    assert "_api/semaphore.py" in listed["permit"]
    assert "_api/rwlock.py" in listed["permit"]
    assert "_api/redlock.py" in listed["quorum"]
    assert "_api/once.py" in listed["single_flight"]
    assert "_api/cache/cache.py" in listed["single_flight"]
    assert "_api/barrier.py" in listed["rendezvous"]
    assert "_api/event.py" in listed["rendezvous"]


def test_a_class_is_found_by_its_name() -> None:
    for name, capability in {
        "Semaphore": "permit",
        "RWLock": "permit",
        "FairLock": "lock",
        "CountDownLatch": "rendezvous",
        "Term": "election",
        "MultiLease": "multilock",
        "CycleWaiter": "deadlock",
        "RedeemedLock": "ticket",
        "declare_new": "quorum",
        "ReadSide": "permit",
    }.items():
        assert architecture.capability_named(name) == capability
    assert [architecture.capability_named(name) for name in architecture.CAPABILITIES] == list(architecture.CAPABILITIES)


NAMES = sorted({*architecture.CONCEPTS, *holdfast.__all__, *holdfast.aio.__all__})


def test_every_word_and_every_public_name_has_files() -> None:
    for name in NAMES:
        found = architecture.files_named(name)
        assert found, name
        assert [path for paths in found.values() for path in paths if not (architecture.ROOT / path).is_file()] == []


def test_a_word_lists_the_files_that_have_most_of_it() -> None:
    linger = architecture.files_named("linger")
    assert linger["core"][0] == "src/holdfast/_core/lock/local_queue.py"
    assert "docs/contention.md" in linger["docs"]
    assert {word: len(paths) for word, paths in linger.items() if len(paths) > architecture.MOST} == {}
    assert "src/holdfast/_runtime/keeper/thread.py" in architecture.files_named("keeper")["code"]
    assert "src/holdfast/_api/decorator.py" in architecture.files_named("locked")["api"]
    assert architecture.files_named("ServerError")["tests"]  # of no capability


def test_every_file_of_the_core_and_the_scripts_is_where_its_capability_is() -> None:
    assert "src/holdfast/_lua/lock/multi_acquire.lua" in architecture.files_of("multilock")["lua"]
    assert "src/holdfast/_lua/lock/exchange_token.lua" in architecture.files_of("ticket")["lua"]
    assert "src/holdfast/_runtime/drivers/sync_quorum.py" in architecture.files_of("quorum")["runtime"]


def test_every_page_for_users_is_about_a_capability_or_about_all() -> None:
    pages = [path for path in architecture.files()["docs"] if path.parent.name == "docs"]
    assert {page.stem for page in pages if not architecture.capability_of(page)} == architecture.ABOUT_ALL


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(SystemExit, match=r"'semaphor'; the capabilities are: lock, permit"):
        architecture.files_named("semaphor")


def test_the_script_lists_every_capability() -> None:
    command = [sys.executable, "-m", "docs.architecture", "--all"]
    lines = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=architecture.ROOT / "tests"
    ).stdout.splitlines()
    assert [line for line in lines if not line.startswith(" ")] == list(architecture.CAPABILITIES)
