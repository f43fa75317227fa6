"""Several workers at once, late ones and noisy ones: redundant, never harmful."""

import pytest

from spotwright.errors import Unavailable
from spotwright.model.ec2.fleet import FleetResult
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.commands import step_commands
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.conftest import fresh_world

POD = builders.pod("inflate", cpu_millicores=1800)


def everything(world: World) -> list[Doorbell]:
    """Every doorbell that anything in the world could ring now."""
    name = world.cluster.name
    bells = [Doorbell(name, "decision"), Doorbell(name, "nodepools")]
    bells += [Doorbell(name, key.partition("#")[0], key.partition("#")[2]) for key in world.state.rows]
    bells += [Doorbell(name, "claim", claim.name) for claim in world.claims()]
    bells += [Doorbell(name, "node", node.name) for node in world.cluster.nodes()]
    return bells


def others_act_after(world: World, changes: int) -> None:
    """In the middle of a worker, after that many changes, another works off every doorbell there is."""
    world.effects.interject(changes, lambda: lifecycle(world, everything(world), now=world.clock.now()))


@pytest.mark.parametrize("changes", range(8, 75))
def test_two_workers_on_one_launch_buy_once(changes: int) -> None:
    world = fresh_world()
    world.deploy(POD, 2)
    others_act_after(world, changes)
    assert world.run(120, until=lambda: len(world.running_pods()) == 2)
    world.run(150)
    assert len(world.ec2.all_instances()) == 2
    assert {instance_id(claim.provider_id) for claim in world.claims()} == {
        instance.id for instance in world.ec2.live_instances()
    }
    assert all(claim.is_condition_true("Ready") for claim in world.claims())


@pytest.mark.parametrize("changes", range(1, 50, 2))
def test_two_workers_on_one_termination_let_everything_go_once(changes: int) -> None:
    world = fresh_world()
    world.deploy(POD, 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)
    world.forget_deployments()
    (claim,) = world.claims()
    others_act_after(world, changes)
    world.cluster.delete("nodeclaims", claim.metadata)
    assert world.run(120, until=lambda: not world.claims())
    assert not world.ec2.live_instances()
    assert not world.cluster.nodes()


@pytest.mark.parametrize("changes", range(1, 70, 2))
def test_two_workers_on_one_interruption_buy_one_replacement(changes: int) -> None:
    world = fresh_world()
    world.deploy(POD, 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)
    world.run(20)
    (claim,) = world.claims()
    others_act_after(world, changes)
    world.interrupt_spot(instance_id(claim.provider_id))
    assert world.run(300, until=lambda: len(world.claims()) == 1 and world.claims()[0].name != claim.name)
    world.run(120)
    assert len(world.ec2.all_instances()) == 2
    assert len(world.running_pods()) == 1


@pytest.mark.parametrize("changes", range(1, 30))
def test_of_two_workers_on_one_command_one_says_that_it_succeeded(
    changes: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "spotwright")
    world = fresh_world()
    world.deploy(POD, 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)
    world.interrupt_spot(instance_id(world.claims()[0].provider_id))
    assert world.run(90, until=lambda: len(world.cluster.nodes()) == 2)
    (command,) = world.state.commands()
    ids = [command.id]

    def another_look() -> None:
        assert not step_commands(world, ids, now=world.clock.now(), early=ids)

    world.effects.interject(changes, another_look)
    assert world.run(90, until=lambda: not world.state.commands())
    assert [record.getMessage() for record in caplog.records].count("command succeeded") == 1


@pytest.mark.parametrize("changes", range(1, 20))
def test_of_two_workers_on_one_command_one_says_that_it_began(changes: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "spotwright")
    world = fresh_world()
    world.deploy(POD, 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)

    def step_all() -> None:
        step_commands(world, [command.id for command in world.state.commands()], now=world.clock.now())

    world.interrupt_spot(instance_id(world.claims()[0].provider_id))
    world.run(1)
    world.effects.interject(changes, step_all)
    assert world.run(90, until=lambda: bool(world.state.commands()))
    assert world.run(90, until=lambda: not world.state.commands())
    assert [record.getMessage() for record in caplog.records].count("disrupting node(s)") == 1


def rung_per_minute(world: World, minutes: int) -> list[int]:
    counts = []
    for _ in range(minutes):
        before = len(world.effects.select("doorbells", "ring"))
        world.run(60)
        counts.append(len(world.effects.select("doorbells", "ring")) - before)
    return counts


def test_messages_do_not_multiply_while_ec2_does_not_answer() -> None:
    world = fresh_world()
    world.effects.inject(Fault("ec2", "create_fleet", Unavailable("no answer"), times=10_000))
    world.deploy(POD, 1)
    counts = rung_per_minute(world, 4)
    assert max(counts) <= 120
    assert counts[-1] <= counts[0] + 20


def test_a_launch_that_comes_to_nothing_is_not_planned_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """EC2 answers with neither instances nor errors: nothing tells the next plan from this one."""
    world = fresh_world()
    monkeypatch.setattr(world.ec2, "create_fleet", lambda request: FleetResult())
    world.deploy(POD, 1)
    world.run(60)
    assert len(world.effects.select("state", "commit")) <= 12


def test_messages_do_not_multiply_while_a_budget_blocks_a_drain() -> None:
    world = fresh_world()
    world.deploy(POD, 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("keep", "inflate", max_unavailable=0))
    world.cluster.delete("nodeclaims", world.claims()[0].metadata)
    counts = rung_per_minute(world, 12)
    assert max(counts) <= 120
    assert counts[-1] < counts[0], "the ticks grow longer"


def test_a_decision_that_nobody_acted_on_in_time_is_planned_again() -> None:
    world = fresh_world()
    world.deploy(POD, 1)
    world.kubelets.reconcile()
    from spotwright.workflows.provision.workflow import provision

    (decision,) = provision(world, clock=world.clock.now).decisions
    world.doorbells.messages.clear()
    world.clock.advance(3600)
    assert world.run(120, until=lambda: len(world.running_pods()) == 1)
    names = {name for launch in decision.launches for name in launch.claims}
    assert not names & {claim.name for claim in world.claims()}


@pytest.mark.parametrize("changes", range(1, 30))
def test_a_late_worker_takes_no_step_of_a_node_back_that_another_took_meanwhile(
    changes: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its node joined and became Ready while this worker had read neither: the claim stays Initialized, said once."""
    caplog.set_level("INFO", "spotwright")
    world = fresh_world()
    world.deploy(POD, 2)
    assert world.run(60, until=lambda: bool(world.cluster.nodes()))

    def seconds_later() -> None:
        world.clock.advance(5)
        world.kubelets.reconcile()
        lifecycle(world, everything(world), now=world.clock.now())

    world.effects.interject(changes, seconds_later)
    lost = 0
    for _ in range(30):
        was = {claim.name for claim in world.claims() if claim.is_condition_true("Initialized")}
        world.run(1)
        lost += len(was - {claim.name for claim in world.claims() if claim.is_condition_true("Initialized")})
    assert lost == 0
    assert all(claim.is_condition_true("Ready") for claim in world.claims())
    said = [record.getMessage() for record in caplog.records]
    assert said.count("registered nodeclaim") == said.count("initialized nodeclaim") == 2
