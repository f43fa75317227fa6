"""What lines carry besides their own fields, so that all lines of a launch or a decision are found by its id."""

import logging

import pytest

from spotwright.decisions.decision import decode_decision
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.telemetry.tables import log_line_rows

# Rows that are about a NodeClaim or a launch.
ABOUT_LAUNCHES = {
    row.message: row for row in log_line_rows().values() if {"nodeclaim", "nodeclaims", "launch"} & set(row.fields)
}
ABOUT_DISRUPTIONS = {row.message for row in log_line_rows().values() if "command_id" in row.fields}


@pytest.fixture
def written(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, logger="spotwright.lifecycle")
    return caplog


def launches_and_ends(world: World) -> None:
    """Nodes that are launched, interrupted, deleted and emptied."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 3)
    assert world.run(200, until=lambda: len(world.running_pods()) == 3)
    first, *_ = world.claims()
    world.interrupt_spot(first.provider_id.rpartition("/")[2])
    world.run(200)
    second, *_ = world.claims()
    world.cluster.delete("nodeclaims", second.metadata)
    world.run(120)
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 0)
    world.run(400)
    assert not world.claims()


@pytest.mark.usefixtures("pods_differ")
def test_lines_about_launches_and_disruptions_say_which_decision_they_come_from(
    world: World, written: pytest.LogCaptureFixture
) -> None:
    launches_and_ends(world)
    lines = [vars(record) for record in written.records if record.name == "spotwright.lifecycle"]
    seen = {line["message"] for line in lines}
    assert {
        "created nodeclaim", "launched nodeclaim", "registered nodeclaim", "initialized nodeclaim", "nominated pods",
        "nomination ended", "disrupting node(s)", "deleting nodeclaim", "deleted nodeclaim",
        "planned replacement of interrupted node(s)",
    } <= seen  # fmt: skip
    for line in lines:
        if line["message"] in ABOUT_DISRUPTIONS | {"planned replacement of interrupted node(s)"}:
            assert line.get("decision"), line["message"]
        elif line["message"] in ABOUT_LAUNCHES:
            assert line.get("launch"), line["message"]
            assert line.get("decision") or line["message"] == "nomination ended", line["message"]


def test_the_lines_of_a_launch_name_the_decision_that_was_committed(
    world: World, written: pytest.LogCaptureFixture
) -> None:
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(90, until=lambda: bool(world.running_pods()))
    decided = decode_decision(world.blobs.get(world.state.cluster_row.head))
    launched = {
        (line.get("launch"), line.get("decision"))
        for line in map(vars, written.records)
        if line["message"] in ("created nodeclaim", "launched nodeclaim", "initialized nodeclaim")
    }
    assert len(launched) == 1
    ((launch, decision),) = launched
    assert decision == decided.id
    row = world.state.launch(str(launch))
    assert row is not None
    assert row.decision == decision
