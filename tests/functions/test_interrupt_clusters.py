"""Messages are for the cluster that their instance is tagged for; for every one where EC2 does not say."""

from collections.abc import Collection

import msgspec
import pytest

from spotwright.composition import interrupt_clients
from spotwright.errors import ApiError, Denied, Throttled, Unavailable
from spotwright.model.ec2.fleet import Instance
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.ports.rows import EXPECTED, NoticeRow
from tests.functions.handlers import Context, failed_messages, load_handler, sqs_event
from tests.functions.interrupt_messages import SPOT, STATE, envelope, notices


def test_a_ring_that_fails_brings_back_the_messages_of_its_cluster(cell: dict[str, World], world: World) -> None:
    tagged(world, "i-00", **{"eks:eks-cluster-name": "blue"})
    tagged(world, "i-01", **{"eks:eks-cluster-name": "green"})
    cell["blue"].effects.inject(Fault("doorbells", "ring", Unavailable("no queue"), times=1))
    handler = load_handler("interrupt", world).handler
    assert failed_messages(handler(sqs_event(notices(2)), Context())) == ["m0"]
    assert [bell.key for bell in cell["green"].doorbells.receive("notices")] == ["i-01"]
    assert failed_messages(handler(sqs_event(notices(1)), Context())) == []
    assert [bell.key for bell in cell["blue"].doorbells.receive("notices")] == ["i-00"]


def tagged(world: World, instance_id: str, **tags: str) -> None:
    instance = Instance(
        id=instance_id, instance_type="m5.large", zone="z", capacity_type="spot", state="running", image_id="ami-1",
        subnet_id="subnet-1", tags=tags,
    )  # fmt: skip
    world.ec2.instances[instance_id] = instance


@pytest.fixture
def cell(world: World, monkeypatch: pytest.MonkeyPatch) -> dict[str, World]:
    """Three clusters of a cell; EC2 is asked in the first one's."""
    worlds = {world.cluster.name: world, "blue": World(cluster="blue"), "green": World(cluster="green")}
    monkeypatch.setattr(interrupt_clients, "ports", lambda environment: worlds)
    return worlds


def told(cell: dict[str, World]) -> set[str]:
    """The clusters that have rows and doorbells."""
    rows = {name for name, world in cell.items() if world.state.rows}
    assert rows == {name for name, world in cell.items() if world.doorbells.messages_of("notices", "notice")}
    return rows


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ({"eks:eks-cluster-name": "blue"}, {"blue"}),
        ({"kubernetes.io/cluster/green": "owned"}, {"green"}),
        ({"eks:eks-cluster-name": "blue", "kubernetes.io/cluster/green": "shared"}, {"blue", "green"}),
        ({"eks:eks-cluster-name": "of another cell"}, set()),
        ({"Name": "a database"}, set()),
    ],
)
def test_only_the_cluster_of_the_instance_is_told(
    cell: dict[str, World], world: World, tags: dict[str, str], expected: set[str]
) -> None:
    tagged(world, "i-1", **tags)
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event([envelope(SPOT)]), Context())) == []
    assert told(cell) == expected


@pytest.mark.parametrize(("state", "everybody"), [("terminated", True), ("shutting-down", True), ("running", False)])
def test_of_a_terminated_instance_that_lost_its_tags_every_cluster_is_told(
    cell: dict[str, World], world: World, state: str, everybody: bool
) -> None:
    tagged(world, "i-1")
    world.ec2.instances["i-1"] = msgspec.structs.replace(world.ec2.instances["i-1"], state=state)
    bodies = [envelope(STATE, state="terminated")]
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context())) == []
    assert told(cell) == (cell.keys() if everybody else set())


def test_of_an_instance_that_ec2_does_not_list_every_cluster_is_told(cell: dict[str, World], world: World) -> None:
    tagged(world, "i-2", **{"eks:eks-cluster-name": "blue"})
    bodies = [envelope(SPOT), envelope(SPOT, **{"instance-id": "i-2"})]
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context())) == []
    assert told(cell) == cell.keys()
    assert {name for name, one in cell.items() if one.state.notice("i-2")} == {"blue"}


@pytest.mark.parametrize("error", [Unavailable("read timeout"), Throttled("slow down"), Denied("no")])
def test_while_ec2_does_not_say_every_cluster_is_told(
    cell: dict[str, World], world: World, error: ApiError, capsys: pytest.CaptureFixture[str]
) -> None:
    tagged(world, "i-1", **{"eks:eks-cluster-name": "blue"})
    world.effects.inject(Fault("ec2", "instances_by_id", error))
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event([envelope(SPOT)]), Context())) == []
    assert told(cell) == cell.keys()
    assert "every cluster of the cell is told" in capsys.readouterr().out


def test_a_batch_asks_ec2_once(cell: dict[str, World], world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Collection[str]] = []

    def instances_by_id(ids: Collection[str]) -> tuple[Instance, ...]:
        asked.append(ids)
        return ()

    monkeypatch.setattr(world.ec2, "instances_by_id", instances_by_id)
    bodies = [envelope(SPOT, **{"instance-id": f"i-{number}"}) for number in range(10)]
    load_handler("interrupt", world).handler(sqs_event(bodies), Context())
    assert asked == [{f"i-{number}" for number in range(10)}]


def test_in_a_cell_of_several_clusters_ec2_says_whose_end_it_is(cell: dict[str, World], world: World) -> None:
    """Rows of each of them would have to be read first."""
    tagged(world, "i-1", **{"eks:eks-cluster-name": "blue"})
    for one in cell.values():
        one.state.create(NoticeRow("i-1", one.cluster.name, "instance_terminated", phase=EXPECTED))
    bodies = [envelope(STATE, state="terminated")]
    assert failed_messages(load_handler("interrupt", world).handler(sqs_event(bodies), Context())) == []
    assert {name for name, one in cell.items() if one.doorbells.messages_of("notices", "notice")} == {"blue"}
