"""Schedules in TOML files: what they may say, and that a mistake is named by file and key."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.errors import ConfigError
from holdfast.schedule.command import Command
from holdfast.schedule.file import ScheduleFile, read
from holdfast.schedule.timetable import Cron, Every

WHOLE = """
[schedule]
name = "ops"
features = ["gpu", "big"]
concurrency = 4
prefix = "shop:"
tz = "Europe/Berlin"

[jobs.backup]
cron = "0 3 * * *"
command = ["./backup.sh", "--full"]
env = { LEVEL = "9" }
directory = "/srv"
kill_after = "500ms"
ttl = 20
min_runtime = "1m"
overlap = "queue"
misfire = "all"
grace = "1.5h"
on_crash = "again"
max_runtime = "1d"
on = "gpu"
history = 7

[jobs.cleanup]
every = "30s"
jitter = 5
command = "rm -f *.tmp"
shell = true
pass_url = true

[jobs.report]
cron = "@daily"
tz = "America/New_York"
python = "os.path:basename"
"""


def parsed(directory: Path, text: str) -> ScheduleFile:
    """The contents of a file."""
    file = directory / "jobs.toml"
    file.write_text(text, encoding="utf-8")
    return read(str(file))


def test_all_there_is(tmp_path: Path) -> None:
    plan = parsed(tmp_path, WHOLE)
    assert (plan.name, plan.features, plan.concurrency, plan.prefix) == ("ops", ["gpu", "big"], 4, "shop:")
    backup, cleanup, report = plan.jobs
    assert backup.when == Cron("0 3 * * *", "Europe/Berlin")
    assert backup.options == {
        "ttl": 20, "min_runtime": 60, "overlap": "queue", "misfire": "all", "grace": 5400, "on_crash": "again",
        "max_runtime": 86400, "on": ("gpu",), "history": 7,
    }  # fmt: skip
    assert isinstance(backup.what, Command)
    assert (backup.what.argv, backup.what.env) == (["./backup.sh", "--full"], {"LEVEL": "9"})
    assert (backup.what.directory, backup.what.kill_after, backup.what.pass_url) == ("/srv", 0.5, False)
    assert cleanup.when == Every(30, jitter=5, salt="cleanup")
    assert isinstance(cleanup.what, Command)
    assert (cleanup.what.argv, cleanup.what.pass_url) == (["/bin/sh", "-c", "rm -f *.tmp"], True)
    assert report.when == Cron("@daily", "America/New_York")
    assert report.what.__name__ == "basename"  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x", "jobs.toml: "),
        ("", "there is no job in the file: add [jobs.NAME]"),
        ("[job.x]\nevery=1", "job: there is no such key; write [jobs.NAME] for a job"),
        ("[backup]\nevery=1", "backup: there is no such key; known keys: jobs, schedule"),
        ("[[jobs]]\nname='x'", "jobs: write a table [jobs.NAME] for each job"),
        ("[[schedule]]\nname='x'", "schedule: write [schedule]"),
        ("[schedule]\nlabel = 'x'", "schedule.label: there is no such key"),
        ("[schedule]\nfeatures = 3", "schedule.features: 3 is neither text nor a list of texts"),
        ("[schedule]\nprefix = 1", "schedule.prefix: 1 is not text"),
        ("[schedule]\nconcurrency = true", "schedule.concurrency: True is not a whole number"),
        ("[jobs]\nx = 3", "jobs.x: 3 is not a table"),
        ("[jobs.x]\nevery=1\ncommand=['a']\ntimeout=3", "jobs.x.timeout: there is no such key; write max_runtime = "),
        ("[jobs.x]\nevery=1\ncommand=['a']\nlimit=3", "jobs.x.limit: there is no such key; known keys: command, cron"),
        ("[jobs.x]\nevery='1 s'\ncommand=['a']", "jobs.x.every: '1 s' is not a duration: write 30 (seconds)"),
        ("[jobs.x]\nevery=true\ncommand=['a']", "jobs.x.every: True is not a duration"),
        ("[jobs.x]\nevery=0\ncommand=['a']", "jobs.x: every must be between 0.1 and 1000000000 seconds, not 0"),
        ("[jobs.x]\ncron='0 25 * * *'\ncommand=['a']", "jobs.x: cron '0 25 * * *': '25' is not a valid hour"),
        ("[jobs.x]\nevery=1\ncron='@daily'\ncommand=['a']", "jobs.x.cron: set either cron or every"),
        ("[jobs.x]\ncommand=['a']", "jobs.x.cron: set either cron or every"),
        ("[jobs.x]\nevery=1\ntz='UTC'\ncommand=['a']", "jobs.x.tz: is an option for cron only"),
        ("[jobs.x]\nevery=1", "jobs.x.command: set either command = "),
        ("[jobs.x]\nevery=1\ncommand='a b'", "jobs.x.command: write it as a list"),
        ("[jobs.x]\nevery=1\ncommand=['a']\nshell=true", "jobs.x.command: ['a'] is not text"),
        ("[jobs.x]\nevery=1\ncommand=['a']\nenv={A=1}", "jobs.x.env: its values must be text"),
        ("[jobs.x]\nevery=1\npython='nowhere:f'", "jobs.x.python: 'nowhere:f': there is no module nowhere"),
        ("[jobs.x]\nevery=1\npython='os:nothing'", "jobs.x.python: 'os:nothing': there is no 'nothing' in os"),
        ("[jobs.x]\nevery=1\npython='os'", "jobs.x.python: 'os': write it as module:name"),
        ("[jobs.x]\nevery=1\npython='os:sep'", "jobs.x.python: 'os:sep' is not a function"),
        ("[jobs.x]\nevery=1\ncommand=['a']\nkill_after=-1", "jobs.x: kill_after must be"),
        ("[jobs.'']\nevery=1\ncommand=['a']", "jobs: name of a job must have 1 to 512 bytes"),
        ("[jobs.x]\nevery=1\npython='os:getpid'\nshell=true", "jobs.x.shell: is an option for commands only"),
    ],
)
def test_a_mistake_is_named_by_file_and_key(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(tmp_path, text)
    assert str(caught.value).startswith(f"{tmp_path / 'jobs.toml'}: ")
    assert said in str(caught.value)


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(
            tmp_path,
            """
            [schedule]
            concurrency = "many"
            [jobs.backup]
            cron = "0 25 * * *"
            cmd = "x"
            overlap = "never"
            ttl = "long"
            [jobs.fine]
            every = 1
            command = ["true"]
            [jobs.report]
            python = "os:sep"
            [jobs]
            late = 3
            """,
        )
    lines = str(caught.value).splitlines()
    places = [
        "schedule.name",
        "schedule.concurrency",
        "jobs.backup.cmd",
        "jobs.backup: job 'backup': overlap",
        "jobs.backup.ttl",
    ]
    places += ["jobs.backup: cron", "jobs.backup.command", "jobs.report.cron", "jobs.report.python", "jobs.late"]
    begin = f"{tmp_path / 'jobs.toml'}: "
    assert [line for line, place in zip(lines, places, strict=True) if not line.startswith(f"{begin}{place}")] == []
    assert caught.value.parameter == "name"


@pytest.mark.parametrize(
    ("text", "like"),
    [
        ("# daily\n0 3 * * * root /bin/backup\n", True),
        ("*/5 1-3,7 * jan mon-fri cmd\n", True),
        ("  @daily /bin/backup", True),
        ("[jobs.x\n", False),
        ("x = 1 2 3 4 5 6", False),
    ],
)
def test_a_crontab_is_told_from_other_files(tmp_path: Path, text: str, like: bool) -> None:
    with pytest.raises(ConfigError) as caught:
        parsed(tmp_path, text)
    assert ("this looks like a crontab: write each line as a table [jobs.NAME]" in str(caught.value)) is like


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        read(str(tmp_path / "none.toml"))
