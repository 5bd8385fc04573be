"""The doctor checks whether a server is fit for locks, and tells the remedy for each problem.

`examine` queries the server and judges the replies. ``holdfast doctor`` prints the findings. The doctor writes only to keys of
its own on the server, and removes them afterwards. If a hosted server forbids a command such as CONFIG, the finding is a note,
not a problem.

targets   the servers to check, and names of locks that can be tried there
probe     the commands sent to a server, and the trial of a lock (`facts` has the replies)
rules     derive the findings from the facts, without any request
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from holdfast._api import options
from holdfast._core.quorum.votes import list_digest
from holdfast._durations import Seconds
from holdfast._net.clients import AsyncClient, Servers, SyncClient
from holdfast._net.endpoint import Endpoint
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import is_async, listed, resolve
from holdfast.doctor.facts import LEVELS, Facts, Finding, Level, LockPlans
from holdfast.doctor.probe import collect_facts
from holdfast.doctor.rules import compare, diagnose
from holdfast.doctor.targets import places, whole
from holdfast.errors import ConfigError

__all__ = ["Finding", "Report", "examine"]


@dataclass(frozen=True)
class Report:
    """The findings of `examine`.

    ``servers``: the findings about each server, by the server's address. ``together``: the findings from a comparison of the
    servers. ``facts``: the facts from which the findings were derived, by the server's address.
    """

    servers: dict[str, list[Finding]]
    together: list[Finding]
    facts: dict[str, Facts]

    @property
    def findings(self) -> list[Finding]:
        """Return all findings."""
        return [finding for findings in self.servers.values() for finding in findings] + self.together

    @property
    def level(self) -> Level:
        """Return the worst level of all findings: ``ok``, ``note``, ``warning`` or ``problem``."""
        return max((finding.level for finding in self.findings), key=LEVELS.index, default="ok")


@hides_client()
def examine(
    client: SyncClient | AsyncClient | Servers[SyncClient | AsyncClient],
    *,
    ttl: Seconds = 30.0,
    replicas: int = 0,
    prefix: str = "hf:",
) -> Report:
    """Check whether a server is fit for locks, or whether several servers are fit for locks that a majority of them grants.

    ``client``: a client, a URL, or a list or mapping of these, one for each server. For a Cluster, all primaries are checked.
    ``ttl``: the shortest lease in use, in seconds. ``replicas``, ``prefix``: the values that the locks will have for these
    options. Usually blocks for some tenths of a second. Raises ConfigError if an argument is invalid.
    """
    clients = listed(client)
    replicas = options.whole_number(replicas, "replicas")
    seconds = options.seconds(ttl, "ttl", options.MIN_TTL)
    endpoints = [_endpoint(one) for one in clients]
    if any(endpoint.cluster is not None for endpoint in endpoints) and (replicas or len(clients) > 1):
        raise ConfigError("client: a Cluster must be checked alone, not in a list, and with replicas=0", parameter="client")
    several = len(clients) > 1
    names = client if isinstance(client, Mapping) else [endpoint.address for endpoint in endpoints]
    return _examine(endpoints, LockPlans(seconds, replicas, several, prefix, list_digest(map(str, names)) if several else ""))


def _endpoint(client: object) -> Endpoint:
    endpoint = resolve(client, None)
    if endpoint.client is not None and is_async(endpoint.client):
        raise ConfigError("client: an asyncio client works only in its event loop; pass a URL", parameter="client")
    return endpoint


def _examine(endpoints: Sequence[Endpoint], terms: LockPlans) -> Report:
    there = [place for endpoint in endpoints for place in places(endpoint)]
    with ThreadPoolExecutor(max(1, min(32, len(there))), "holdfast-doctor") as threads:
        found = list(threads.map(lambda place: collect_facts(place, terms), there))
    servers: dict[str, Any] = {}
    facts: dict[str, Facts] = {}
    for number, one in enumerate(found):
        address = one.address if one.address not in facts else f"{one.address} (number {number + 1})"
        servers[address], facts[address] = diagnose(one, terms), one
    return Report(servers, compare(found, terms) + whole(there), facts)
