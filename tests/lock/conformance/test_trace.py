"""The format on the server, as a recorded trace: a later release that gives the same answers and leaves the same keys can run
side by side with this one.

``trace_format_1.json`` is a list of steps: a script with its keys and arguments, its reply, and every key with type and
content afterwards. Times are wildcards: ``us:n`` is a server time in microseconds, the same wherever the same n stands and
rising with n, and ``us:n+32`` is 32 more; ``ms`` is one in milliseconds; ``<=30000 ms`` is time that is left. It is never
changed: a new format gets a file of its own. ``PYTHONPATH=tests python tests/lock/conformance/test_trace.py`` writes what the
present scripts do to standard output.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

from holdfast._core.lock.replies import BLOCK
from support.box import KEYS, LOCK, STATE, Box, token
from support.servers import private

FILE = Path(__file__).with_name("trace_format_1.json")
A, B, C, D = (token(process) for process in "abcd")
OF_A, OF_B = (f"{process * 12}@{prefix.hex()}.{0:032x}" for process, prefix in (("a", b"a:"), ("b", b"b:")))
RAW = ("{jobs}:lock", "{jobs}:lock:state", "{jobs}:lock:queue")
TODAY = {"guard": "check"}
"""Scripts that have another name than when the trace was recorded."""
OTHER = ("lock:y", "{lock:y}:state:raw", "{lock:y}:queue:raw")


def mark_of(holder: str) -> str:
    return hashlib.sha1(holder.encode(), usedforsecurity=False).hexdigest()[:16]


def program() -> list[dict[str, Any]]:
    """Return the steps of the trace, without the outcomes."""

    def script(name: str, *args: object, keys: tuple[str, ...] = KEYS) -> dict[str, Any]:
        return {"script": name, "keys": list(keys), "args": list(args)}

    def command(*args: object) -> dict[str, Any]:
        return {"command": list(args)}

    return [
        {"listen": "b"},
        script("acquire", A, 30_000, 0),
        script("acquire", A, 30_000, 0),
        script("acquire", A, 30_000, 0, BLOCK),
        script("acquire", B, 30_000, 0),
        script("acquire", B, 30_000, 1),
        script("acquire", C, 30_000, 1),
        script("refresh", "hf:inbox:" + "b" * 12, B, 30_000),
        script("renew", A, 60_000, 1),
        script("renew", A, 60_000, 2, B, 60_000, 1, keys=KEYS + OTHER),
        script("release", A, "release"),
        {"hear": "b"},
        script("release", A, "release"),
        script("refresh", "hf:inbox:" + "b" * 12, B, 30_000),
        script("acquire", D, 30_000, 1),
        script("release", C, "leave"),
        script("release", C, "bury"),
        script("acquire", C, 30_000, 1),
        script("release", B, "release"),
        script("acquire", D, 30_000, 0),
        script("refresh", "hf:inbox:" + "c" * 12, C, 30_000, A, 5_000, keys=KEYS + OTHER),
        script("acquire", A, 5_000, 0, keys=OTHER),
        script("release", A, "release", keys=OTHER),
        script("release", D, "release"),
        script("renew", D, 30_000, 2),
        command("SET", LOCK, "of another make", "PX", 20_000),
        script("acquire", A, 30_000, 1),
        script("renew", A, 30_000, 3),
        script("release", A, "leave"),
        command("DEL", LOCK),
        command("HSET", STATE, "v", "2"),
        script("acquire", A, 30_000, 0),
        script("guard", 7, 60_000, "value", 30_000, keys=("data", "{data}:fence")),
        script("guard", 6, 60_000, "late", 30_000, keys=("data", "{data}:fence")),
        script("guard", 8, 60_000, keys=("data", "{data}:fence")),
        # A key of the user's own, shared by two prefixes: the tokens name them
        script("acquire", OF_A, 30_000, 0, keys=RAW),
        script("acquire", OF_B, 30_000, 1, keys=RAW),
        command("HSET", RAW[1], "broken", f"{mark_of(OF_A)} 9"),
        command("DEL", RAW[0]),
        script("renew", OF_A, 30_000, 1, keys=RAW),
        script("renew", OF_B, 30_000, 1, keys=RAW),
    ]


class Wildcards:
    """Names for times, in the order in which they are first seen."""

    def __init__(self) -> None:
        self._seen: list[int] = []

    def us(self, value: int) -> str:
        for far in (BLOCK - 1, 1 - BLOCK):  # first and last number of a block
            if value - far in self._seen:
                return f"us:{self._seen.index(value - far) + 1}{far:+}"
        if value not in self._seen:
            assert not self._seen or value > self._seen[-1], "server times rise"
            self._seen.append(value)
        return f"us:{self._seen.index(value) + 1}"

    def text(self, value: bytes | str) -> str:
        text = value.decode() if isinstance(value, bytes) else value
        words = [str(self.number(int(word))) if word.isdigit() and len(word) > 12 else word for word in text.split(" ")]
        return " ".join(words)

    def number(self, value: int) -> int | str:
        return self.us(value) if value > 10**15 else "ms" if value > 10**12 else value

    def reply(self, value: Any) -> Any:
        if isinstance(value, list):
            if len(value) == 5 and value[0] == 0:  # waiting: the second is what is left of the lease
                return [0, left(value[1]), *(self.reply(part) for part in value[2:])]
            return [self.reply(part) for part in value]
        return self.number(value) if isinstance(value, int) else self.text(value)


def left(ms: int) -> int | str:
    """Return a remaining time, as the recorded one if they are about the same."""
    return f"<={-(-ms // 1000) * 1000} ms" if ms > 0 else ms


def contents(box: Box, wildcards: Wildcards) -> dict[str, Any]:
    """Every key: type, content, and what is left of its expiry."""
    found: dict[str, Any] = {}
    for key in sorted(box.redis.keys()):
        kind = box.redis.type(key).decode()
        entry: dict[str, Any] = {"type": kind, "expires": left(box.redis.pttl(key))}
        if kind == "string":
            entry["value"] = wildcards.text(box.redis.get(key))
        elif kind == "hash":
            fields = box.redis.hgetall(key)
            entry["fields"] = {field.decode(): wildcards.text(fields[field]) for field in sorted(fields)}
        else:
            entry["members"] = [member.decode() for member in box.redis.zrange(key, 0, -1)]
        found[key.decode()] = entry
    return found


def recorded(box: Box, steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The steps, with what came of them."""
    box.clear()
    wildcards = Wildcards()
    found = []
    for step in steps:
        told: dict[str, Any] = {
            name: step[name] for name in ("listen", "hear", "command", "script", "keys", "args") if name in step
        }
        if "listen" in step:
            box.listen(step["listen"])
        elif "hear" in step:
            told["heard"] = [wildcards.text(message) for message in box.heard(step["hear"])]
        elif "command" in step:
            box.redis.execute_command(*step["command"])
        else:
            told["reply"] = wildcards.reply(
                box.run(TODAY.get(step["script"], step["script"]), *step["args"], keys=tuple(step["keys"]))
            )
            told["then"] = contents(box, wildcards)
        found.append(told)
    return found


def agreed(now: Any, then: Any) -> Any:
    """Return the present outcomes, with remaining times as recorded if they are about the same."""
    if isinstance(now, dict) and isinstance(then, dict):
        return {key: agreed(value, then.get(key)) for key, value in now.items()}
    if isinstance(now, list) and isinstance(then, list):
        return [agreed(value, other) for value, other in zip(now, then, strict=False)] + now[len(then) :]
    if isinstance(now, str) and isinstance(then, str) and now.startswith("<=") and then.startswith("<="):
        less, most = (int(text.removeprefix("<=").removesuffix(" ms")) for text in (now, then))
        return then if most / 2 < less <= most else now
    return now


def test_the_trace_of_format_1_is_what_happens(box: Box) -> None:
    trace = json.loads(FILE.read_text())
    assert trace["format"] == 1
    for now, then in zip(recorded(box, trace["steps"]), trace["steps"], strict=True):
        assert agreed(now, then) == then
    box.clear()


def test_the_trace_goes_through_everything() -> None:
    steps = json.loads(FILE.read_text())["steps"]
    assert [{k: v for k, v in step.items() if k not in {"reply", "then", "heard"}} for step in steps] == program()
    assert {step["script"] for step in steps if "script" in step} == {"acquire", "release", "renew", "refresh", "guard"}
    answers = {json.dumps(step["reply"])[:4] for step in steps if "reply" in step}
    assert {"[1, ", "[0, ", "[-1]", "[-3,", "1", "0", "-1"} <= answers


def main() -> None:
    with private() as server, Box(server) as box:
        steps = ",\n".join(json.dumps(step) for step in recorded(box, program()))
        sys.stdout.write(f'{{"format": 1, "steps": [\n{steps}\n]}}\n')


if __name__ == "__main__":
    main()
