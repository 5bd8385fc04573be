"""``holdfast schedule`` and ``holdfast jobs``: as processes that are told to stop and killed, and what they say."""

from __future__ import annotations

import functools
import itertools
import json
import logging
import os
import re
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import redis

import holdfast
from cli.commands import PROGRAM, Holdfast, error_line, line, running, wait_until
from holdfast.cli import main, output, parser_of
from holdfast.cli.schedule import _echo, _Lines
from holdfast.schedule import file as schedule_file
from support.clusters import cluster

if TYPE_CHECKING:
    from support.servers import PrivateServer

_numbers = itertools.count()


@pytest.fixture
def file(tmp_path: Path) -> Callable[[str], str]:
    """Writes a schedule of its own, of these jobs; answers with the path of the file."""

    def write(jobs: str) -> str:
        path = tmp_path / "jobs.toml"
        path.write_text(f'[schedule]\nname = "cli-{next(_numbers)}"\n{jobs}', encoding="utf-8")
        return str(path)

    return write


def name_in(path: str) -> str:
    return Path(path).read_text(encoding="utf-8").split('"')[1]


@pytest.fixture
def jobs(server: PrivateServer, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """``holdfast jobs ...`` about a schedule: the code, if it is not 0, or what it says, read if it is JSON, and of a list the
    jobs. One that nobody has served yet has none."""

    def ask(schedule: str, *arguments: str) -> Any:
        capsys.readouterr()
        code = main(["jobs", "--url", server.url, "--schedule", schedule, *arguments])
        out = capsys.readouterr().out
        if code == 64 and arguments and arguments[0] in {"--json", "--prefix"}:
            return []
        found = json.loads(out) if "--json" in arguments and not code else out
        return code or (found["jobs"] if isinstance(found, dict) and "jobs" in found else found)

    return ask


@pytest.fixture
def quiet_warnings(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """For calls of `main` in this process: nothing stays of what it does about warnings and the path."""
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    monkeypatch.setattr(sys, "path", sys.path[:])
    with warnings.catch_warnings():
        yield


JOBS = """
[jobs.good]
every = "200ms"
command = "echo $HOLDFAST_JOB $HOLDFAST_ATTEMPT"
shell = true
[jobs.bad]
every = "200ms"
command = ["sh", "-c", "echo oops; exit 4"]
[jobs.broken]
cron = "* * * * * *"
python = "os.path:isfile"
[jobs.elsewhere]
every = "200ms"
on = "gpu"
command = ["true"]
"""


def test_a_file_is_served_until_sigterm(hf: Holdfast, file: Callable[[str], str], jobs: Callable[..., Any]) -> None:
    path = file(JOBS)
    schedule = name_in(path)
    process = hf.popen([*PROGRAM, "schedule", "-v", path])
    assert error_line(process) == f"holdfast: schedule {schedule!r}: 4 jobs"
    expected = {"good: good 1", "bad: oops"}
    for said in iter(lambda: line(process), ""):
        expected.discard(said)
        if not expected:
            break
    wait_until(lambda: len(jobs(schedule, "--json")) == 3)

    def runs(job: str) -> list[dict[str, Any]]:
        return [record for record in jobs(schedule, "history", job, "--json") if record["status"] != "skipped"]

    wait_until(lambda: all(map(runs, ("good", "bad", "broken"))))
    jobs(schedule, "pause", "good")
    assert jobs(schedule, "run", "bad") == "bad: will run now\n"
    by_name = {job["name"]: job for job in jobs(schedule, "--json")}
    failed = runs("bad")[0]
    process.terminate()
    _, err = process.communicate(timeout=20)
    assert process.returncode == 0
    assert err.splitlines()[-1] == f"holdfast: schedule {schedule!r}: stopped"
    assert "holdfast: good: started, tick 20" in err
    assert "holdfast: good: done, after " in err
    assert re.search(r"^holdfast: bad: exit code 4: oops, after \d+\.\d s$", err, re.MULTILINE)
    assert "holdfast: broken: TypeError: " in err
    assert "holdfast: job 'broken' failed\n  Traceback (most recent call last):\n" in err
    assert by_name.keys() == {"good", "bad", "broken"}, "the other is not served here"
    assert (failed["status"], failed["error"]) == ("error", "exit code 4: oops")
    assert by_name["good"]["paused"] is True
    assert by_name["broken"]["when"] == "* * * * * * UTC"


def test_a_traceback_is_said_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other threads of the process say something, too."""
    pieces: list[str] = []
    monkeypatch.setattr(output, "_write", pieces.append)
    with pytest.raises(ValueError, match="one") as caught:
        raise ValueError("one\ntwo")
    error = (ValueError, caught.value, caught.tb)
    _Lines().emit(logging.LogRecord("x", logging.ERROR, "", 0, "job %r failed", ("x",), error))
    [piece] = pieces
    assert piece.startswith("holdfast: job 'x' failed\n  Traceback (most recent call last):\n")
    assert piece.endswith("\n  ValueError: one\n  two\n")


def test_a_line_of_a_command_is_passed_on_in_one_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    """With PYTHONUNBUFFERED, too: print() writes the end of the line by itself."""
    pieces: list[str] = []
    monkeypatch.setattr(sys, "stdout", SimpleNamespace(write=pieces.append, flush=lambda: None))
    _echo("good", "a line")
    assert [piece for piece in pieces if piece] == ["good: a line\n"]


def test_what_jobs_says(server: PrivateServer, jobs: Callable[..., Any]) -> None:
    schedule = holdfast.Schedule(server.url, f"cli-{next(_numbers)}")
    schedule.add(lambda: "a\nresult", holdfast.schedule.Cron("@yearly"), name="yearly")
    with schedule:
        assert jobs(schedule.name, "run", "yearly") == "yearly: will run now\n"
        wait_until(lambda: jobs(schedule.name, "--json")[0]["last"])
        assert jobs(schedule.name, "pause", "yearly") == "yearly: paused\n"
        head, row, _ = jobs(schedule.name).splitlines()
        assert head.startswith("job     when ")
        assert row.startswith("yearly  @yearly UTC  ")
        assert row.endswith("  paused")
        assert jobs(schedule.name, "resume", "yearly", "--json") == {"job": "yearly", "done": "resume"}
        assert jobs(schedule.name, "cancel", "yearly") == "yearly: its runs were told to end\n"
        head, row = jobs(schedule.name, "history", "yearly").splitlines()
        assert head.split() == ["tick", "(UTC)", "status", "took", "on", "attempt", "fence", "text"]
        assert row.endswith("  a | result")
        (record,) = jobs(schedule.name, "history", "yearly", "--json")
        assert (record["status"], record["result"], record["attempt"]) == ("ok", "a\nresult", 1)
    assert jobs(schedule.name, "remove", "yearly") == "yearly: removed\n"
    assert jobs(schedule.name).splitlines() == [
        f"there are no jobs in schedule {schedule.name!r}",
        f"no process serves schedule {schedule.name!r}, so its jobs do not run",
    ]
    assert jobs(schedule.name, "pause", "yearly") == 64
    assert jobs(schedule.name, "history", "yearly") == 64


LONG = """
[jobs.long]
cron = "@yearly"
on = "big"
command = ["sh", "-c", "{}"]
kill_after = "300ms"
"""


def started(hf: Holdfast, path: str, jobs: Callable[..., Any], *options: str) -> Any:
    """A process that serves the file, and runs its job ``long``."""
    process = hf.popen([*PROGRAM, "schedule", "-v", "--feature", "big", path, *options])
    wait_until(lambda: jobs(name_in(path), "--json"))
    jobs(name_in(path), "run", "long")
    return process


def last(jobs: Callable[..., Any], path: str) -> tuple[str, str]:
    record = jobs(name_in(path), "history", "long", "--json")[0]
    return record["status"], record["result"]


@pytest.mark.turns
@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM], [signal.SIGHUP, signal.SIGHUP]])
def test_what_runs_may_finish(
    hf: Holdfast, file: Callable[[str], str], jobs: Callable[..., Any], signals: list[signal.Signals]
) -> None:
    """A terminal that is closed may send SIGHUP twice."""
    path = file(LONG.format("echo begun; sleep 0.4; echo finished"))
    process = started(hf, path, jobs)
    assert line(process) == "long: begun"
    process.send_signal(signals[0])
    for number in signals[1:]:
        time.sleep(0.1)
        process.send_signal(number)
    assert line(process) == "long: finished"
    assert process.wait(20) == 0
    assert last(jobs, path) == ("ok", "begun\nfinished")


@pytest.mark.turns
@pytest.mark.parametrize("wait", ["200ms", "1h"])
def test_what_does_not_finish_is_ended(hf: Holdfast, file: Callable[[str], str], jobs: Callable[..., Any], wait: str) -> None:
    """After its time, or with a second signal at once; a stubborn one with SIGKILL."""
    path = file(LONG.format("trap '' TERM; sleep 60 & echo $$ $!; wait; wait"))
    process = started(hf, path, jobs, "--finish-within", wait)
    family = [int(word) for word in line(process).split()[1:]]
    process.terminate()
    if wait == "1h":
        process.send_signal(signal.SIGINT)  # not the same: two that wait to be heard are one
    assert process.wait(20) == 0
    assert not any(map(running, family))
    assert last(jobs, path)[0] == "cancelled"


def test_a_command_does_not_outlive_its_scheduler(hf: Holdfast, file: Callable[[str], str], jobs: Callable[..., Any]) -> None:
    path = file(LONG.format("sleep 60 & echo $$ $!; wait"))
    process = started(hf, path, jobs)
    family = [int(word) for word in line(process).split()[1:]]
    assert all(map(running, family))
    process.kill()
    wait_until(lambda: not any(map(running, family)))


MODULE = """
import os, sys
import holdfast.aio

threads = holdfast.Schedule(os.environ["HOLDFAST_URL"], "module-threads")
tasks = holdfast.aio.Schedule(os.environ["HOLDFAST_URL"], "module-tasks")
other = 7

@threads.every(0.1)
def tick():
    os.write(1, f"{os.getpid()} {'redis' in sys.modules}\\n".encode())

@tasks.every(0.1)
async def tock():
    tick()
"""


@pytest.mark.parametrize("api", ["threads", "tasks"])
def test_a_schedule_of_a_module_is_served(hf: Holdfast, tmp_path: Path, api: str) -> None:
    (tmp_path / "ours.py").write_text(MODULE, encoding="utf-8")
    process = hf.popen([*PROGRAM, "schedule", f"ours:{api}"], cwd=tmp_path)
    assert line(process) == f"{process.pid} False"
    process.terminate()
    _, err = process.communicate(timeout=20)
    assert (process.returncode, err.splitlines()[-1]) == (0, f"holdfast: schedule 'module-{api}': stopped")


def test_check_asks_no_server(file: Callable[[str], str], capsys: pytest.CaptureFixture[str], quiet_warnings: None) -> None:
    assert main(["schedule", "--check", file(JOBS)]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].split("  ")[0] == "job"
    assert [row.split()[0] for row in out[1:]] == ["good", "bad", "broken", "elsewhere"]
    assert out[1].count(", 20") == 2


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["schedule", "none.toml"], 64, "schedule: none.toml: No such file or directory"),
        (["schedule", "nowhere:x"], 64, "schedule: 'nowhere:x': there is no module nowhere"),
        (
            ["schedule", "os"],
            64,
            "schedule: 'os' is neither a FILE.toml nor a MODULE:object; a file of jobs is in TOML, and its name ends ",
        ),
        (
            ["schedule", "jobs.yaml"],
            64,
            "schedule: 'jobs.yaml' is neither a FILE.toml nor a MODULE:object; a file of jobs is in TOML, and its name ends ",
        ),
        (
            ["schedule", "*/5 * * * * root backup.sh"],
            64,
            "this looks like a crontab: write each line as a table [jobs.NAME]; `holdfast schedule --help` has an example",
        ),
        (["schedule", "@daily backup.sh"], 64, "this looks like a crontab: write each line as a table [jobs.NAME]; "),
        (
            ["schedule", "* * * * *", "true"],
            64,
            "'true' is too much; the jobs stand in a file, each with its times and its command; write holdfast schedule ",
        ),
        (["schedule", "os:sep"], 64, "schedule: 'os:sep' is a str, not a holdfast.Schedule"),
        (["schedule", "os:sep", "--name", "x"], 64, "--name is for TOML files: set it on the Schedule object in the module"),
        (
            ["schedule", "os:sep", "--prefix", "x"],
            64,
            "--prefix is for TOML files: set it on the Schedule object in the module",
        ),
        (["jobs", "pause", "--schedule", "x"], 64, "pause: pass the name of a job after the action"),
        (["schedule", "os:sep", "--strict"], 64, "--strict is for TOML files: set it on the Schedule object in the module"),
        (
            ["jobs", "pause", "x"],
            64,
            "--schedule NAME is missing: `holdfast jobs` lists the schedules (see holdfast jobs --help)",
        ),
        (["jobs", "--url", "redis://127.0.0.1:1"], 69, "jobs: schedules: failed: no server at 127.0.0.1:1"),
        (["jobs", "--schedule", "x", "--url", "redis://127.0.0.1:1"], 69, "jobs: schedule 'x'"),
        (
            ["jobs", "--schedule", "x", "--url", "redis://a", "--url", "redis://b"],
            64,
            "this subcommand works on one server",
        ),
    ],
)
def test_what_cannot_be(
    arguments: list[str], code: int, said: str, capfd: pytest.CaptureFixture[str], quiet_warnings: None
) -> None:
    try:
        found = main(arguments)
    except SystemExit as exit_:
        found = exit_.code  # type: ignore[assignment]
    out, err = capfd.readouterr()
    assert (found, out) == (code, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_each_mistake_has_a_line(file: Callable[[str], str], capfd: pytest.CaptureFixture[str], quiet_warnings: None) -> None:
    path = file("[jobs.x]\nevery=1\ntimeout=3\n[jobs.y]\ncommand=['a']")
    assert main(["schedule", path]) == 64
    out, err = capfd.readouterr()
    wrong = ["jobs.x.timeout: there", "jobs.x.command: set", "jobs.y.cron: set"]
    begun = [
        line
        for line, what in zip(err.splitlines(), wrong, strict=True)
        if line.startswith(f"holdfast: schedule: {path}: {what}")
    ]
    assert (out, len(begun)) == ("", 3)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "crontab",
            "*/5 * * * * root backup\n",
            "a file of jobs is in TOML, and its name ends with .toml; this looks like a crontab",
        ),
        ("jobs.ini", "[jobs]\n", "a file of jobs is in TOML, and its name ends with .toml\n"),
        ("shop.py", "", "name the schedule in the module, as in shop:schedule\n"),
    ],
)
def test_a_file_that_is_not_in_toml(
    name: str, text: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], quiet_warnings: None
) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    assert main(["schedule", str(path)]) == 64
    assert capfd.readouterr().err.startswith(f"holdfast: schedule: {path}: {said}")


def test_the_help_shows_a_file(tmp_path: Path) -> None:
    told = str(parser_of("schedule")[1].epilog)
    example, _, rest = told.partition("Durations")
    path = tmp_path / "jobs.toml"
    path.write_text(example.partition("jobs.toml:")[2], encoding="utf-8")
    plan = schedule_file.read(str(path))
    assert (plan.name, [job.name for job in plan.jobs]) == ("ops", ["backup", "clean-up"])
    words = set(re.findall(r"\w+", rest)) | set(re.findall(r"\w+(?= =)", example))
    assert schedule_file.KEYS - words == set()


def test_a_server_that_is_not_there(hf_on: Callable[[str], Holdfast], file: Callable[[str], str]) -> None:
    process = hf_on("redis://:secret@127.0.0.1:1").popen([*PROGRAM, "schedule", "-q", file(JOBS)])
    out, err = process.communicate(timeout=20)
    assert (process.returncode, out) == (69, "")
    assert "127.0.0.1:1" in err
    assert "secret" not in err


def test_a_coroutine_function_is_for_another_schedule(
    file: Callable[[str], str], capfd: pytest.CaptureFixture[str], quiet_warnings: None
) -> None:
    path = file("[jobs.x]\nevery=1\npython='asyncio:sleep'")
    assert main(["schedule", "--check", path]) == 64
    assert (
        f"{path}: jobs.x.python: must be a plain function, not a coroutine function: add it to a holdfast.aio.Schedule"
        in capfd.readouterr().err
    )


def test_a_prefix_is_of_all_keys(
    server: PrivateServer, hf: Holdfast, file: Callable[[str], str], jobs: Callable[..., Any]
) -> None:
    path = file('prefix = "own:"\n[jobs.x]\nevery = "200ms"\ncommand = ["true"]')
    name = name_in(path)

    def ran(prefix: str) -> bool:
        return any(job["last"] for job in jobs(name, "--prefix", prefix, "--json"))

    for options, prefix in (([], "own:"), (["--prefix", "shop:"], "shop:")):
        process = hf.popen([*PROGRAM, "schedule", *options, path])
        wait_until(functools.partial(ran, prefix))
        process.terminate()
        process.communicate(timeout=20)
    assert jobs(name, "--json") == [], "no schedule, without prefix"
    with redis.Redis.from_url(server.url) as client:
        found = set(client.scan_iter(match=f"*schedule:{{{name}}}"))
    assert found == {f"{prefix}schedule:{{{name}}}".encode() for prefix in ("own:", "shop:")}


def test_a_generator_function_is_refused(
    file: Callable[[str], str], capfd: pytest.CaptureFixture[str], quiet_warnings: None
) -> None:
    path = file("[jobs.x]\nevery=1\npython='pkgutil:walk_packages'")
    assert main(["schedule", "--check", path]) == 64
    assert f"{path}: jobs.x.python: walk_packages is a generator: called as a job it would do nothing" in capfd.readouterr().err


def test_an_option_that_makes_no_sense_is_named_with_its_file(
    file: Callable[[str], str], capfd: pytest.CaptureFixture[str], quiet_warnings: None
) -> None:
    path = file("[jobs.x]\nevery=1\ncommand=['a']\noverlap='never'")
    assert main(["schedule", "--check", path]) == 64
    assert capfd.readouterr().err.startswith(f"holdfast: schedule: {path}: jobs.x: job 'x': overlap must be one of skip, ")


def test_who_serves_a_schedule_and_that_nobody_does(server: PrivateServer, capfd: pytest.CaptureFixture[str]) -> None:
    def ask(*arguments: str) -> tuple[int, str, str]:
        return main(["jobs", "--url", server.url, "--schedule", name, *arguments]), *capfd.readouterr()

    name = f"cli-{next(_numbers)}"
    code, out, err = ask()
    assert (code, out) == (64, "")
    assert f"there is no schedule {name!r} on this server: check --schedule, --prefix and the URL" in err
    schedule, more = holdfast.Schedule(server.url, name), holdfast.Schedule(server.url, name)
    schedule.add(lambda: None, holdfast.schedule.Cron("@yearly"), name="yearly")
    more.add(lambda: None, holdfast.schedule.Cron("@yearly"), name="other")
    with schedule:
        (runner,) = schedule.runners()
        assert f":{os.getpid()}" in runner.host
        assert abs(runner.since - time.time()) < 60
        with more:
            assert len(more.runners()) == 2
        _, out, _ = ask()
        *_, other, yearly, served = out.splitlines()
        assert other.startswith("other ")
        assert other.endswith("  no process serves it")
        assert yearly.endswith("  -")
        assert served.startswith(f"served by {runner.host} since 20")
        _, out, _ = ask("--json")
        found = json.loads(out)
        assert [job["served"] for job in found["jobs"]] == [False, True]
        assert found["runners"] == [{"host": runner.host, "since": runner.since}]
    assert schedule.runners() == []
    code, out, _ = ask()
    assert (code, out.splitlines()[-1]) == (0, f"no process serves schedule {name!r}, so its jobs do not run")


def test_the_schedules_of_a_server(server: PrivateServer, client: redis.Redis, capfd: pytest.CaptureFixture[str]) -> None:
    def ask(*arguments: str) -> tuple[int, str, str]:
        return main(["jobs", "--url", server.url, "--prefix", prefix, *arguments]), *capfd.readouterr()

    prefix = f"cli-{next(_numbers)}:"
    none = "holdfast: no schedules; the server knows a schedule once a process has served it\n"
    assert ask() == (0, "", none)
    assert ask("--json") == (0, '{"schedules": []}\n', "")
    names = ["a {b}*\u00e9", "b", "c"]
    for name in names:
        schedule = holdfast.Schedule(server.url, name, prefix=prefix)
        schedule.add(lambda: None, holdfast.schedule.Cron("@yearly"), name="yearly")
        with schedule:
            pass
    others = {f"{prefix}other {number}": "" for number in range(2000)}
    client.mset(others)  # more keys than one step of a SCAN returns
    code, out, err = ask()
    client.delete(*others)
    assert (code, out.splitlines()) == (0, ["schedule", *names])
    assert err == "holdfast: to list the jobs of a schedule, pass --schedule NAME\n"
    assert ask("-q") == (0, out, "")
    assert json.loads(ask("--json")[1]) == {"schedules": names}


def test_the_schedules_of_a_cluster_on_all_its_servers(capfd: pytest.CaptureFixture[str]) -> None:
    names = list("abcdefghij")
    with cluster() as three:
        for name in names:
            with holdfast.Schedule(three.url, name) as schedule:
                assert schedule.runners()
        assert main(["jobs", "--json", "--url", three.url]) == 0
    assert json.loads(capfd.readouterr().out) == {"schedules": names}


def test_a_file_needs_a_name(tmp_path: Path, capfd: pytest.CaptureFixture[str], quiet_warnings: None) -> None:
    path = tmp_path / "jobs.toml"
    path.write_text('[jobs.x]\nevery = 1\ncommand = ["true"]\n', encoding="utf-8")
    assert main(["schedule", "--check", str(path)]) == 64
    assert f'{path}: schedule.name: the schedule needs a name: write name = "..." under [schedule]' in capfd.readouterr().err
    assert main(["schedule", "--check", "--name", "x", str(path)]) == 0


PLANTED = ("tomllib", "json", "redis", "valkey", "croniter", "zoneinfo", "asyncio", "importlib", "holdfast", "shlex", "ours")


@pytest.mark.turns
@pytest.mark.parametrize("python", [False, True], ids=["commands", "python"])
def test_no_code_of_the_current_directory_is_run(
    hf: Holdfast, file: Callable[[str], str], tmp_path: Path, python: bool
) -> None:
    """If functions of the file are to be run, its modules come last."""
    directory = tmp_path / "strange"
    directory.mkdir()
    for module in PLANTED:
        (directory / f"{module}.py").write_text(f"print('planted {module}')\ndef job(): pass\n", encoding="utf-8")
    path = file('[jobs.x]\nevery = "1s"\n' + ("python = 'ours:job'" if python else "command = ['true']"))
    program = [sys.executable, "-P", "-m", "holdfast"]  # as the installed script: nothing of the directory is on the path
    process = hf.popen([*program, "schedule", "--check", path], cwd=directory)
    out, err = process.communicate(timeout=20)
    assert (process.returncode, err) == (0, "")
    assert [line for line in out.splitlines() if "planted" in line] == ["planted ours"] * python
    process = hf.popen([*program, "schedule", "-v", path], cwd=directory)
    assert "1 jobs" in error_line(process)
    assert "x: started" in error_line(process)
    process.terminate()
    out, err = process.communicate(timeout=20)
    assert [line for line in (out + err).splitlines() if "planted" in line] == ["planted ours"] * python
    assert process.returncode == 0


def test_no_path_is_changed_for_commands(
    file: Callable[[str], str], capsys: pytest.CaptureFixture[str], quiet_warnings: None
) -> None:
    before = sys.path[:]
    assert main(["schedule", "--check", file("[jobs.x]\nevery = 1\ncommand = ['true']")]) == 0
    assert sys.path == before
    assert main(["schedule", "--check", file("[jobs.x]\nevery = 1\npython = 'os:getpid'")]) == 0
    assert sys.path[: len(before)] == before
