"""Whether a response of CreateFleet says something that the request did not know."""

from spotwright.model.ec2.fleet import FleetError
from spotwright.simulation.clock import Clock
from spotwright.simulation.effects import Effects
from spotwright.simulation.state import FakeState
from spotwright.workflows.account.offering_health_store import record_fleet_response

REFUSED = FleetError("InsufficientInstanceCapacity", "", "t3.large", "z1", "spot")


def test_what_the_request_asked_for_is_news() -> None:
    """Nobody asks for what is known to be unavailable. Of anything else the next plan would be the same."""
    state = FakeState("c", Effects(Clock()))

    def record(*errors: FleetError) -> bool:
        return record_fleet_response(
            state, (), errors, now_ms=1000, cpu_millicores={}, was_asked_for=lambda error: error.zone in ("z1", "z3")
        )

    elsewhere = FleetError("InsufficientInstanceCapacity", "", "t3.large", "z2", "spot")
    assert not record()
    assert not record(elsewhere)
    assert record(elsewhere, REFUSED)
    assert record(REFUSED), "another launch was refused it meanwhile"
    assert not record(FleetError("NeverHeardOf", "", "t3.large", "z3", "spot"))
    assert {health.zone for health in state.health.values()} == {"z1", "z2"}
