"""Whether a response of CreateFleet says something that the request did not know."""

from spotwright.model.ec2.fleet import FleetError
from spotwright.simulation.clock import Clock
from spotwright.simulation.effects import Effects
from spotwright.simulation.state import FakeState
from spotwright.workflows.account.offering_health_store import record_fleet_response

REFUSED = FleetError("InsufficientInstanceCapacity", "", "t3.large", "z1", "spot")


def test_an_offering_that_was_known_to_be_unavailable_is_no_news() -> None:
    """The request was made all the same, so that the next plan would ask for the same again."""
    state = FakeState("c", Effects(Clock()))
    refused = [REFUSED]

    def record(at: int, requested: int, errors: list[FleetError] = refused) -> bool:
        return record_fleet_response(state, (), errors, now_ms=at, cpu_millicores={}, requested_ms=requested)

    assert record(1000, 900)
    assert not record(5000, 4900)
    assert record(6000, 500), "asked for before it was closed: the next plan knows more"
    assert record(7000, 6900, [*refused, FleetError("InsufficientInstanceCapacity", "", "t3.large", "z2", "spot")])
    assert record(10_000_000, 9_999_900), "it has been available again meanwhile"
    assert not record(10_001_000, 10_000_900, [])
