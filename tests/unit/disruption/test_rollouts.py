"""How far roll-outs are: which node is the canary, when it has proved itself, and what stops."""

from datetime import datetime, timedelta

import msgspec
import pytest

from spotwright.disruption.rollouts import Attempt, Phase, Rollout, find_destinations, find_rollouts, rollout_key
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import AMI, EC2NodeClass, SecurityGroup, Subnet
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, OwnerReference
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import Snapshot
from spotwright.simulation import builders
from tests.unit.disruption.builders import LONG_AGO, NOBODY, NOW, claim, node, on, snapshot

NEW, OLD = {labels.NODEPOOL_HASH: "2"}, {labels.NODEPOOL_HASH: "1"}
KEY = rollout_key(builders.nodepool(metadata=ObjectMeta("default", annotations=NEW)), builders.nodeclass())


def pool(**annotations: str) -> NodePool:
    return builders.nodepool(metadata=ObjectMeta("default", annotations=NEW | annotations))


def old(name: str, zone: str = "a") -> NodeClaim:
    base = claim(name)
    drifted = Condition("Drifted", "True", last_transition_time=LONG_AGO)
    about = msgspec.structs.replace(
        base.metadata, annotations=OLD, labels=base.metadata.labels | {labels.ZONE: f"zone-{zone}"}
    )
    return msgspec.structs.replace(base, metadata=about, conditions=(*base.conditions, drifted))


def new(name: str, *, seconds: int = 120, hashed: dict[str, str] = NEW, image: str = "") -> NodeClaim:
    """Initialized so many seconds ago."""
    base = claim(name)
    at = NOW - timedelta(seconds=seconds)
    about = msgspec.structs.replace(base.metadata, annotations=hashed, creation_timestamp=at - timedelta(seconds=40))
    return msgspec.structs.replace(
        base,
        metadata=about,
        image_id=image,
        conditions=(Condition("Initialized", "True", last_transition_time=at),),
    )


def pods(name: str, *ready: bool, minutes: int = 10) -> tuple[Pod, ...]:
    made = (on(name, builders.pod(f"{name}-{number}")) for number in range(len(ready)))
    since = NOW - timedelta(minutes=minutes)
    return tuple(
        msgspec.structs.replace(pod, is_ready=is_ready, start_time=since)
        for pod, is_ready in zip(made, ready, strict=True)
    )


def of(*claims: NodeClaim, running: tuple[Pod, ...] = (), **fields: object) -> Snapshot:
    fields = {"nodepools": (pool(),), "nodeclasses": (builders.nodeclass(),)} | fields
    names = [nodeclaim.name for nodeclaim in claims]
    return snapshot(nodeclaims=claims, nodes=tuple(map(node, names)), pods=running, **fields)


def found(observed: Snapshot, *attempts: Attempt, locked: frozenset[str] = NOBODY) -> Rollout:
    return find_rollouts(observed, attempts, locked)["default"]


def failure(minutes_ago: int, key: str = KEY) -> Attempt:
    return Attempt(key, failed_at=NOW - timedelta(minutes=minutes_ago), replacement="r")


def test_without_drifted_nodes_there_is_no_roll_out() -> None:
    assert find_rollouts(of(new("n")), (), NOBODY) == {}


def test_a_nodepool_may_be_left_out() -> None:
    observed = of(old("o"), nodepools=(pool(**{labels.DRIFT_ROLLOUT: "Off"}),))
    assert find_rollouts(observed, (), NOBODY) == {}


def test_the_first_is_the_canary_and_the_others_wait_for_it() -> None:
    assert found(of(old("a"), old("b"))).phase == Phase.CANARY
    assert found(of(old("a"), old("b")), locked=frozenset("a")).phase == Phase.WAITING


def test_a_canary_that_proved_itself_lets_the_others_go_zone_by_zone() -> None:
    observed = of(old("a", "c"), old("b", "b"), new("n"), running=pods("n", True))
    rollout = found(observed, Attempt(KEY, nodes=1))
    assert (rollout.phase, rollout.message) == (Phase.REPLACING, "1 of 3 nodes replaced; zone zone-b next")


@pytest.mark.parametrize(("seconds", "expected"), [(10, Phase.WAITING), (31, Phase.REPLACING)])
def test_a_canary_without_pods_is_waited_for_shortly(seconds: int, expected: Phase) -> None:
    assert found(of(old("a"), new("n", seconds=seconds))).phase == expected


@pytest.mark.parametrize(("seconds", "expected"), [(120, Phase.WAITING), (301, Phase.REPLACING)])
def test_pods_that_still_run_on_the_old_node_are_waited_for_a_while(seconds: int, expected: Phase) -> None:
    """A PodDisruptionBudget may hold them for hours."""
    (coming,) = pods("n", True)
    observed = of(old("a"), old("b"), new("n", seconds=seconds), running=(coming,), moving_pods={coming.key: "node-a"})
    assert found(observed, locked=frozenset("a")).phase == expected


@pytest.mark.parametrize(
    ("ready", "minutes", "expected"),
    [
        ((True, True, False), 10, Phase.REPLACING),
        ((True, False), 10, Phase.REPLACING),
        ((True, False, False), 10, Phase.PODS_NOT_READY),
        ((False,), 10, Phase.PODS_NOT_READY),
        ((False,), 1, Phase.WAITING),
    ],
)
def test_half_of_the_pods_must_be_ready_within_five_minutes(
    ready: tuple[bool, ...], minutes: int, expected: Phase
) -> None:
    observed = of(old("a"), new("n", seconds=900), running=(*pods("n", *ready, minutes=minutes), *pods("a", True)))
    assert found(observed).phase == expected


@pytest.mark.parametrize("order", [1, -1])
def test_of_two_nodes_of_a_claim_the_pods_of_the_one_that_it_is_registered_with_count(order: int) -> None:
    observed = of(old("a"), new("n", seconds=900), running=(*pods("n", False), *pods("a", True)))
    other = node("other", provider_id="aws:///z/i-n")
    observed = msgspec.structs.replace(observed, nodes=(*observed.nodes, other)[::order])
    assert found(observed).phase == Phase.PODS_NOT_READY


def test_pods_that_are_ready_nowhere_say_nothing_of_a_new_node() -> None:
    observed = of(old("a"), new("n", seconds=900), running=(*pods("n", False), *pods("a", False, False)))
    assert found(observed).phase == Phase.REPLACING


def test_what_pods_miss_is_named() -> None:
    observed = of(old("a"), new("n", seconds=900), running=(*pods("n", False), *pods("a", True)))
    assert found(observed).message == (
        "0 of 1 nodes replaced; stopped: 1 of 1 pods on the new node node-n are not Ready after 5 minutes (pod"
        " default/n-0). It goes on when they are; look at the pods, and correct them, the NodePool or the EC2NodeClass"
    )


@pytest.mark.parametrize(
    ("failures", "minutes_ago", "expected"),
    [(1, 14, Phase.NOT_INITIALIZED), (1, 16, Phase.CANARY), (2, 29, Phase.NOT_INITIALIZED), (2, 31, Phase.CANARY)],
)
def test_after_a_replacement_that_failed_the_next_canary_waits_twice_as_long_each_time(
    failures: int, minutes_ago: int, expected: Phase
) -> None:
    tried = [failure(minutes_ago + 60 * number) for number in range(failures)]
    assert found(of(old("a"), old("b")), *tried).phase == expected


def test_a_replacement_that_joins_after_all_ends_the_stop() -> None:
    observed = of(old("a"), new("n", seconds=60), running=pods("n", True))
    assert found(observed, failure(2)).phase == Phase.REPLACING
    assert found(observed, failure(0)).phase == Phase.NOT_INITIALIZED


def test_what_failed_for_another_template_does_not_count() -> None:
    assert found(of(old("a")), failure(1, "default/other")).phase == Phase.CANARY


def made(nodeclaim: NodeClaim, created: datetime) -> NodeClaim:
    about = msgspec.structs.replace(nodeclaim.metadata, creation_timestamp=created)
    return msgspec.structs.replace(nodeclaim, metadata=about)


def deleted(nodeclaim: NodeClaim) -> NodeClaim:
    about = msgspec.structs.replace(nodeclaim.metadata, deletion_timestamp=NOW)
    return msgspec.structs.replace(nodeclaim, metadata=about)


def drifted(nodeclaim: NodeClaim) -> NodeClaim:
    """Such as by security groups or subnets, of which it has no hash."""
    condition = Condition("Drifted", "True", last_transition_time=NOW)
    return msgspec.structs.replace(nodeclaim, conditions=(*nodeclaim.conditions, condition))


OF_CLASS = {labels.EC2NODECLASS_HASH: "2"}


@pytest.mark.parametrize(
    "other",
    [
        made(new("n"), LONG_AGO - timedelta(minutes=1)),
        new("n", hashed=OLD),
        new("n", hashed=NEW | {labels.EC2NODECLASS_HASH: "1"}),
        new("n", image="ami-old"),
        deleted(new("n")),
        drifted(new("n")),
    ],
    ids=["made before the drift", "another template", "another class", "another image", "deleted", "drifted"],
)
def test_only_a_node_of_what_is_wanted_now_proves_it(other: NodeClaim) -> None:
    """Whether or not its own condition Drifted is there yet."""
    nodeclass = builders.nodeclass(metadata=ObjectMeta("default", annotations=OF_CLASS))
    assert found(of(old("a"), other, nodeclasses=(nodeclass,))).phase == Phase.CANARY
    wanted = new("n", hashed=NEW | OF_CLASS, image="ami-amd64")
    assert found(of(old("a"), wanted, nodeclasses=(nodeclass,))).phase == Phase.REPLACING


def test_a_new_node_that_is_not_ready_proves_nothing() -> None:
    observed = of(old("a"), new("n"))
    unready = msgspec.structs.replace(node("n"), conditions=(Condition("Ready", "False"),))
    assert found(msgspec.structs.replace(observed, nodes=(node("a"), unready))).phase == Phase.CANARY


def test_a_node_that_was_made_while_further_ones_drifted_proves_as_much() -> None:
    """NodeClaims are compared a thousand at a time."""
    since = Condition("Drifted", "True", last_transition_time=NOW)
    later = msgspec.structs.replace(old("b"), conditions=(since,))
    assert found(of(old("a"), later, new("n"))).phase == Phase.REPLACING


def test_pods_of_daemonsets_that_are_ready_prove_nothing() -> None:
    (daemon,), (pending,) = pods("n", True), pods("n", False, minutes=1)
    owner = OwnerReference("DaemonSet", "d", "uid")
    about = msgspec.structs.replace(daemon.metadata, name="daemon", owner_references=(owner,))
    daemons = (msgspec.structs.replace(daemon, metadata=about),)
    assert found(of(old("a"), new("n"), running=(*daemons, pending, *pods("a", True)))).phase == Phase.WAITING


def test_a_pod_that_waited_long_for_its_node_has_its_time_to_become_ready() -> None:
    (waited,) = pods("n", False, minutes=1)
    waited = msgspec.structs.replace(
        waited, metadata=msgspec.structs.replace(waited.metadata, creation_timestamp=LONG_AGO)
    )
    assert found(of(old("a"), new("n"), running=(waited, *pods("a", True)))).phase == Phase.WAITING


def test_claims_of_somebody_elses_class_take_no_part() -> None:
    group = msgspec.structs.replace(builders.nodepool().node_class_ref, group="eks.amazonaws.com", kind="NodeClass")
    assert find_rollouts(of(msgspec.structs.replace(old("a"), node_class_ref=group)), (), NOBODY) == {}


def test_after_many_failures_a_canary_is_tried_every_four_hours() -> None:
    tried = [failure(239 + 300 * number) for number in range(9)]
    assert found(of(old("a")), *tried).phase == Phase.NOT_INITIALIZED
    assert found(of(old("a")), *[failure(241 + 300 * number) for number in range(9)]).phase == Phase.CANARY


def test_a_node_whose_pods_still_start_keeps_no_canary_waiting_after_a_failure() -> None:
    observed = of(old("a"), new("n", seconds=60), running=(*pods("n", False, minutes=1), *pods("a", True)))
    assert found(observed, failure(16)).phase == Phase.CANARY


def test_a_node_that_a_command_holds_is_counted_once() -> None:
    assert found(of(old("a"), old("b")), locked=frozenset("a")).message.startswith("0 of 2 nodes replaced; ")


@pytest.mark.parametrize(
    "changed",
    [
        builders.nodepool(metadata=ObjectMeta("default", annotations={labels.NODEPOOL_HASH: "3"})),
        builders.nodepool(
            metadata=ObjectMeta("default", annotations=NEW),
            requirements=(NodeSelectorRequirement(labels.ARCH, "In", ("arm64",)),),
        ),
    ],
    ids=["template", "requirements"],
)
def test_another_target_has_another_key(changed: NodePool) -> None:
    assert rollout_key(changed, builders.nodeclass()) != KEY
    assert rollout_key(pool(), None) != KEY
    budgets_only = msgspec.structs.replace(pool(), budgets=())
    assert rollout_key(budgets_only, builders.nodeclass()) == KEY


@pytest.mark.parametrize(
    "changed",
    [
        builders.nodeclass(metadata=ObjectMeta("default", annotations=OF_CLASS)),
        builders.nodeclass(amis=(AMI("ami-new"),)),
        builders.nodeclass(security_groups=(SecurityGroup("sg-2"),)),
        builders.nodeclass(subnets=(Subnet("subnet-new", "zone-a"),)),
    ],
    ids=["hash", "images", "security-groups", "subnets"],
)
def test_another_class_is_another_target(changed: EC2NodeClass) -> None:
    assert rollout_key(pool(), changed) != KEY
    in_another_order = msgspec.structs.replace(changed, subnets=changed.subnets[::-1])
    assert rollout_key(pool(), in_another_order) == rollout_key(pool(), changed)


def elsewhere(nodeclaim: NodeClaim) -> NodeClaim:
    """The same of a NodePool without drifted nodes, of the same EC2NodeClass."""
    about = nodeclaim.metadata
    about = msgspec.structs.replace(about, labels=about.labels | {labels.NODEPOOL: "other"})
    return msgspec.structs.replace(nodeclaim, metadata=about)


def beside(*claims: NodeClaim, running: tuple[Pod, ...] = (), drift_rollout: str = "Canary") -> Rollout | None:
    """How far that NodePool is beside one with a drifted node."""
    annotations = NEW | {labels.DRIFT_ROLLOUT: drift_rollout}
    other = builders.nodepool(metadata=ObjectMeta("other", annotations=annotations))
    observed = of(old("a"), *claims, running=running, nodepools=(pool(), other))
    return find_destinations(observed, find_rollouts(observed, (), NOBODY)).get("other")


def not_initialized(nodeclaim: NodeClaim) -> NodeClaim:
    return msgspec.structs.replace(nodeclaim, conditions=())


@pytest.mark.parametrize(
    ("claims", "running", "expected"),
    [
        ([], (), Phase.CANARY),
        ([elsewhere(new("n", seconds=10**8))], pods("n", True), Phase.CANARY),
        ([elsewhere(not_initialized(new("n")))], (), Phase.WAITING),
        ([elsewhere(not_initialized(new("n", seconds=700)))], (), Phase.CANARY),
        ([elsewhere(new("n"))], pods("n", False, minutes=1), Phase.WAITING),
        ([elsewhere(new("n", seconds=900))], pods("n", False), Phase.PODS_NOT_READY),
        ([elsewhere(new("n"))], pods("n", True), Phase.REPLACING),
    ],
    ids=["no-node", "older-than-the-drift", "starting", "late", "pods-start", "pods-not-ready", "proven"],
)
def test_new_nodes_of_another_nodepool_have_to_prove_themselves_as_well(
    claims: list[NodeClaim], running: tuple[Pod, ...], expected: Phase
) -> None:
    rollout = beside(*claims, running=running)
    assert rollout is not None
    assert rollout.phase == expected


def test_of_another_nodepool_nothing_is_asked_where_it_says_so_or_has_a_class_of_its_own() -> None:
    assert beside(drift_rollout="Off") is None
    reference = msgspec.structs.replace(builders.nodepool().node_class_ref, name="own")
    other = builders.nodepool(metadata=ObjectMeta("other", annotations=NEW), node_class_ref=reference)
    observed = of(old("a"), nodepools=(pool(), other))
    assert set(find_destinations(observed, find_rollouts(observed, (), NOBODY))) == {"default"}


def test_a_nodepool_of_which_the_last_drifted_nodes_are_drained_is_judged_by_its_new_ones() -> None:
    leaving = old("a")
    leaving = msgspec.structs.replace(
        leaving, metadata=msgspec.structs.replace(leaving.metadata, deletion_timestamp=NOW)
    )
    observed = of(leaving, new("n", seconds=20), running=pods("n", False, minutes=1))
    rollouts = find_rollouts(observed, (), NOBODY)
    assert rollouts["default"].phase == Phase.REPLACING
    assert find_destinations(observed, rollouts)["default"].phase == Phase.WAITING
