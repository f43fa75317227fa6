"""Every doorbell of a kind may be lost: the state still shows what is unfinished, and the sweep rings for it.

The table in docs/lost-doorbells.md has a row for each kind, and each row has a test here.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import DOORBELL_KINDS
from spotwright.workflows.ports.doorbells import Doorbell

MINUTES = 60
ONE_EACH = builders.pod("inflate", cpu_millicores=1800)
ROWS = re.compile(r"^\| `(?P<queue>[a-z]+)`: `(?P<kind>[a-z-]+)` \|", re.M)


class Losses:
    """From now on no message of these kinds arrives but those of schedules and of the sweep.

    ``times``: so many are lost, None = all.
    """

    def __init__(self, world: World, *kinds: str, times: int | None = None) -> None:
        self.lost = 0
        self._kinds, self._times, self._arrives = kinds, times, False
        self._ring, self._sweep, self._schedules = world.doorbells.ring, world._sweep, world._schedules
        world.doorbells.ring = self.ring  # type: ignore[method-assign]
        world._sweep = self.sweep  # type: ignore[method-assign]
        world._schedules = self.schedules  # type: ignore[method-assign]

    def ring(self, queue: str, bells: Sequence[Doorbell], *, delay_seconds: int = 0) -> None:
        arriving = [bell for bell in bells if not self._is_lost(bell)]
        self.lost += len(bells) - len(arriving)
        self._ring(queue, arriving, delay_seconds=delay_seconds)

    def sweep(self, bells: tuple[Doorbell, ...]) -> None:
        self._arrives = True
        self._sweep(bells)
        self._arrives = False

    def schedules(self) -> None:
        self._arrives = True
        self._schedules()
        self._arrives = False

    def _is_lost(self, bell: Doorbell) -> bool:
        return bell.kind in self._kinds and not self._arrives and (self._times is None or self.lost < self._times)


def runs(world: World, pods: int) -> bool:
    return len(world.running_pods()) == pods


def running(world: World, pods: int = 1) -> None:
    world.deploy(ONE_EACH, pods)
    assert world.run(90, until=lambda: runs(world, pods))
    world.run(30)


@pytest.mark.parametrize("kind", ["pods", "decision", "launch", "claim", "node", "nomination"])
def test_pods_get_their_nodes(world: World, kind: str) -> None:
    losses = Losses(world, kind)
    if kind == "launch":
        world.effects.inject(Fault("ec2", "create_fleet", Unavailable("no answer"), times=2))
    world.deploy(ONE_EACH, 3)
    assert world.run(10 * MINUTES, until=lambda: runs(world, 3))
    assert losses.lost or kind == "nomination", "nominations are rung for by the sweep alone"
    assert world.run(
        10 * MINUTES, until=lambda: all(claim.is_condition_true("Initialized") for claim in world.claims())
    )
    assert len(world.ec2.live_instances()) == len(world.claims()) == 3


@pytest.mark.parametrize("kind", ["claim", "node"])
@pytest.mark.parametrize("deleted", ["nodeclaims", "nodes"])
def test_what_is_deleted_ends(world: World, kind: str, deleted: str) -> None:
    running(world)
    world.forget_deployments()
    Losses(world, kind)
    (claim,) = world.claims()
    if deleted == "nodes":
        world.cluster.delete_node(world.cluster.node(claim.node_name))
    else:
        world.cluster.delete("nodeclaims", claim.metadata)
    assert world.run(20 * MINUTES, until=lambda: not world.claims() and not world.cluster.nodes())
    assert not world.ec2.live_instances()


@pytest.mark.parametrize("kind", ["notice", "command", "decision"])
def test_an_interrupted_node_is_replaced(world: World, kind: str) -> None:
    running(world)
    losses = Losses(world, kind)
    (claim,) = world.claims()
    world.interrupt_spot(instance_id(claim.provider_id))
    assert world.run(5 * MINUTES, until=lambda: runs(world, 1) and world.running_pods()[0].node_name != claim.node_name)
    assert world.run(5 * MINUTES, until=lambda: claim.name not in {each.name for each in world.claims()})
    assert losses.lost or kind == "decision"


@pytest.mark.parametrize(
    ("kind", "times"), [("evaluate", None), ("validate", 1), ("decision", None), ("command", None)]
)
def test_an_empty_node_goes(world: World, kind: str, times: int | None) -> None:
    running(world)
    losses = Losses(world, kind, times=times)
    world.deploy(ONE_EACH, 0)
    assert world.run(10 * MINUTES, until=lambda: not world.claims())
    assert losses.lost


def test_the_status_of_pools_is_counted(world: World) -> None:
    losses = Losses(world, "nodepools")
    world.deploy(ONE_EACH, 2)
    assert world.run(3 * MINUTES, until=lambda: [pool.node_count for pool in world.cluster.nodepools()] == [2])
    assert losses.lost


def test_drift_is_found(world: World) -> None:
    world.cluster.update("nodepools", "default", budgets=(Budget("0"),))
    running(world)
    losses = Losses(world, "drift")
    world.cluster.update("nodepools", "default", labels={"team": "b"}, conditions=())
    (pool,) = world.cluster.nodepools()
    world.cluster.put("nodepools", msgspec.structs.replace(pool, labels={"team": "b"}))

    def has_drifted() -> bool:
        (claim,) = world.claims()
        return find_condition(claim.conditions, "Drifted") is not None

    assert world.run(16 * MINUTES, until=has_drifted)
    assert losses.lost


def test_orphans_and_claims_without_an_instance_are_found_by_the_sweep_alone(world: World) -> None:
    running(world, 2)
    Losses(world, "instance", "claim-instance")
    world.forget_deployments()
    first, second = world.claims()
    world.run(90)
    world.cluster.remove("nodeclaims", first.name)
    world.ec2.stop(instance_id(second.provider_id), after_seconds=0)
    assert world.run(15 * MINUTES, until=lambda: not world.claims() and not world.ec2.live_instances())


def test_a_class_that_is_not_ready_is_rung_for(world: World) -> None:
    world.cluster.update("ec2nodeclasses", "default", conditions=())
    Losses(world, "nodeclasses")
    world.run(2)
    assert world.doorbells.messages_of("catalog", "nodeclasses")


def test_a_region_that_was_never_read_is_rung_for(world: World) -> None:
    world.state.current_catalog_key = ""
    Losses(world, "region")
    world.run(2)
    assert world.doorbells.messages_of("catalog", "region")


def test_every_kind_has_a_row_in_the_table() -> None:
    page = Path(__file__).parents[4] / "docs" / "lost-doorbells.md"
    rows = [(row["queue"], row["kind"]) for row in ROWS.finditer(page.read_text())]
    assert len(rows) == len(set(rows))
    of_lifecycle = {kind for queue, kind in rows if queue in ("lifecycle", "notices")}
    assert of_lifecycle == set(DOORBELL_KINDS)
    assert {row for row in rows if row[0] not in ("lifecycle", "notices")} == {
        ("provision", "pods"), ("disrupt", "evaluate"), ("disrupt", "validate"), ("sweep", "poll"), ("sweep", "full"),
        ("catalog", "region"), ("catalog", "nodeclasses"), ("catalog", "shifts"),
    }  # fmt: skip
