"""Whether a server is fit for locks: what it is, what it allows, what it forgets, and what to do about it.

`examine` asks and judges; ``holdfast doctor`` prints what it finds. It changes nothing on the server but under a name of its
own, of which nothing is left. A fact that a managed server refuses to tell is a note, not a failure.

    places    which servers, and what names can be tried there
    asking    what is asked, and really tried (`facts` is what comes of it)
    judging   from facts to findings, without asking anybody
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from holdfast._api import options
from holdfast._net.endpoint import Endpoint
from holdfast._net.redaction import hides_client
from holdfast._net.resolve import from_client
from holdfast._net.url import from_url
from holdfast.doctor.facts import LEVELS, Facts, Finding, Level, Terms
from holdfast.doctor.probe import collect_facts
from holdfast.doctor.rules import compare, judge
from holdfast.doctor.targets import places, whole
from holdfast.errors import ConfigError

__all__ = ["Finding", "Report", "examine"]


@dataclass(frozen=True)
class Report:
    """The findings. ``servers``: findings by the address of each server; ``together``: those about several, or a Cluster."""

    servers: dict[str, list[Finding]]
    together: list[Finding]
    facts: dict[str, Facts]

    @property
    def findings(self) -> list[Finding]:
        """All of them."""
        return [finding for findings in self.servers.values() for finding in findings] + self.together

    @property
    def level(self) -> Level:
        """The worst of all: ``ok``, ``note``, ``warning`` or ``problem``."""
        return max((finding.level for finding in self.findings), key=LEVELS.index, default="ok")


@hides_client()
def examine(client: object, *, ttl: float = 30.0, replicas: int = 0, prefix: str = "hf:") -> Report:
    """Look whether a server is fit for locks, or several of them for one lock.

    ``client``: a client of either face, a URL, or a list of these. Of a Cluster, all primaries are looked at. ``ttl``: the
    shortest lease in use, in seconds; ``replicas``, ``prefix``: as they are to be given to locks. Blocks for some
    tenths of a second. Raises ConfigError.
    """
    clients = list(client) if isinstance(client, list | tuple) else [client]
    replicas = options.whole_number(replicas, "replicas")
    seconds = options.seconds(ttl, "ttl", options.MIN_TTL)
    endpoints = [_endpoint(one) for one in clients]
    if any(endpoint.cluster is not None for endpoint in endpoints) and (replicas or len(clients) > 1):
        raise ConfigError("client: a Cluster is looked at alone, and without replicas, as locks there are", parameter="client")
    return _examine(endpoints, Terms(seconds, replicas, len(clients) > 1, prefix))


def _endpoint(client: object) -> Endpoint:
    url = getattr(client, "url", client)
    endpoint = from_url(url) if isinstance(url, str) else from_client(client)
    if endpoint.client is not None:
        import inspect

        if inspect.iscoroutinefunction(endpoint.client.execute_command):
            raise ConfigError("client: this one can only be asked in its event loop; give its URL", parameter="client")
    return endpoint


def _examine(endpoints: Sequence[Endpoint], terms: Terms) -> Report:
    there = [place for endpoint in endpoints for place in places(endpoint)]
    with ThreadPoolExecutor(max(1, min(32, len(there))), "holdfast-doctor") as threads:
        found = list(threads.map(lambda place: collect_facts(place, terms), there))
    servers: dict[str, Any] = {}
    facts: dict[str, Facts] = {}
    for number, one in enumerate(found):
        address = one.address if one.address not in facts else f"{one.address} (number {number + 1})"
        servers[address], facts[address] = judge(one, terms), one
    return Report(servers, compare(found, terms) + whole(there), facts)
