"""``holdfast run``: exit codes, what is busy, what the command gets, and what is said."""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from cli.commands import FAMILY, PROGRAM, STUBBORN, Holdfast, error_line, line, pids, running, wait_until
from holdfast._core import control_records
from holdfast.cli.durations import duration, positive_duration

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import redis

    from conftest import NewServer


def key(name: str) -> str:
    return f"hf:{{{name}}}"


def await_record(client: redis.Redis, name: str) -> None:
    """Until the holder has said who it is, which it does a moment after it has the lock."""
    token = client.get(key(name))
    assert isinstance(token, bytes)
    wait_until(lambda: client.exists(f"hf:proc:{token.decode().partition('.')[0]}"))


class TestExitCodes:
    @pytest.mark.turns
    @pytest.mark.parametrize(
        ("command", "code"),
        [
            (["true"], 0),
            (["sh", "-c", "exit 3"], 3),
            (["sh", "-c", "kill -TERM $$"], 128 + 15),
            (["sh", "-c", "kill -KILL $$"], 128 + 9),
            (["no-such-command"], 127),
            (["/etc/passwd"], 126),
            (["/etc/passwd/x"], 127),
            (["/"], 126),
        ],
    )
    def test_the_command_s_own(self, hf: Holdfast, name: str, client: redis.Redis, command: list[str], code: int) -> None:
        done = hf(name, "--", *command)
        assert done.returncode == code
        assert done.stdout == ""
        assert done.stderr.count("\n") == (1 if code in {126, 127} else 0)
        assert not client.exists(key(name))

    def test_busy(self, hf: Holdfast, name: str, client: redis.Redis) -> None:
        client.set(key(name), "somebody", px=60_000)
        for options, code in (
            (["-n"], 75),
            (["--nonblock"], 75),
            (["-w", "50ms"], 75),
            (["--wait=0"], 75),
            (["-n", "-E", "9"], 9),
            (["-n", "--conflict-exit-code", "0"], 0),
            (["-v", "--skip"], 0),
            (["-vn", "--skip"], 0),
        ):
            done = hf(*options, name, "--", "echo", "ran")
            assert (done.returncode, done.stdout) == (code, "")
            assert done.stderr.startswith(f"holdfast: lock '{name}' is busy: ")
            assert done.stderr.count("\n") == 1
        assert hf("-nq", name, "--", "true").stderr == ""

    def test_skipped_at_once_and_without_a_word(self, hf: Holdfast, name: str, client: redis.Redis) -> None:
        """With ``--skip`` nobody waits, unless told to; and there is nothing for cron to mail."""
        holder = hf.start(name, "--", "sh", "-c", "echo; read line")
        line(holder)
        for options in (["--skip"], ["--skip", "-n"], ["--skip", "-w", "50ms"]):
            done = hf("--json", *options, name, "--", "echo", "ran")
            summary = json.loads(done.stderr)  # the only line, and asked for
            assert (done.returncode, done.stdout, summary["outcome"]) == (0, "", "skipped")
            assert summary["waited"] >= (0.05 if "50ms" in options else 0)
        waiter = hf.start("--skip", "-w", "1m", name, "--", "echo", "ran")
        wait_until(lambda: client.zcard(f"{key(name)}:queue"))
        holder.communicate("\n")
        assert waiter.communicate(timeout=20) == ("ran\n", "")

    def test_busy_until_it_is_free(self, hf: Holdfast, name: str, client: redis.Redis) -> None:
        holder = hf.start("--label", "nightly", name, "--", "sh", "-c", "echo; read line")
        line(holder)
        await_record(client, name)
        for waiting in ([], ["-w", "1m"]):
            waiter = hf.start("-v", *waiting, name, "--", "echo", "ran")
            assert error_line(waiter) == f"holdfast: {name}: waiting, held by {os.uname().nodename}:{holder.pid} (nightly)"
            assert waiter.poll() is None
            holder.communicate("\n")
            assert line(waiter) == "ran"
            err = waiter.communicate()[1]
            assert waiter.returncode == 0
            said = err.splitlines()
            assert said[0].startswith(f"holdfast: {name}: acquired after ")
            assert said[1].startswith(f"holdfast: {name}: released after ")
            assert len(said) == 2
            holder = hf.start("--label", "nightly", name, "--", "sh", "-c", "echo; read line")
            line(holder)
            await_record(client, name)

    @pytest.mark.parametrize("program", ["run", "elect"])
    def test_a_command_whose_name_makes_no_label(
        self, hf: Holdfast, name: str, client: redis.Redis, tmp_path: Path, program: str
    ) -> None:
        """Labels are printable, and of at most 200 characters. Readers ignore a record with any other label."""
        script = tmp_path / ("a\nb" + "x" * 230)
        script.write_text("#!/bin/sh\necho; read line\n")
        script.chmod(0o700)
        holder = hf.popen([*PROGRAM, program, name, "--", str(script)])
        line(holder)
        await_record(client, name)
        process = client.get(key(name)).decode().partition(".")[0]  # type: ignore[union-attr]
        said = control_records.read(client.get(f"hf:proc:{process}"))
        assert said is not None
        assert said.label_of(key(name).encode()) == "a?b" + "x" * 197
        holder.communicate("\n")
        assert holder.returncode == 0

    def test_unreachable(self, hf: Holdfast, name: str, tmp_path: Path) -> None:
        for url in ("redis://:canary-7@127.0.0.1:1", f"unix://:canary-7@{tmp_path}/none"):
            done = hf(name, "--", "echo", "ran", env={"HOLDFAST_URL": url})
            assert (done.returncode, done.stdout) == (69, "")
            assert done.stderr.startswith("holdfast: ")
            assert done.stderr.count("\n") == 1
            assert "canary" not in done.stderr
        assert "127.0.0.1:1" in hf(name, "--", "true", env={"HOLDFAST_URL": "redis://127.0.0.1:1"}).stderr

    def test_max_runtime(self, hf: Holdfast, name: str, client: redis.Redis) -> None:
        done = hf("--max-runtime", "100ms", name, "--", "sleep", "60")
        assert done.returncode == 124
        assert done.stderr == f"holdfast: {name}: the command still ran after 0.1 s; it was sent TERM\n"
        assert not client.exists(key(name))

    def test_max_runtime_of_a_command_that_ignores_term(self, hf: Holdfast, name: str) -> None:
        done = hf("--json", "--max-runtime", "0.8", "--kill-after", "0.6", name, "--", *STUBBORN)
        assert done.returncode == 124
        assert [text.split()[0] for text in done.stdout.splitlines()].count("term") == 1
        summary = json.loads(done.stderr.splitlines()[-1])
        assert summary["command_signal"] == signal.SIGKILL
        assert summary["held"] >= 0.8 + 0.6  # it was not killed at once


USAGE = {
    "no name": [],
    "no command": ["x"],
    "empty command": ["x", "--"],
    "two words before --": ["my", "name", "--", "true"],
    "-c and a command": ["-c", "true", "x", "--", "true"],
    "unknown option": ["--frobnicate", "x", "--", "true"],
    "abbreviated option": ["--nonb", "x", "--", "true"],
    "-w and -n": ["-n", "-w", "1", "x", "--", "true"],
    "-E and --skip": ["-E", "3", "--skip", "x", "--", "true"],
    "-q and -v": ["-q", "-v", "x", "--", "true"],
    "negative wait": ["--wait=-1", "x", "--", "true"],
    "not a number": ["-w", "soon", "x", "--", "true"],
    "NaN": ["--ttl", "nan", "x", "--", "true"],
    "infinite": ["--ttl", "inf", "x", "--", "true"],
    "no ttl": ["--ttl", "0", "x", "--", "true"],
    "ttl too short": ["--ttl", "10ms", "x", "--", "true"],
    "no runtime": ["--max-runtime", "0", "x", "--", "true"],
    "kill-after too long": ["--ttl", "10", "--kill-after", "5.1", "x", "--", "true"],
    "exit code too high": ["-E", "256", "x", "--", "true"],
    "exit code not a number": ["-E", "x", "x", "--", "true"],
    "unknown on-lost": ["--on-lost", "cry", "x", "--", "true"],
    "two servers": ["--local", "--url", "redis://h", "x", "--", "true"],
    "empty name": ["", "--", "true"],
    "name too long": ["x" * 513, "--", "true"],
    "bad URL": ["--url", "ftp://:canary-7@localhost", "x", "--", "true"],
    "no such URL file": ["--url-file", "/nonexistent/canary", "x", "--", "true"],
    "empty URL file": ["--url-file", "/dev/null", "x", "--", "true"],
    "password in the wrong place": ["--redis", "redis://:canary-7@localhost", "x", "--", "true"],
}


class TestUsage:
    @pytest.mark.turns
    @pytest.mark.parametrize("arguments", USAGE.values(), ids=USAGE.keys())
    def test_errors_are_one_line_and_64(self, hf: Holdfast, arguments: list[str]) -> None:
        done = hf(*arguments)
        assert done.returncode == 64
        assert done.stdout == ""
        said = [text for text in done.stderr.splitlines() if "can see the password in --url" not in text]
        assert len(said) == 1
        assert said[0].startswith("holdfast: ")
        assert "canary-7" not in done.stderr

    def test_without_a_terminal_it_wants_to_be_told_where(self, hf: Holdfast) -> None:
        environment = {k: v for k, v in os.environ.items() if k not in {"HOLDFAST_URL", "REDIS_URL"}}
        done = subprocess.run(
            [*PROGRAM, "run", "x", "--", "true"], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 64
        where = "set HOLDFAST_URL, or pass --url, --url-file, or --local for this machine's own server"
        assert done.stderr == f"holdfast: no server: {where} (see holdfast run --help)\n"

    def test_a_lease_in_milliseconds(self, hf: Holdfast, name: str) -> None:
        """The advice works in the shell, too: with the unit, there is no warning."""
        done = hf("--ttl", "30000", name, "--", "true")
        assert done.stderr.endswith(': pass 30 for 30000 milliseconds, or "30000s" if you mean it\n')
        done = hf("--ttl", "30000s", name, "--", "true")
        assert (done.returncode, done.stderr) == (0, "")

    def test_an_empty_variable_is_not_taken_for_none(self, hf: Holdfast) -> None:
        for variables in ({"HOLDFAST_URL": ""}, {"HOLDFAST_URL": " ", "REDIS_URL": hf.url}):
            done = hf("x", "--", "true", env=variables)
            assert done.returncode == 64
            assert "HOLDFAST_URL is set but empty" in done.stderr

    def test_a_name_that_is_no_text(self, hf: Holdfast) -> None:
        done = hf(os.fsdecode(b"\xff"), "--", "true")
        assert done.returncode == 64
        assert done.stderr.count("\n") == 1

    def test_a_key_of_another_type(self, hf: Holdfast, name: str, client: redis.Redis) -> None:
        client.rpush(key(name), "x")
        done = hf(name, "--", "echo", "ran")
        assert (done.returncode, done.stdout) == (64, "")
        assert "list" in done.stderr
        client.delete(key(name))

    def test_help_and_version(self) -> None:
        def said(*arguments: str) -> tuple[int, str]:
            done = subprocess.run([*PROGRAM, *arguments], capture_output=True, text=True, check=False)
            return done.returncode, done.stdout or done.stderr

        assert said("--version")[1].startswith("holdfast ")
        assert said("--help")[0] == 0
        assert all(word in said("--help")[1] for word in ("run", "server", "demo"))
        assert "NAME [--] COMMAND" in said("run", "--help")[1]
        assert said()[0] == 64
        assert said("walk")[0] == 64
        assert "walk" in said("walk")[1]

    def test_a_subcommand_is_imported_only_when_it_is_called(self, hf: Holdfast, name: str) -> None:
        script = (
            "import atexit, sys; atexit.register(lambda: print(*sys.modules, file=sys.stderr))\n"  # run lets go of stdout
            "from holdfast.cli import main; sys.exit(main(sys.argv[1:]))"
        )
        for arguments, present, absent in (
            (["--version"], "holdfast.cli", {"holdfast.cli.run", "holdfast.cli.server"}),
            (["run", name, "--", "true"], "holdfast.cli.run", {"holdfast.cli.server", "holdfast.cli.demo", "redis", "asyncio"}),
        ):
            process = hf.popen([sys.executable, "-c", script, *arguments], fresh=True)
            _, err = process.communicate()
            assert process.returncode == 0
            assert present in err.split()
            assert not absent & set(err.split())


class TestDurations:
    @pytest.mark.parametrize(
        ("text", "seconds"),
        [("0", 0), ("30", 30), ("0.5", 0.5), (".5", 0.5), ("3.", 3), ("500ms", 0.5), ("2s", 2), ("1.5m", 90), ("1d", 86400)],
    )
    def test_good(self, text: str, seconds: float) -> None:
        assert math.isclose(duration(text), seconds)

    @pytest.mark.parametrize("text", ["", " 1", "1 s", "-1", "+1", "1_0", "1e3", "nan", "inf", "s", "1w", "1S", "٣", "9" * 400])
    def test_bad(self, text: str) -> None:
        with pytest.raises(argparse.ArgumentTypeError, match="is not a duration"):
            duration(text)

    def test_more_than_zero(self) -> None:
        assert positive_duration("1ms") == 0.001
        with pytest.raises(argparse.ArgumentTypeError):
            positive_duration("0ms")


class TestWhatTheCommandGets:
    def test_name_and_fence(self, hf: Holdfast, name: str) -> None:
        """The fence rises from one holder to the next."""
        said = [hf(name, "--", "sh", "-c", "echo $HOLDFAST_NAME $HOLDFAST_FENCE").stdout.split() for _ in range(2)]
        assert [words[0] for words in said] == [name, name]
        assert 0 < int(said[0][1]) < int(said[1][1])

    def test_a_name_reaches_no_shell(self, hf: Holdfast) -> None:
        name = "$(exit 9); `id` \x1b[31m\n'\""
        done = hf("-v", name, "--", "sh", "-c", 'printf %s "$HOLDFAST_NAME"')
        assert done.stdout == name
        assert "\x1b" not in done.stderr
        assert done.stderr.count("\n") == 2

    def test_exit_codes_are_had_even_where_the_end_of_children_is_ignored(self, hf: Holdfast, name: str) -> None:
        inner = [*PROGRAM, "run", name, "--", "sh", "-c", "exit 3"]
        process = hf.popen(["sh", "-c", "trap '' CHLD; exec \"$@\"", "sh", *inner])
        process.communicate()
        assert process.returncode == 3

    def test_arguments_reach_it_as_they_are(self, hf: Holdfast, name: str) -> None:
        arguments = ["a b", "", "--", "-n", "*", "é"]
        assert hf(name, "--", "printf", "<%s>", *arguments).stdout == "<a b><><--><-n><*><é>"

    def test_a_shell_string(self, hf: Holdfast, name: str) -> None:
        done = hf("-c", "echo a | tr a b; exit 3", name)
        assert (done.returncode, done.stdout) == (3, "b\n")

    def test_stdin_and_stdout_are_its_own(self, hf: Holdfast, name: str) -> None:
        text = "line\n" * 200_000
        done = hf("-q", name, "--", "cat", input=text)
        assert done.stdout == text
        assert done.stderr == ""

    def test_who_reads_sees_the_end_when_the_command_closes_its_stdout(self, hf: Holdfast, name: str) -> None:
        process = hf.start(name, "--", "sh", "-c", "echo last; exec >&-; exec sleep 60")
        assert process.stdout is not None
        assert process.stdout.read() == "last\n"
        assert process.poll() is None
        process.terminate()
        assert process.wait() == 128 + signal.SIGTERM

    def test_closed_streams_do_not_matter(self, hf: Holdfast, name: str) -> None:
        """And no socket of ours takes the place of one."""
        check = "for i in 0 1 2; do test $(readlink /proc/$$/fd/$i) = /dev/null || exit 9; done; exit 5"
        inner = [*PROGRAM, "run", "-v", "--json", name, "--", "sh", "-c", check]
        process = hf.popen(["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *inner])
        process.communicate()
        assert process.returncode == 5

    def test_no_descriptor_but_three(self, hf: Holdfast, name: str) -> None:
        read, write = os.pipe()
        try:
            done = hf(name, "--", "sh", "-c", "ls /proc/$$/fd", pass_fds=(read, write))
        finally:
            os.close(read)
            os.close(write)
        assert done.stdout.split() == ["0", "1", "2"]

    def test_a_group_of_its_own(self, hf: Holdfast, name: str) -> None:
        process = hf.start(name, "--", "sh", "-c", "echo $$; read line")
        [pid] = pids(process)
        assert os.getpgid(pid) == pid
        assert os.getsid(pid) == os.getsid(process.pid)
        process.communicate("\n")

    def test_what_it_leaves_behind_is_ended_before_the_lock_is_given_back(
        self, hf: Holdfast, name: str, client: redis.Redis
    ) -> None:
        done = hf(name, "--", "sh", "-c", "sleep 60 & echo $!; exit 4")
        assert done.returncode == 4
        assert done.stderr == f"holdfast: {name}: the command left processes behind; they were sent TERM\n"
        assert not running(int(done.stdout))
        assert not client.exists(key(name))

    def test_a_daemon_is_named_and_ended(self, hf: Holdfast, name: str) -> None:
        done = hf(name, "--", "setsid", "-f", "sh", "-c", "echo $$; exec sleep 60 >&- 2>&-")
        daemon = int(done.stdout)
        assert not running(daemon)
        said = f"the command left a daemon behind, process {daemon} (sleep); it was sent TERM (--keep-daemons leaves it alone)"
        assert (done.returncode, done.stderr) == (0, f"holdfast: {name}: {said}\n")

    def test_a_daemon_is_left_alone_on_request(self, hf: Holdfast, name: str) -> None:
        done = hf("--keep-daemons", name, "--", "setsid", "-f", "sh", "-c", "echo $$; exec sleep 60 >&- 2>&-")
        daemon = int(done.stdout)
        assert running(daemon)
        os.kill(daemon, signal.SIGKILL)
        assert (done.returncode, done.stderr) == (0, "")

    def test_a_daemon_that_is_left_alone_keeps_its_children(self, hf: Holdfast, name: str) -> None:
        daemon = "sleep 60 >&- 2>&- & echo $$ $!; exec >&- 2>&-; wait"
        command = 'setsid -f sh -c "$0" | cat'  # ends when the child has begun
        done = hf("--keep-daemons", name, "--", "sh", "-c", command, daemon)
        family = [int(word) for word in done.stdout.split()]
        left = [running(pid) for pid in family]
        for pid in itertools.compress(family, left):
            os.kill(pid, signal.SIGKILL)
        assert (left, done.returncode, done.stderr) == ([True, True], 0, "")


class TestSecrets:
    URL = "redis://user:canary-7@192.0.2.1:6379/0"

    def test_urls_with_a_password_are_not_passed_on(self, hf: Holdfast, name: str, tmp_path: Path) -> None:
        file = tmp_path / "url"
        file.write_text(f"{hf.url}\n")
        variables = {"HOLDFAST_URL": self.URL, "REDIS_URL": "unix:///s?password=canary-7"}
        said = hf("-v", "--url-file", str(file), name, "--", "env", env=variables)
        assert "canary" not in said.stdout + said.stderr
        assert "HOLDFAST_URL" not in said.stdout
        assert "REDIS_URL" not in said.stdout
        said = hf("--pass-url", "--url-file", str(file), name, "--", "env", env=variables)
        assert f"HOLDFAST_URL={self.URL}" in said.stdout

    @pytest.mark.parametrize(
        "url",
        ["user:canary-7@192.0.2.1:6379", "redis://:canary-7@s", "u:a://canary-7@s", "redis://u:a canary-7@s"],
        ids=["no scheme", "no user", "a scheme inside", "a blank inside"],
    )
    def test_a_password_in_what_is_hardly_a_url_is_not_passed_on(self, hf: Holdfast, name: str, url: str) -> None:
        assert "canary" not in hf(name, "--", "env", env={"REDIS_URL": url}).stdout

    def test_a_blank_in_a_password_is_explained(self, hf: Holdfast, name: str, tmp_path: Path) -> None:
        file = tmp_path / "url"
        file.write_text("redis://u:a canary-7@s\n")
        for done in (
            hf(name, "--", "true", env={"HOLDFAST_URL": file.read_text()}),
            hf("--url-file", str(file), name, "--", "true"),
        ):
            assert (done.returncode, done.stderr.count("\n")) == (64, 1)
            assert "write a blank in a password as %20" in done.stderr
            assert "canary" not in done.stderr

    def test_a_server_with_a_password(self, new_server: NewServer, hf_on: Callable[[str], Holdfast], name: str) -> None:
        server = new_server(password="canary-7")
        hf = hf_on(server.url)
        assert "canary-7" in server.url
        done = hf("-v", "--json", name, "--", "sh", "-c", "env; ps -o args -p $PPID")
        assert done.returncode == 0
        assert "canary" not in done.stdout + done.stderr
        done = hf(name, "--", "true", env={"HOLDFAST_URL": server.url.replace("canary-7", "wrong-canary-8")})
        assert done.returncode == 69
        assert "canary" not in done.stderr

    def test_the_advice_to_pass_a_password_is_not_hidden_as_one(
        self, new_server: NewServer, hf_on: Callable[[str], Holdfast], name: str
    ) -> None:
        server = new_server(port=True, password="canary-7")
        done = hf_on(server.address)(name, "--", "true")
        assert done.returncode == 69
        assert done.stderr.endswith(
            " needs a password: pass a client that has it, or write it in the URL, as in :PASSWORD@HOST:PORT\n"
        )

    def test_urls_without_a_password_are(self, hf: Holdfast, name: str) -> None:
        variables = {"REDIS_URL": "redis://user@192.0.2.1", "HOLDFAST_URL": hf.url}
        environment = hf(name, "--", "env", env=variables).stdout.splitlines()
        assert {f"{variable}={value}" for variable, value in variables.items()} <= set(environment)

    def test_holdfast_url_comes_before_redis_url(self, hf: Holdfast, name: str) -> None:
        assert hf(name, "--", "true", env={"REDIS_URL": "redis://127.0.0.1:1"}).returncode == 0
        assert hf("--url", "redis://127.0.0.1:1", name, "--", "true").returncode == 69

    def test_a_password_on_the_command_line_is_told_off(self, hf: Holdfast, name: str) -> None:
        done = hf("--url", "redis://:canary-7@127.0.0.1:1", name, "--", "true")
        warning, error = done.stderr.splitlines()
        assert "HOLDFAST_URL or --url-file" in warning
        assert "canary" not in done.stderr
        assert "password in" not in hf("--url", "redis://127.0.0.1:1", name, "--", "true").stderr
        assert done.returncode == 69
        assert error.startswith("holdfast: ")


class TestSummary:
    def summary(self, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(done.stderr.splitlines()[-1])
        assert found["exit_code"] == done.returncode
        return found

    def test_finished(self, hf: Holdfast, name: str) -> None:
        done = hf("--json", name, "--", "sh", "-c", "echo $HOLDFAST_FENCE; exit 3")
        found = self.summary(done)
        assert done.stderr.count("\n") == 1
        assert found.pop("waited") < 60
        assert 0 < found.pop("held") < 60
        assert found == {
            "name": name,
            "outcome": "finished",
            "exit_code": 3,
            "fence": int(done.stdout),
            "lost": False,
            "command_exit_code": 3,
            "command_signal": None,
        }

    def test_others(self, hf: Holdfast, name: str, client: redis.Redis) -> None:
        assert self.summary(hf("--json", name, "--", "no-such-command"))["outcome"] == "exec"
        assert self.summary(hf("--json", name, "--url", "redis://127.0.0.1:1", "--", "true"))["outcome"] == "unreachable"
        assert self.summary(hf("--json", name, "--ttl", "1ms", "--", "true"))["outcome"] == "usage"
        limited = self.summary(hf("--json", "--max-runtime", "50ms", name, "--", "sleep", "60"))
        assert (limited["outcome"], limited["command_signal"]) == ("max-runtime", signal.SIGTERM)
        client.set(key(name), "somebody", px=60_000)
        assert self.summary(hf("--json", "-n", name, "--", "true"))["outcome"] == "busy"
        quiet = hf("--json", "-qn", "--skip", name, "--", "true")
        assert self.summary(quiet)["outcome"] == "skipped"
        assert quiet.stderr.count("\n") == 1


class TestGuarded:
    def test_holdfast_killed_with_9(self, hf: Holdfast, name: str) -> None:
        process = hf.start(name, "--", *FAMILY)
        family = pids(process)
        process.kill()
        wait_until(lambda: not any(running(pid) for pid in family))

    def test_its_whole_job_killed_with_9(self, hf: Holdfast, name: str) -> None:
        process = hf.start(name, "--", *FAMILY, start_new_session=True)
        family = pids(process)
        os.killpg(process.pid, signal.SIGKILL)
        wait_until(lambda: not any(running(pid) for pid in family))
