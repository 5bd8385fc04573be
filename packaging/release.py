"""Check that this commit can be released, and print a line for each thing that is missing or wrong: `make release-check`.

Exit codes: 0 the commit can be released, 1 it cannot. The checks of the built files need the network and take about a minute.
With `--links`, write the address of the repository before each relative link of the pages that PyPI shows, and check nothing.
"""

from __future__ import annotations

import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGES_WITH_CONTACT = ("SECURITY.md", "CODE_OF_CONDUCT.md")
NO_ADDRESS = "There is no address yet"
"""The sentence of those pages that stands where the address will be."""
PACKAGES = {"holdfast": "src", "holdfast_lab": "lab/src"}
"""The package of each distribution, and the folder that it is in."""
ON_PYPI = ("README.md", "lab/README.md")
"""The pages that PyPI shows. There, a relative link leads nowhere."""
LINK = re.compile(r"(?<=\]\()(?!#)[^)\s]+(?=\))")
AT_RUN_TIME = {"holdfast", "redis", "hiredis"}
"""All packages that `pip install holdfast` installs."""


def read(name: str) -> str:
    """Return the text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def version() -> str:
    """Return the version of the package."""
    found = re.search(r'^__version__ = "([^"]+)"$', read("src/holdfast/__init__.py"), re.MULTILINE)
    assert found
    return found[1]


def contact() -> str:
    """Return the address for private reports; empty while there is none."""
    return str(tomllib.loads(read("pyproject.toml"))["tool"]["holdfast"]["contact"])


def address_of_files() -> str:
    """Return what stands before the path of a file in its address; empty while the repository has no address."""
    return str(tomllib.loads(read("pyproject.toml"))["tool"]["holdfast"]["files"])


def with_address(page: str, text: str, address: str) -> str:
    """Return the text of a page with the address of the file in place of each relative link."""
    folder = page.rpartition("/")[0]
    here = f"{address}{folder}/" if folder else address
    return LINK.sub(lambda link: link[0] if "://" in link[0] else here + link[0], text)


# Checks of the repository


def check_lab(project: dict[str, Any], release: str) -> Iterator[str]:
    """Yield what is wrong with the version of the lab, or with the one that it requires."""
    if project["version"] != release:
        yield f"lab/pyproject.toml: the version is {project['version']}, that of holdfast is {release}"
    if f"holdfast[testing]=={release}" not in project["dependencies"]:
        yield f"lab/pyproject.toml: does not require holdfast[testing]=={release}"


def check_contact(address: str) -> Iterator[str]:
    """Yield what keeps people from reporting something in private."""
    if not address:
        yield "pyproject.toml: [tool.holdfast] contact is empty: set the address for private reports, and name it in " + (
            " and ".join(PAGES_WITH_CONTACT)
        )
    for page in PAGES_WITH_CONTACT:
        yield from (f"{page}: {wrong}" for wrong in check_page(read(page), address))


def check_page(text: str, address: str) -> Iterator[str]:
    """Yield the differences between a page and the address in pyproject.toml."""
    if not address and NO_ADDRESS not in text:
        yield f"names an address, though pyproject.toml has none: write {NO_ADDRESS!r}"
    if not address and re.search(r"[\w.+-]+@[\w-]+\.\w|mailto:", text):
        yield "has the address of somebody, though pyproject.toml has none"
    if address and (address not in text or NO_ADDRESS in text):
        yield f"does not name the address of pyproject.toml, {address}"


def check_links(page: str, text: str, address: str) -> Iterator[str]:
    """Yield the links of a page that lead nowhere on PyPI, or to a file that is not in the repository."""
    links = LINK.findall(text)
    if relative := [link for link in links if "://" not in link]:
        yield f"{page}: {len(relative)} links are relative, and lead nowhere on PyPI: python packaging/release.py --links"
    for link in links:
        if address and link.startswith(address) and not (ROOT / link.removeprefix(address).partition("#")[0]).exists():
            yield f"{page}: no such file: {link}"


def check_addresses(address: str) -> Iterator[str]:
    """Yield what keeps people on PyPI from finding the repository."""
    if not address:
        yield "pyproject.toml: [tool.holdfast] files is empty: set the address of files, and [project.urls] in both projects"
        return
    for file in ("pyproject.toml", "lab/pyproject.toml"):
        if "urls" not in tomllib.loads(read(file))["project"]:
            yield f"{file}: no [project.urls]"
    for page in ON_PYPI:
        yield from check_links(page, read(page), address)


def check_changelog(text: str, release: str) -> Iterator[str]:
    """Yield what is wrong with the changelog if this version is released."""
    sections = re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", text, re.MULTILINE)
    found = {heading: body.strip() for heading, body in sections}
    released = [heading for heading in found if heading != "Unreleased"]
    if found.get("Unreleased"):
        yield f"CHANGELOG.md: changes are in the section Unreleased: move them to a section '## {release} - YYYY-MM-DD'"
    elif wrong := [heading for heading in released if not re.fullmatch(r"\d+\.\d+\.\d+\S* - \d{4}-\d\d-\d\d", heading)]:
        yield f"CHANGELOG.md: not a version and its date: {', '.join(wrong)}"
    elif not released or released[0].split(" ")[0] != release:
        newest = released[0] if released else "none"
        yield f"CHANGELOG.md: the newest version is {newest}, that of the package is {release}"
    elif not found[released[0]]:
        yield f"CHANGELOG.md: nothing is said about {release}"


def check_requirements(text: str, wanted: list[str]) -> Iterator[str]:
    """Yield the requirements of the build that are not one file each, known by its digest."""
    pinned = set()
    for line in re.sub(r"\\\n", " ", text).splitlines():
        if not line or line.startswith("#"):
            continue
        if match := re.fullmatch(r"([\w.-]+)==\S+(?: +--hash=sha256:[0-9a-f]{64})+", line):
            pinned.add(match[1])
        else:
            yield f"packaging/requirements.txt: without a version or a digest: {line.split(' ')[0]}"
    names = [re.split(r"[^\w.-]", requirement, maxsplit=1)[0] for requirement in wanted]
    for name in names:
        if name not in pinned:
            yield f"packaging/requirements.txt: {name} is missing, which builds the package"


def check_committed() -> Iterator[str]:
    """Yield a line if files differ from the commit, which is what is built."""
    if subprocess.run(["git", "status", "--porcelain"], cwd=ROOT, check=True, capture_output=True).stdout:
        yield "git: some changes are not committed, so they are not in what is built"


# Checks of the built files


def allowed(text: str) -> dict[str, list[str]]:
    """Return the patterns of packaging/contents.txt, for each wheel and each sdist."""
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        if line.startswith("["):
            found[line.strip("[]")] = []
        elif line and not line.startswith("#"):
            found[list(found)[-1]].append(line)
    return found


def check_contents(what: str, files: list[str], patterns: list[str]) -> Iterator[str]:
    """Yield the files that no pattern allows, and the patterns that allow no file."""
    for file in sorted(files):
        if not any(fnmatch.fnmatchcase(file, pattern) for pattern in patterns):
            yield f"{what}: packaging/contents.txt does not allow {file}"
    for pattern in patterns:
        if not fnmatch.filter(files, pattern):
            yield f"{what}: packaging/contents.txt allows {pattern}, which is not there"


def in_wheel(wheel: Path) -> list[str]:
    """Return the names of the files in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return archive.namelist()


def in_sdist(sdist: Path) -> list[str]:
    """Return the names of the files in an sdist, without its top folder."""
    with tarfile.open(sdist) as archive:
        return [member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()]


def lines(wheel: Path) -> int:
    """Return the number of lines of Python and Lua in a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return sum(archive.read(name).count(b"\n") for name in archive.namelist() if name.endswith((".py", ".lua")))


def check_built(directory: Path) -> Iterator[str]:
    """Build the wheels and the sdists, and yield what is wrong with them."""
    made = subprocess.run(
        ["make", "--no-print-directory", "dist", f"PYTHON={sys.executable}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        yield f"make dist: {last_line(made)}"
        return
    release, patterns, wheels = version(), allowed(read("packaging/contents.txt")), []
    for package in PACKAGES:
        wheel, sdist = ROOT / "dist" / f"{package}-{release}-py3-none-any.whl", ROOT / "dist" / f"{package}-{release}.tar.gz"
        for file in (wheel, sdist):
            if not file.exists():
                yield f"make dist: {file.name} was not built"
                return
        print(f"built: {wheel.name}, {len(in_wheel(wheel))} files, {lines(wheel):,} lines; {sdist.name}", flush=True)
        yield from check_contents(f"{package} wheel", in_wheel(wheel), patterns[f"{package} wheel"])
        yield from check_contents(f"{package} sdist", in_sdist(sdist), patterns[f"{package} sdist"])
        wheels.append(wheel)
    yield from check_installed(directory, *wheels)


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    """Return the last line that a command has written: most say there what was wrong."""
    return ((done.stderr or "").strip() or (done.stdout or "").strip() or f"exit code {done.returncode}").splitlines()[-1]


def check_installed(directory: Path, wheel: Path, lab: Path) -> Iterator[str]:
    """Install the wheel into an empty environment, and yield which of README's first commands fail there; then the lab."""
    environment = directory / "environment"
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    python = environment / "bin" / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "install", "--quiet", wheel], capture_output=True, text=True, check=False)
    if done.returncode:
        yield f"pip install {wheel.name}: {last_line(done)}"
        return
    names = subprocess.run([*pip, "list", "--format", "freeze"], check=True, capture_output=True, text=True).stdout
    found = {line.partition("==")[0].lower() for line in names.splitlines()} - {"pip", "setuptools", "wheel"}
    if found != AT_RUN_TIME:
        yield f"pip install {wheel.name} installs {', '.join(sorted(found))}, not {', '.join(sorted(AT_RUN_TIME))}"
    yield from check_first_program(directory, environment, works=False)
    yield from check_readme(directory, environment, wheel)
    yield from check_first_program(directory, environment, works=True)
    show = [environment / "bin" / "holdfast", "demo", "ladder"]
    done = subprocess.run(show, capture_output=True, text=True, check=False)
    if (done.returncode, done.stdout) != (69, "") or "pip install holdfast-lab" not in done.stderr:
        yield f"holdfast demo ladder, without the lab: exit code {done.returncode}: {last_line(done)}"
    done = subprocess.run([*pip, "install", "--quiet", lab], capture_output=True, text=True, check=False)
    if done.returncode:
        yield f"pip install {lab.name}: {last_line(done)}"
        return
    for command in (
        show,
        [environment / "bin" / "holdfast", "bench", "--list"],
        [python, "-m", "holdfast_lab", "replay", "17"],
    ):
        text = " ".join(["holdfast", *map(str, command[1:])] if command[0] != python else ["python", *map(str, command[1:])])
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            yield f"{text}: {last_line(done)}"
        else:
            print(f"works: {text}", flush=True)


def check_first_program(directory: Path, environment: Path, *, works: bool) -> Iterator[str]:
    """Run the first program of README where no server runs, and yield what is wrong.

    ``works``: whether ``holdfast[server]`` is installed. Otherwise, the error has at most 15 lines, and says what to install.
    """
    sys.path.insert(0, str(ROOT / "tests"))
    from docs.pages import blocks

    program = next(iter(blocks(ROOT / "README.md", "python"))).text.replace("local://", f"local://{directory / 'first'}")
    kept = {name: value for name, value in os.environ.items() if name not in {"HOLDFAST_URL", "REDIS_URL", "PYTHONPATH"}}
    kept |= {"PATH": f"{environment / 'bin'}:/usr/bin:/bin"}  # no server of the machine is found there
    run = [environment / "bin" / "python", "-W", "error", "-c", program]
    done = subprocess.run(run, cwd=directory, env=kept, capture_output=True, text=True, timeout=300, check=False)
    if works:
        right = (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("no other process is here; fence ")
    else:
        right = done.returncode == 1 and len(done.stderr.splitlines()) <= 15 and 'pip install "holdfast[server]"' in done.stderr
    what = "the first program of README.md, " + ("on its own server" if works else "without holdfast[server]")
    if right:
        print(f"works: {what}", flush=True)
    else:
        yield f"{what}: {last_line(done)}"
    if works:
        stop = [environment / "bin" / "holdfast", "server", "stop", "--url", f"local://{directory / 'first'}"]
        subprocess.run(stop, env=kept, capture_output=True, check=False)


SERVE = """
import sys
from holdfast._local.server import private
with private(port=True, password="") as server:
    text = sys.stdin.read().replace("redis.Redis()", f"redis.Redis(port={server.port})")
    text = text.replace("redis.asyncio.Redis()", f"redis.asyncio.Redis(port={server.port})").replace("local://", server.url)
    exec(compile(text, "README.md", "exec"), {"__name__": "readme"})
"""
"""Runs the program on standard input; a server of its own takes the place of the reader's."""


def check_readme(directory: Path, environment: Path, wheel: Path) -> Iterator[str]:
    """Run the commands and the program of README as a reader does who has installed the wheel."""
    sys.path.insert(0, str(ROOT / "tests"))
    from docs.pages import blocks

    script = directory / "backup.sh"
    script.write_text("#!/bin/sh\necho backup done\n", encoding="utf-8")
    script.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if name not in {"REDIS_URL", "PYTHONPATH"}}
    kept |= {"PATH": f"{environment / 'bin'}:{os.environ['PATH']}", "HOLDFAST_URL": f"local://{directory / 'server'}"}
    commands = [
        (command.replace('"holdfast[', f'"{wheel}['), expected.strip())
        for block in blocks(ROOT / "README.md", "console")
        if not block.not_run
        for command, expected in re.findall(r"^\$ (.+)\n((?:(?!\$ ).*\n)*)", block.text, re.MULTILINE)
    ]
    for command, expected in commands:
        shell = ["bash", "-c", command]
        done = subprocess.run(shell, cwd=directory, env=kept, capture_output=True, text=True, timeout=300, check=False)
        if done.returncode or (expected and done.stdout.strip() != expected):
            yield f"README.md: {command}: {last_line(done)}"
        else:
            print(f"works: {command}", flush=True)
    program = "\n".join(block.text for block in blocks(ROOT / "README.md", "python"))
    done = subprocess.run(
        [environment / "bin" / "python", "-W", "error", "-c", SERVE],
        input=program, cwd=directory, env=kept, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    if done.returncode:
        yield f"README.md: the program in Python: {last_line(done)}"
    else:
        print("works: the program in Python of README.md", flush=True)
    stop = [environment / "bin" / "holdfast", "server", "stop"]
    subprocess.run(stop, cwd=directory, env=kept, capture_output=True, check=False)


# All of them


def check() -> Iterator[str]:
    """Yield all that keeps this commit from being released: first what is quick to find."""
    yield from check_contact(contact())
    yield from check_addresses(address_of_files())
    yield from check_changelog(read("CHANGELOG.md"), version())
    lab = tomllib.loads(read("lab/pyproject.toml"))
    yield from check_lab(lab["project"], version())
    wanted = tomllib.loads(read("pyproject.toml"))["build-system"]["requires"] + lab["build-system"]["requires"]
    yield from check_requirements(read("packaging/requirements.txt"), wanted)
    yield from check_committed()
    directory = Path(tempfile.mkdtemp(prefix="holdfast-release-", dir="/tmp"))  # short, for a socket
    try:
        yield from check_built(directory)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main() -> int:
    """Print what is wrong. Returns the exit code."""
    failed = 0
    for line in check():
        print(f"FAILED: {line}", flush=True)
        failed += 1
    print(f"holdfast {version()}: {f'{failed} failed' if failed else 'can be released'}")
    return 1 if failed else 0


def write_links() -> int:
    """Write the address into the pages that PyPI shows. Returns the exit code."""
    if not (address := address_of_files()):
        print("pyproject.toml: [tool.holdfast] files is empty")
        return 1
    for page in ON_PYPI:
        (ROOT / page).write_text(with_address(page, read(page), address), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(write_links() if sys.argv[1:] == ["--links"] else main())
