"""Moments at which a function dies with its work half done, each reached in a simulated cluster.

Between them every kind of row is met in every phase in which it waits.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from spotwright.decisions.decision import decode_decision
from spotwright.errors import InvalidRequest, Throttled, Unavailable
from spotwright.settings import decision_settings
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash, Fault
from spotwright.simulation.world import World
from spotwright.workflows.ports.rows import CommandRow, LaunchRow, NominationRow, NoticeRow
from tests.stored import clusters

type Reached = Callable[[World], bool]

STATIC: Final = decision_settings({"FEATURE_GATES": "StaticCapacity=true"})
# Every moment comes sooner.
PATIENCE_SECONDS: Final = 600


@dataclass(frozen=True)
class Moment:
    """``start``: makes the cluster; ``happens``: what users or EC2 do then.

    A function dies right after the change with which ``reached`` becomes true.
    """

    name: str
    start: Callable[[], World]
    reached: Reached
    happens: Callable[[World], None] = lambda world: None


def reach(moment: Moment) -> World:
    """The cluster at this moment."""
    world = moment.start()
    _die_when(world, moment.reached)
    try:
        moment.happens(world)
        world.run(PATIENCE_SECONDS)
    except Crash:
        return world
    raise AssertionError(f"{moment.name} never came")


def _die_when(world: World, reached: Reached) -> None:
    """Let whichever function makes the change after which ``reached`` holds die there."""

    def look() -> None:
        if reached(world):
            raise Crash("the moment to record")
        world.effects.interject(1, look)

    world.effects.interject(1, look)


# How clusters start


def start_unanswered() -> World:
    """EC2 launches the instances, and its answer is lost."""
    return _start_failing(Unavailable("timed out", code="RequestTimeout"), acted=True)


def start_throttled() -> World:
    return _start_failing(Throttled("too many requests", code="RequestLimitExceeded"))


def start_without_templates() -> World:
    return _start_failing(InvalidRequest("there is no such template", code="InvalidLaunchTemplateId.NotFound"))


def _start_failing(error: Unavailable | Throttled | InvalidRequest, *, acted: bool = False) -> World:
    """The first CreateFleet fails."""
    world = clusters.start_pending()
    world.effects.inject(Fault("ec2", "create_fleet", error, after_change=acted))
    return world


def start_sold_out() -> World:
    """EC2 has no spot capacity."""
    world = clusters.start_pending()
    world.ec2.capacity[("spot", "*", "*")] = 0
    return world


def start_proposed() -> World:
    """Both nodes are empty, and it was proposed that they go."""
    return reach(Moment("proposed", clusters.start_running, _has_command("proposed"), remove_pods))


def start_disruption_committed() -> World:
    """Static capacity is on, both nodes are empty, and it was decided that they go."""

    def remove_pods_under_gate(world: World) -> None:
        world.settings = STATIC
        remove_pods(world)

    return reach(Moment("committed", clusters.start_running, _has_decision("disrupt"), remove_pods_under_gate))


def start_replacement_deleted() -> World:
    """EC2 takes an instance back, and a user deletes the NodeClaim that was to replace it."""
    world = reach(Moment("waiting", clusters.start_running, _has_command("waiting"), interrupt_instance))
    (command,) = world.state.commands()
    (replacement,) = (claim for claim in world.claims() if claim.name in command.replacements)
    world.cluster.delete("nodeclaims", replacement.metadata)
    return world


# What happens then


def interrupt_instance(world: World) -> None:
    """EC2 takes an instance back in two minutes."""
    world.interrupt_spot(world.ec2.live_instances()[0].id)


def remove_pods(world: World) -> None:
    world.deploy(clusters.POD, 0)


def deploy_three_pods(world: World) -> None:
    world.deploy(clusters.POD, 3)


def delete_nodeclaim(world: World) -> None:
    world.cluster.delete("nodeclaims", world.claims()[0].metadata)


def scale_down(world: World) -> None:
    world.cluster.update("nodepools", "fixed", replicas=1)


def scale_down_and_deploy(world: World) -> None:
    """The pod is too large for the nodes of the static pool."""
    scale_down(world)
    world.deploy(builders.pod("large", cpu_millicores=3000), 1)


# What is reached


def _has[R: (LaunchRow, CommandRow, NoticeRow, NominationRow)](kind: type[R], is_it: Callable[[R], bool]) -> Reached:
    return lambda world: any(isinstance(row, kind) and is_it(row) for row in world.state.rows.values())


def _has_launch(is_it: Callable[[LaunchRow], bool]) -> Reached:
    return _has(LaunchRow, is_it)


def _has_command(phase: str) -> Reached:
    return _has(CommandRow, lambda row: row.phase == phase)


def _has_notice(is_it: Callable[[NoticeRow], bool]) -> Reached:
    return _has(NoticeRow, is_it)


def _has_nomination(phase: str) -> Reached:
    return _has(NominationRow, lambda row: row.phase == phase)


def _has_decision(kind: str) -> Reached:
    """A decision of this kind is committed, and nobody has acted on it."""
    return lambda world: any(
        decode_decision(world.blobs.bodies[key]).kind == kind for key in world.state.cluster_row.pending_decisions
    )


def _has_two_decisions(world: World) -> bool:
    return len(world.state.cluster_row.pending_decisions) == 2


def _has_rows_and_decision(world: World) -> bool:
    return bool(world.state.rows) and bool(world.state.cluster_row.pending_decisions)


def _has_made(port: str, action: str) -> Reached:
    return lambda world: bool(world.effects.select(port, action))


PENDING, RUNNING, FIXED = clusters.start_pending, clusters.start_running, clusters.start_static
MOMENTS: Final = (
    Moment("decision-committed", PENDING, _has_decision("provision")),
    Moment("decision-half-acted-on", PENDING, _has_rows_and_decision),
    Moment("launch-planned", PENDING, _has_made("cluster", "create_nodeclaim")),
    Moment("launch-claimed", PENDING, _has_launch(lambda row: row.phase == "claimed")),
    Moment("launch-requested", PENDING, _has_launch(lambda row: bool(row.request))),
    Moment("launch-bought", PENDING, _has_made("ec2", "create_fleet")),
    Moment("launch-unanswered", start_unanswered, _has_launch(lambda row: row.not_before > 0)),
    Moment("launch-throttled", start_throttled, _has_launch(lambda row: row.not_before > 0)),
    Moment("launch-without-templates", start_without_templates, _has_launch(lambda row: row.templates_recreated)),
    Moment("launch-without-capacity", start_sold_out, _has_launch(lambda row: row.insufficient_capacity)),
    Moment("launch-in-reservation", clusters.start_reserved, _has_launch(lambda row: bool(row.reservations))),
    Moment("launch-launched", PENDING, _has_launch(lambda row: row.phase == "launched")),
    Moment("launch-half-handed-over", PENDING, _has_made("cluster", "patch_status")),
    Moment("launch-done", PENDING, _has_launch(lambda row: row.phase == "done")),
    Moment("nomination-nominated", PENDING, _has_nomination("nominated")),
    Moment("notice-new", RUNNING, _has_notice(lambda row: row.phase == "new"), interrupt_instance),
    Moment("notice-replacing", RUNNING, _has_notice(lambda row: row.phase == "replacing"), interrupt_instance),
    Moment("notice-after-failed-replacement", start_replacement_deleted, _has_notice(lambda row: row.attempt > 0)),
    Moment("command-waiting-for-replacement", RUNNING, _has_command("waiting"), interrupt_instance),
    Moment("drain-begun", RUNNING, _has_made("cluster", "evict"), interrupt_instance),
    Moment("command-proposed", RUNNING, _has_command("proposed"), remove_pods),
    Moment("disruption-committed", RUNNING, _has_decision("disrupt"), remove_pods),
    Moment("disruption-beside-interruption", start_proposed, _has_decision("disrupt"), interrupt_instance),
    Moment("command-planned", RUNNING, _has_command("planned"), remove_pods),
    Moment("command-waiting", RUNNING, _has_command("waiting"), remove_pods),
    Moment("claim-terminating", RUNNING, _has_made("ec2", "terminate"), delete_nodeclaim),
    Moment("scale-down-committed", FIXED, _has_decision("scale-down"), scale_down),
    Moment("scale-down-planned", FIXED, _has_command("planned"), scale_down),
    Moment("pods-decided-while-scaling-down", FIXED, _has_two_decisions, scale_down_and_deploy),
    Moment("pods-decided-while-disrupting", start_disruption_committed, _has_two_decisions, deploy_three_pods),
)
