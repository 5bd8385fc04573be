"""Describe the machine and the versions in use, because every figure of a benchmark depends on them."""

from __future__ import annotations

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from holdfast_lab.bench.bare import Bare
from holdfast_lab.bench.plan import PREFIX


def facts(server: Bare) -> dict[str, Any]:
    info = server.info("server")
    name = "Valkey" if "valkey_version" in info else "Redis"
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "server": f"{name} {info.get('valkey_version', info['redis_version'])}",
        "transport": "unix socket" if server.sock.family.name == "AF_UNIX" else "TCP",
        "packages": {
            name: found for name in ("holdfast", "hiredis", "redis", "python-redis-lock") if (found := _version(name))
        },
        "load": round(os.getloadavg()[0], 2),
    }


def text(found: dict[str, Any]) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in found["packages"].items())
    return (
        f"{found['cpu']}, {found['cores']} cores, {found['system']}\n"
        f"{found['server']} on {found['transport']}, {found['python']}, {packages}\n"
        f"load before the start: {found['load']} (a load of more than a few tenths distorts the figures)"
    )


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def resident() -> int:
    """Return the resident memory of this process in bytes; on a system without /proc, its maximum so far."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:  # without /proc: the peak memory
        import resource

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def tidy(server: Bare) -> None:
    """Delete the keys that the measurements have left on the server."""
    cursor = b"0"
    while True:
        cursor, keys = server("SCAN", cursor, "MATCH", f"*{PREFIX}*", "COUNT", 1000)
        if keys:
            server("UNLINK", *keys)
        if cursor == b"0":
            return
