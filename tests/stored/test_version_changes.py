"""Deployments back and forth while a cluster works: versions finish each other's work, whatever phase it is in.

Rows are stored again as the recorded version would, which knows none of the younger fields, and in turn as a later one
would, which has a schema and fields that are unknown here. A simulated cluster of twenty nodes does everything at once
meanwhile: it launches, is interrupted, disrupts what is empty, and drains.
"""

import itertools
from collections.abc import Callable

import pytest

from spotwright.adapters.aws.dynamodb.items import decode_timer_row, encode_row
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash
from spotwright.simulation.world import World
from tests.stored import clusters
from tests.stored.outcome import count, find_unfinished, run_to_end
from tests.stored.versions import make_earlier, make_later

# Every row ends sooner, but for nominations.
WORK_SECONDS = 240
# Every phase in which a row waits.
WAITING = {
    ("launch", "planned"), ("launch", "claimed"), ("launch", "launched"),
    ("command", "proposed"), ("command", "planned"), ("command", "waiting"),
    ("notice", "new"), ("notice", "replacing"),
    ("nomination", "promised"), ("nomination", "nominated"),
}  # fmt: skip
# Ten at first, eight for the pods that come, and one for each that is interrupted or deleted.
MOST_STARTED = 10 + 8 + 3 + 2
BATCH = builders.pod("batch", cpu_millicores=1800)


def work(world: World) -> None:
    """Pods come, others end, instances are taken back, a user deletes nodes: some twenty NodeClaims change."""
    world.deploy(clusters.POD, 14)
    world.deploy(BATCH, 0)
    spot = [instance.id for instance in world.ec2.live_instances()]
    for id in spot[:3]:
        world.interrupt_spot(id)
    for claim in [claim for claim in world.claims() if claim.provider_id.rpartition("/")[2] in spot[-2:]]:
        world.cluster.delete("nodeclaims", claim.metadata)


def start() -> World:
    """Ten nodes with a pod each: six of `inflate`, four of `batch`."""
    world = clusters.start(builders.small_catalog())
    world.deploy(clusters.POD, 6)
    world.deploy(BATCH, 4)
    assert world.run(180, until=lambda: len(world.running_pods()) == 10)
    world.run(40)
    return world


class Deployments:
    """Now and then the function at work dies right after a change, and functions of another version go on.

    ``seen``: kinds and phases of rows that another version found.
    """

    def __init__(self, world: World, is_time: "Callable[[Deployments], bool]") -> None:
        self.world, self._is_time = world, is_time
        self._versions = itertools.cycle((make_earlier, make_later))
        self.changes = 0
        self.seen: set[tuple[str, str]] = set()

    def run(self, seconds: int) -> None:
        self._arm()
        for _ in range(seconds):
            try:
                self.world.settle()
            except Crash:
                self._deploy()
            self.world.pass_second()
        self.world.effects.interject(1, lambda: None)

    def phases(self) -> set[tuple[str, str]]:
        return {(key.partition("#")[0], row.phase) for key, row in self.world.state.rows.items()}

    def _arm(self) -> None:
        self.world.effects.interject(1, self._after_change)

    def _after_change(self) -> None:
        self.changes += 1
        self._arm()
        if self._is_time(self):
            raise Crash("a version is deployed")

    def _deploy(self) -> None:
        self.seen |= self.phases()
        stored_again, rows = next(self._versions), self.world.state.rows
        for key, row in rows.items():
            rows[key] = decode_timer_row(stored_again(encode_row(row, builders.CLUSTER)))


def finish(is_time: Callable[[Deployments], bool], *, pods_differ: bool = False) -> Deployments:
    """Every pod runs, nothing is left over, and nothing was bought twice. ``pods_differ``: nodes are held for pods."""
    deployments = Deployments(start(), is_time)
    world = deployments.world
    if pods_differ:
        world.state.pods_alike = lambda: False  # type: ignore[method-assign]
    work(world)
    deployments.run(WORK_SECONDS)
    world.deploy(clusters.POD, 8)
    deployments.run(WORK_SECONDS)
    run_to_end(world)
    ends = count(world)
    assert (ends["pods"], ends["live"]) == (8, 8)
    assert ends["started"] <= MOST_STARTED
    assert find_unfinished(world) == []
    assert world.failures == []
    return deployments


def test_what_is_in_whatever_phase_is_finished_by_another_version() -> None:
    """A version is deployed as soon as a row is in a phase in which none was when the last one was."""
    deployments = finish(lambda deployments: bool(deployments.phases() - deployments.seen), pods_differ=True)
    assert deployments.seen >= WAITING


@pytest.mark.parametrize("changes", [7, 20, 61])
def test_versions_finish_each_others_work(changes: int) -> None:
    finish(lambda deployments: deployments.changes % changes == 0)
