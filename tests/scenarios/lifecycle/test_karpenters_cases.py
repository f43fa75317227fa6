"""Karpenter's cases of a node's life, by the number that they have in its behavior, and the tests that hold them.

Those of disruption (C, D, F to I) are in the tests of disruption.
"""

import ast
from datetime import timedelta
from pathlib import Path
from typing import Final

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, find_condition
from spotwright.model.kubernetes.taints import Taint
from spotwright.simulation import builders
from spotwright.simulation.world import World

ROOT: Final = Path(__file__).parents[2]
_SCHEMAS: Final = ("manifests/test_refusals.py",)
_HASHES: Final = ("unit/aws/nodeclass/test_hashes.py",)
_JOINING: Final = ("unit/lifecycle/test_joining.py",)
_DRAIN: Final = ("unit/lifecycle/test_drain.py",)
_TERMINATION: Final = ("scenarios/lifecycle/termination/test_termination.py",)
_DRAINED_PODS: Final = ("scenarios/lifecycle/termination/test_drained_pods.py",)
_HERE: Final = ("scenarios/lifecycle/test_karpenters_cases.py",)
_STATIC: Final = ("unit/scheduling/static_capacity/test_static_capacity.py",)
# Number: file, test.
CASES: Final = {
    **dict.fromkeys(
        ("A1", "A2", "A5", "A7", "A8", "A10", "A11", "A13", "A14", "A16", "A19", "A22", "A26", "A28"),
        (*_SCHEMAS, "a_wrong_object_is_refused_in_clear_words"),
    ),
    # As on Karpenter's main branch: v1.14.1 requires the field inside a disruption that is written.
    "A4": ("manifests/test_definitions.py", "defaults_inside_a_disruption_that_is_written_in_part"),
    "A17": ("unit/lifecycle/test_nodepool_status.py", "what_means_nothing_is_named"),
    **dict.fromkeys(("A20", "A23"), (*_SCHEMAS, "what_cannot_change_in_a_nodepool")),
    "A25": ("unit/lifecycle/test_nodepool_status.py", "one_known_capacity_type_is_enough"),
    "B1": (*_HASHES, "requirements_do_not_drift_by_hash"),
    "B3": (*_HASHES, "a_pool_hashes_as_karpenter_does"),
    "B4": (*_HASHES, "an_empty_list_in_a_manifest_is_not_an_absent_one"),
    "B6": (*_HASHES, "how_many_nodes_a_pool_keeps_and_may_have_is_no_drift"),
    "B7": ("unit/disruption/test_nodeclaim_drift.py",
           "a_hash_of_another_version_is_taken_over_unless_the_claim_drifts"),
    "B9": ("scenarios/lifecycle/disruption/test_karpenter_takeover.py",
           "what_drifted_before_goes_on_drifting_and_other_pools_keep_their_hashes"),
    "E2": ("scenarios/lifecycle/launch/test_pod_to_node.py", "a_claim_of_another_provider_is_left_alone"),
    "E3": ("scenarios/lifecycle/launch/test_pod_to_node.py", "the_claim_says_what_was_bought_and_why"),
    "E5": ("unit/lifecycle/test_nodeclaim_creation.py", "a_class_is_launched_from_when_it_is_ready_as_it_is_now"),
    "E6": ("unit/lifecycle/test_nodeclaim_creation.py", "a_class_that_is_missing_counts_as_no_capacity"),
    "E8": ("scenarios/lifecycle/launch/test_pod_to_node.py",
           "a_definite_refusal_is_said_and_tried_again_under_a_new_token"),
    "E9": ("scenarios/lifecycle/faults/test_crashes.py", "a_crash_after_any_change_costs_time_but_buys_nothing_twice"),
    "E11": (*_JOINING, "what_does_not_come_in_time_ends"),
    "E12": (*_JOINING, "the_timer_runs_from_the_conditions_own_time"),
    "E14": (*_JOINING, "a_node_without_the_unregistered_taint_registers_and_is_pointed_out"),
    "E15": (*_JOINING, "two_nodes_of_one_instance_are_an_error"),
    "E17": (*_JOINING, "the_node_takes_over_what_the_claim_says"),
    "E18": (*_HERE, "e18_a_startup_taint_that_a_daemon_removed_does_not_come_back"),
    "E20": (*_JOINING, "what_initialization_waits_for"),
    "E21": (*_HERE, "e21_a_claim_stays_initialized"),
    "E23": ("unit/lifecycle/test_registration_health.py", "e23_a_lost_row_and_a_single_success_make_a_pool_healthy"),
    "E24": ("unit/lifecycle/test_registration_health.py", "e24_outcomes_belong_to_the_pool_that_made_the_claim"),
    "E26": ("scenarios/lifecycle/launch/test_registration_health.py",
            "e26_nodes_that_do_not_join_make_it_unhealthy_and_it_launches_all_the_same"),
    "E27": (*_JOINING, "expiration_counts_from_creation"),
    "E29": ("unit/lifecycle/test_orphans.py", "what_ends_or_is_young_or_belongs_to_a_launch_is_none"),
    "E30": ("unit/lifecycle/test_consistency.py", "e30_nine_tenths_are_enough"),
    "E32": ("unit/disruption/test_emptiness.py", "consolidatable_after_the_last_pod_event_or_initialization"),
    "J1": (*_TERMINATION, "a_deleted_claim_takes_pods_instance_and_node_down_in_this_order"),
    "J3": (*_HERE, "j3_a_node_of_another_karpenter_is_left_alone"),
    "J4": (*_DRAIN, "pods_that_do_not_hold_a_node"),
    "J6": (*_DRAINED_PODS, "a_budget_that_allows_nothing_keeps_the_node_and_says_so"),
    "J7": (*_HERE, "j7_a_pod_that_took_the_name_of_another_is_not_evicted_for_it"),
    "J9": (*_DRAIN, "a_pod_is_deleted_when_its_grace_would_outlast_the_deadline"),
    "J10": (*_DRAINED_PODS, "the_termination_grace_period_overrules_budget_and_annotation"),
    "J12": (*_DRAIN, "a_pod_is_deleted_when_its_grace_would_outlast_the_deadline"),
    "J13": (*_DRAIN, "force_reaches_across_tiers"),
    "J15": (*_HERE, "j15_a_ready_node_is_drained_though_ec2_says_its_instance_is_gone"),
    "J16": (*_HERE, "j16_volumes_that_stay_attached_are_waited_for_until_the_grace_period_ends"),
    "J18": ("scenarios/lifecycle/launch/test_pod_to_node.py", "a_refusal_that_stays_ends_the_claim_after_five_minutes"),
    "J19": ("scenarios/lifecycle/termination/test_rate_limits.py", "a_call_without_an_answer_is_made_again"),
    "J21": (*_HERE, "j21_the_end_of_a_termination_is_stated_once"),
    "K1": ("unit/lifecycle/test_node_repair.py", "k1_a_condition_is_tolerated_for_its_time_and_no_longer"),
    "K3": ("unit/lifecycle/test_node_repair.py",
           "k3_of_two_conditions_the_one_that_is_tolerated_no_longer_first_counts"),
    "K4": ("scenarios/lifecycle/disruption/test_node_repair.py", "k4_a_termination_that_was_to_end_later_ends_now"),
    "K6": (*_STATIC, "a_static_pool_makes_what_it_lacks_within_its_limit"),
    "K7": (*_STATIC, "what_costs_least_to_lose_goes_first"),
    "K9": (*_STATIC, "a_node_that_waits_for_its_replacement_is_not_made_twice"),
    "K10": ("unit/scheduling/offerings/test_overlays.py", "a_price_is_replaced_or_moved_and_never_below_nothing"),
    "K12": ("unit/scheduling/test_capacity_buffers.py", "the_number_of_pods_that_room_is_kept_for"),
    # Beside Karpenter's own: a cluster that changes hands, and objects that are there twice.
    "taken over": ("scenarios/lifecycle/disruption/test_karpenter_takeover.py",
                   "nothing_drifts_and_no_hash_of_ours_differs"),
    "taken over: nothing of it goes": (*_HERE, "a_node_that_was_taken_over_keeps_its_labels_and_its_life"),
    "handed back": ("manifests/test_uninstall.py", "handing_back_takes_only_our_own_parts_in_reverse"),
    "two claims": ("scenarios/lifecycle/termination/test_shared_instances.py",
                   "two_claims_of_one_instance_are_reported_and_a_deleted_node_costs_neither"),
    "two nodes": ("scenarios/lifecycle/termination/test_shared_instances.py",
                  "a_second_node_of_a_claim_is_reported_and_goes_with_the_instance"),
}  # fmt: skip


def test_every_case_has_its_test() -> None:
    missing = {
        number: f"{file}: {name}"
        for number, (file, name) in CASES.items()
        if f"test_{name}" not in {node.name for node in ast.walk(_tree(file)) if isinstance(node, ast.FunctionDef)}
    }
    assert missing == {}


def _tree(file: str) -> ast.Module:
    return ast.parse((ROOT / file).read_text())


def running(world: World, **nodepool: object) -> NodeClaim:
    """A claim with a pod on its node, which nobody replaces."""
    if nodepool:
        world.cluster.update("nodepools", "default", **nodepool)
    world.deploy(builders.pod("web", cpu_millicores=500), 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)
    world.forget_deployments()
    world.run(20)
    (claim,) = world.claims()
    return claim


def delete(world: World, claim: NodeClaim) -> None:
    world.cluster.delete("nodeclaims", claim.metadata)


def condition(world: World, type: str) -> Condition:
    found = find_condition(world.claims()[0].conditions, type)
    assert found is not None
    return found


def test_e18_a_startup_taint_that_a_daemon_removed_does_not_come_back(world: World) -> None:
    startup = Taint("network.example/agent", "NoSchedule")
    world.cluster.update("nodepools", "default", startup_taints=(startup,))
    world.deploy(builders.pod("web", cpu_millicores=500), 1)
    assert world.run(60, until=lambda: any(startup in node.taints for node in world.cluster.nodes()))
    assert world.run(30, until=lambda: all(claim.is_condition_true("Registered") for claim in world.claims()))
    (node,) = world.cluster.nodes()
    world.cluster.set_taints(node, tuple(taint for taint in node.taints if taint != startup))
    seen = set[bool]()
    for _ in range(70):
        world.run(1)
        seen.add(startup in world.cluster.nodes()[0].taints)
    assert seen == {False}
    assert world.claims()[0].is_condition_true("Initialized")


def test_e21_a_claim_stays_initialized(world: World) -> None:
    claim = running(world)
    since = condition(world, "Initialized")
    world.kubelets.broken_instances.add(world.ec2.live_instances()[0].id)
    node = world.cluster.node(claim.node_name)
    assert node is not None
    world.cluster.set_taints(node, (*node.taints, Taint("readiness.k8s.io/gpu", "NoSchedule")))
    world.run(90)
    assert not world.cluster.nodes()[0].is_ready
    assert condition(world, "Initialized") == since


def test_j3_a_node_of_another_karpenter_is_left_alone(world: World) -> None:
    about = ObjectMeta("foreign", labels={"karpenter.azure.com/aksnodeclass": "x"}, finalizers=(labels.FINALIZER,))
    node = builders.unmanaged_node("foreign", metadata=about, provider_id="azure:///vm-1")
    world.cluster.put("nodes", node)
    foreign = NodeClaim(ObjectMeta("foreign"), NodeClassReference("karpenter.azure.com", "AKSNodeClass", "x"))
    foreign = msgspec.structs.replace(foreign, provider_id="azure:///vm-1", node_name="foreign")
    world.cluster.put("nodeclaims", foreign)
    world.cluster.put("pods", builders.pod("stays", node_name="foreign", phase="Running", is_ready=True))
    world.cluster.delete_node(world.cluster.node("foreign"))
    world.run(120)
    kept = world.cluster.node("foreign")
    assert kept is not None
    assert DISRUPTED_TAINT not in kept.taints
    assert not world.effects.select("cluster", "evict")


def test_j7_a_pod_that_took_the_name_of_another_is_not_evicted_for_it(world: World) -> None:
    running(world)
    (before,) = world.running_pods()
    world.cluster.remove("pods", before.key)
    world.cluster.put(
        "pods", msgspec.structs.replace(before, metadata=msgspec.structs.replace(before.metadata, uid=""))
    )
    assert world.cluster.evict(before), "it is gone"
    assert [pod.key for pod in world.running_pods()] == [before.key]


def test_j15_a_ready_node_is_drained_though_ec2_says_its_instance_is_gone(world: World) -> None:
    """A kubelet that answers shows that the instance runs."""
    claim = running(world)
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("web", "web", max_unavailable=0))
    delete(world, claim)
    world.ec2.forget_instance(world.ec2.live_instances()[0].id)
    ready = world.cluster.node(claim.node_name)
    assert ready is not None
    for _ in range(100):
        world.kubelets.reconcile = lambda: None  # type: ignore[method-assign]
        world.run(1)
    assert [pod.node_name for pod in world.running_pods()] == [claim.node_name]
    assert world.cluster.nodeclaim(claim.name) is not None


def test_j16_volumes_that_stay_attached_are_waited_for_until_the_grace_period_ends(world: World) -> None:
    claim = running(world, termination_grace_period_seconds=60)
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    delete(world, claim)
    world.run(50)
    assert condition(world, "VolumesDetached").reason == "AwaitingVolumeDetachment"
    assert world.run(30, until=lambda: condition(world, "VolumesDetached").status == "False")
    assert condition(world, "VolumesDetached").reason == "TerminationGracePeriodElapsed"


@pytest.mark.parametrize(
    ("grace_period", "stated", "kept"),
    [(3600, "", "+1h"), (3600, "2124-04-01T12:00:00-05:00", "2124-04-01T12:00:00-05:00"), (None, "", "")],
)
def test_j21_the_end_of_a_termination_is_stated_once(
    world: World, grace_period: int | None, stated: str, kept: str
) -> None:
    claim = running(world, termination_grace_period_seconds=grace_period)
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("web", "web", max_unavailable=0))
    if stated:
        world.cluster.update("nodeclaims", claim.name, annotations={labels.TERMINATION_TIMESTAMP: stated})
    hour_later = (world.clock.now() + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    delete(world, claim)
    world.run(30)
    found = world.claims()[0].metadata.annotations.get(labels.TERMINATION_TIMESTAMP, "")
    assert found == (hour_later if kept == "+1h" else kept)


def test_a_node_that_was_taken_over_keeps_its_labels_and_its_life(world: World) -> None:
    """What Karpenter made has neither a launch nor a decision of ours; a label for its instance is all it gets."""
    claim = running(world)
    ours = (labels.LAUNCH, labels.DECISION, labels.EXPECTED_NODE, labels.INSTANCE_TAGGED, labels.CLUSTER_NAME_TAGGED)
    annotations = {key: value for key, value in claim.metadata.annotations.items() if key not in ours}
    without = {key: value for key, value in claim.metadata.labels.items() if key != labels.INSTANCE_ID}
    about = msgspec.structs.replace(world.claims()[0].metadata, annotations=annotations, labels=without)
    world.cluster.put("nodeclaims", msgspec.structs.replace(world.claims()[0], metadata=about))
    node = world.cluster.node(claim.node_name)
    assert node is not None
    world.state.clear()
    world.run(1300)
    (after,) = world.claims()
    assert after.metadata.labels == {**without, labels.INSTANCE_ID: claim.metadata.labels[labels.INSTANCE_ID]}
    assert after.metadata.uid == claim.metadata.uid
    kept = world.cluster.node(claim.node_name)
    assert kept is not None
    assert kept.metadata.labels == node.metadata.labels
    assert len(world.running_pods()) == len(world.ec2.all_instances()) == 1
