"""ClusterPort: pods are evicted under their budgets, and nominated for nodes."""

import msgspec

from spotwright.model.kubernetes.pod import Pod
from tests.contract.cluster_world import NUMBERS, World


def running(world: World, app: str, *, is_ready: bool = True) -> Pod:
    pod = world.pod(node="somewhere", app=app)
    world.start_pod(pod, is_ready=is_ready)
    return world.current_pod(pod.metadata.name)


def is_there(world: World, pod: Pod) -> bool:
    """And not on its way out."""
    found = [one for one in world.port.pods() if one.metadata.uid == pod.metadata.uid]
    return any(one.metadata.deletion_timestamp is None for one in found)


def test_a_budget_keeps_its_pods_and_no_others(world: World) -> None:
    app = f"kept-{next(NUMBERS)}"
    kept, other_pod = running(world, app), running(world, f"other-{app}")
    world.add_budget(app)
    assert not world.port.evict(kept)
    assert world.port.evict(other_pod)
    assert is_there(world, kept)
    assert not is_there(world, other_pod)


def test_a_pod_with_two_budgets_is_never_evicted(world: World) -> None:
    app = f"twice-{next(NUMBERS)}"
    pod = running(world, app)
    for _ in range(2):
        world.add_budget(app, "AlwaysAllow")
    assert not world.port.evict(pod)
    assert is_there(world, pod)


def test_no_budget_is_asked_for_pods_that_have_not_started_and_some_are_not_for_unready_ones(world: World) -> None:
    for policy, is_refused in (("IfHealthyBudget", True), ("AlwaysAllow", False)):
        app = f"unready-{next(NUMBERS)}"
        waiting, unready = world.pod(node="somewhere", app=app), running(world, app, is_ready=False)
        world.add_budget(app, policy)
        assert world.port.evict(waiting)
        assert world.port.evict(unready) != is_refused
        assert is_there(world, unready) == is_refused


def test_whoever_is_gone_or_another_pod_of_the_name_counts_as_evicted(world: World) -> None:
    pod = running(world, f"gone-{next(NUMBERS)}")
    for change in ({"uid": "00000000-0000-0000-0000-000000000000"}, {"name": "nobody"}):
        assert world.port.evict(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, **change)))
    assert is_there(world, pod)


def test_a_waiting_pod_is_nominated_once_and_stays_so(world: World) -> None:
    pod = world.pod()
    wanted = {pod.key: pod.metadata.uid}
    assert world.port.nominate("planned", wanted) == {pod.key}
    assert world.port.nominate("planned", wanted) == {pod.key}
    assert world.port.nominate("planned", wanted, again=True) == {pod.key}
    for again in (False, True):
        assert world.port.nominate("other", wanted, again=again) == frozenset()
    assert world.current_pod(pod.metadata.name).nominated_node_name == "planned"


def test_nobody_is_nominated_who_is_bound_gone_or_another_pod_of_the_name(world: World) -> None:
    bound, other_pod = world.pod(node="somewhere"), world.pod()
    wanted = {
        bound.key: bound.metadata.uid,
        other_pod.key: "00000000-0000-0000-0000-000000000000",
        "default/nobody": "x",
    }
    for again in (False, True):
        assert world.port.nominate("planned", wanted, again=again) == frozenset()
        assert world.port.nominate("planned", {}, again=again) == frozenset()
    assert (
        world.current_pod(bound.metadata.name).nominated_node_name
        == world.current_pod(other_pod.metadata.name).nominated_node_name
        == ""
    )


def test_only_our_own_nomination_is_withdrawn(world: World) -> None:
    pod, preempted = world.pod(), world.pod()
    world.port.nominate("planned", {pod.key: pod.metadata.uid})
    world.port.nominate("preempted", {preempted.key: preempted.metadata.uid})
    for _ in range(2):
        world.port.clear_nominations(
            "planned", {pod.key: pod.metadata.uid, preempted.key: preempted.metadata.uid, "default/x": "x"}
        )
    assert world.current_pod(pod.metadata.name).nominated_node_name == ""
    assert world.current_pod(preempted.metadata.name).nominated_node_name == "preempted"
    again = {pod.key: pod.metadata.uid, preempted.key: preempted.metadata.uid, "default/x": "x"}
    assert world.port.nominate("planned", again, again=True) == {pod.key}
    assert world.current_pod(pod.metadata.name).nominated_node_name == "planned"
