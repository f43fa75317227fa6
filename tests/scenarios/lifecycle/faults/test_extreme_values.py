"""Objects with extreme values that the API server takes: every other object of their cluster is served all the same.

An error that is not an API's ends a simulated run, so that whatever raises one fails here.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotwright.adapters.kubernetes.codecs.nodepool import decode_nodepool
from spotwright.adapters.kubernetes.codecs.objects import decode_conditions, decode_time
from spotwright.adapters.kubernetes.codecs.pod import decode_pod, decode_pod_disruption_budget
from spotwright.errors import ApiError
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import Condition
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.kubernetes.pod import Pod
from spotwright.simulation import builders
from spotwright.simulation.world import World
from tests.campaign.serial import serial_calls
from tests.scenarios.lifecycle.conftest import fresh_world

DIGITS = "9" * 5000
DURATIONS = ("99999999h", "2562047h47m16s", "876000h", DIGITS + "s", "0" * 5000 + "30s")
TIMES = (
    "0001-01-01T00:00:00Z", "0001-01-02T00:00:00+14:00", "1600-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z", "9999-12-30T23:59:59-14:00",
)  # fmt: skip
UNREADABLE_TIMES = ("0000-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00")
GRACE_SECONDS = (2**63 - 1, 10**12, 10**9, 0, -1, -(2**63))
AMOUNTS = ("1e300", "-1", "9E", DIGITS)
PODS: tuple[dict[str, Any], ...] = (
    *({"spec": {"terminationGracePeriodSeconds": seconds}} for seconds in GRACE_SECONDS),
    *({"annotations": {labels.DO_NOT_DISRUPT: text}} for text in (*DURATIONS, "99999999999h", "-1h", "1e400h")),
    *(
        {"annotations": {labels.DO_NOT_DISRUPT: "1h"}, "status": {"startTime": text}}
        for text in (*TIMES, *UNREADABLE_TIMES)
    ),
    *({"annotations": {labels.POD_DELETION_COST: cost}} for cost in ("1e400", DIGITS, "-" + DIGITS, str(2**31 - 1))),
    *({"spec": {"priority": priority}} for priority in (2**31 - 1, -(2**31))),
    *({"spec": {"tolerations": [{"operator": "Exists", "tolerationSeconds": most}]}} for most in (2**63 - 1, -(2**63))),
    *({"spec": {"containers": [{"name": "app", "resources": {"requests": {"cpu": amount}}}]}} for amount in AMOUNTS),
)


def deploy_odd_pods(world: World, odd: tuple[Mapping[str, Any], ...]) -> None:
    """A pod each, as it is read from the API server."""
    for number, parts in enumerate(odd):
        name = f"odd{number}"
        metadata = {"name": name, "namespace": "default", "annotations": parts.get("annotations", {}),
                    "ownerReferences": [{"kind": "ReplicaSet", "name": name, "uid": f"uid-{name}"}]}  # fmt: skip
        containers = [{"name": "app", "resources": {"requests": {"cpu": "300m", "memory": "128Mi"}}}]
        spec = {"containers": containers} | parts.get("spec", {})
        world.deploy(decode_pod({"metadata": metadata, "spec": spec, "status": parts.get("status", {})}), 1)


def usual_pods(world: World) -> list[Pod]:
    return [pod for pod in world.running_pods() if pod.metadata.name.startswith("inflate")]


def claims_by_node(world: World) -> dict[str, NodeClaim]:
    return {claim.node_name: claim for claim in world.claims() if claim.node_name}


def deployed(world: World, odd: tuple[Mapping[str, Any], ...] = ()) -> World:
    """Three usual pods, each on a node of its own, and the odd ones."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 3)
    deploy_odd_pods(world, odd)
    assert world.run(120, until=lambda: len(usual_pods(world)) == 3)
    world.run(30)
    return world


def assert_others_are_served(world: World) -> None:
    """Usual pods get nodes when theirs are interrupted and deleted, and nodes go that nothing needs."""
    claims = claims_by_node(world)
    odd = {pod.node_name for pod in world.running_pods() if pod.metadata.name.startswith("odd")}
    interrupted = {*odd, usual_pods(world)[0].node_name} & claims.keys()
    began = len(world.effects.log)
    for node in sorted(interrupted):
        world.interrupt_spot(instance_id(claims[node].provider_id))
    world.run(100)
    assert any(effect.action == "create_fleet" for effect in world.effects.log[began:])
    assert world.run(120, until=lambda: len(usual_pods(world)) == 3)
    deleted = claims_by_node(world)[usual_pods(world)[-1].node_name]
    world.cluster.delete("nodeclaims", deleted.metadata)
    assert world.run(300, until=lambda: world.cluster.nodeclaim(deleted.name) is None and len(usual_pods(world)) == 3)
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 0)
    assert world.run(400, until=lambda: claims_by_node(world).keys() <= {pod.node_name for pod in world.running_pods()})
    assert not [failure for failure in world.failures if not isinstance(failure, ApiError)]


def test_all_extreme_pods_at_once_keep_nothing_from_others(world: World) -> None:
    assert_others_are_served(deployed(world, PODS))


@settings(max_examples=5)
@given(st.lists(st.sampled_from(PODS), min_size=1, max_size=3))
def test_extreme_pods_keep_nothing_from_others(odd: list[Mapping[str, Any]]) -> None:
    with serial_calls():
        assert_others_are_served(deployed(fresh_world(), tuple(odd)))


def nodepool(disruption: Mapping[str, Any], template: Mapping[str, Any], **spec: Any) -> Mapping[str, Any]:
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    node_spec = {"nodeClassRef": reference, **template}
    body = {"disruption": disruption, "template": {"spec": node_spec}, **spec}
    return {"kind": "NodePool", "metadata": {"name": "default"}, "spec": body}


@settings(max_examples=6)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "expireAfter": st.sampled_from((*DURATIONS[:-1], "Never")),
            "terminationGracePeriod": st.sampled_from(DURATIONS),
        },
    ),
    st.fixed_dictionaries(
        {}, optional={"weight": st.sampled_from((100, 2**31 - 1)), "limits": st.just({"cpu": "9P", "memory": "9E"})}
    ),
)
def test_the_nodes_of_an_extreme_nodepool_live(template: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
    with serial_calls():
        world = fresh_world()
        pool = decode_nodepool(nodepool({}, template, **spec))
        world.cluster.put("nodepools", pool)
        assert not pool.read_error
        assert_others_are_served(deployed(world))


@pytest.mark.parametrize("text", DURATIONS[:-1])
def test_a_nodepool_whose_nodes_are_never_idle_for_long_enough_keeps_them(world: World, text: str) -> None:
    """Nothing else of the cluster waits for it: nodes of another NodePool are removed."""
    world.cluster.put("nodepools", decode_nodepool(nodepool({"consolidateAfter": text}, {})))
    deployed(world)
    world.cluster.put("nodepools", builders.nodepool("other", weight=10))
    world.deploy(builders.pod("late", cpu_millicores=1800), 1)
    assert world.run(120, until=lambda: len(world.running_pods()) == 4)
    world.deploy(builders.pod("late", cpu_millicores=1800), 0)
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(180, until=lambda: len(world.claims()) == 3)
    assert {claim.nodepool for claim in world.claims()} == {"default"}


def test_extreme_times_of_claims_and_nodes_keep_nothing_from_others(world: World) -> None:
    """Each node has another extreme time; the usual pods then run on others."""
    deployed(world, PODS[-4:-2])
    world.deploy(builders.pod("more", cpu_millicores=1800), len(TIMES) - 3)
    assert world.run(120, until=lambda: len(claims_by_node(world)) >= len(TIMES))
    for claim, text in zip(world.claims(), TIMES, strict=False):
        annotations = claim.metadata.annotations | {labels.TERMINATION_TIMESTAMP: text, labels.INSTANCE_NOT_FOUND: text}
        world.cluster.update("nodeclaims", claim.name, annotations=annotations, last_pod_event_time=decode_time(text))
        world.cluster.update("nodes", claim.node_name, conditions=unreachable_since(text))
    assert_others_are_served(world)


def unreachable_since(text: str) -> tuple[Condition, ...]:
    conditions = [
        {"type": "Ready", "status": "True", "lastTransitionTime": text},
        {"type": "NetworkUnavailable", "status": "True", "lastTransitionTime": text},
    ]
    return decode_conditions({"status": {"conditions": conditions}})


@pytest.mark.parametrize("allowed", [2**31 - 1, -1, -(2**31)])
def test_an_extreme_budget_keeps_nothing_from_the_pods_of_others(world: World, allowed: int) -> None:
    deployed(world, ({}, {"spec": {"terminationGracePeriodSeconds": 2**63 - 1}}))
    budget = {
        "metadata": {"name": "all", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "odd1"}}, "maxUnavailable": "999999999%"},
        "status": {"disruptionsAllowed": allowed},
    }
    world.cluster.put("poddisruptionbudgets", decode_pod_disruption_budget(budget))
    assert_others_are_served(world)
