"""The table of all small scenarios."""

from __future__ import annotations

from holdfast_lab.scenarios.election import ELECTION_SCENARIOS
from holdfast_lab.scenarios.lock import SCENARIOS
from holdfast_lab.scenarios.multilock import MULTILOCK_SCENARIOS
from holdfast_lab.scenarios.quorum import QUORUM_SCENARIOS, WITHOUT_QUARANTINE
from holdfast_lab.scenarios.rendezvous import RENDEZVOUS_SCENARIOS
from holdfast_lab.scenarios.scenario import Scenario
from holdfast_lab.scenarios.single_flight import FLIGHT_SCENARIOS
from holdfast_lab.scenarios.ticket import TICKET_SCENARIOS

ALL: dict[str, Scenario] = {
    **SCENARIOS,
    **MULTILOCK_SCENARIOS,
    **QUORUM_SCENARIOS,
    WITHOUT_QUARANTINE.name: WITHOUT_QUARANTINE,
    **FLIGHT_SCENARIOS,
    **RENDEZVOUS_SCENARIOS,
    **ELECTION_SCENARIOS,
    **TICKET_SCENARIOS,
}
