"""What is worth replacing for its price. Numbers like H4 are those of Karpenter's cases."""

from collections.abc import Iterable
from datetime import timedelta
from fractions import Fraction
from random import Random

import msgspec
import pytest

from spotwright.disruption import removal_order
from spotwright.disruption.candidates import node_price
from spotwright.disruption.consolidation import (
    Consolidation,
    consolidate,
    find_candidates,
    judge,
    judge_again,
    still_allowed,
)
from spotwright.model import labels
from spotwright.model.ec2.instance_type import PICOUSD, Catalog, InstanceType, Offering
from spotwright.model.karpenter import consolidation_timer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.requirements import NodeSelectorRequirement, Operator, from_labels
from spotwright.model.snapshot import SPOT_TO_SPOT_CONSOLIDATION, Settings, Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.simulation import builders
from tests.unit.disruption.builders import NOBODY, NOW, claim, node, on, snapshot

ZONE = builders.ZONES[0]
FREE = {labels.POD_DELETION_COST: str(-(2**27))}


def catalog(*types: InstanceType) -> Catalog:
    return Catalog({"": types})


def kind(name: str, cpu: int, on_demand: float, spot: float = 0.0) -> InstanceType:
    return builders.instance_type(name, cpu, cpu * 4, on_demand=on_demand, spot=spot)


LARGE = kind("m5.4xlarge", 16, 0.80)
SMALL = kind("m5.large", 2, 0.10)
TINY = kind("m5.medium", 1, 0.06)


def machine(
    name: str, instance_type: InstanceType, *pods: Pod, capacity_type: str = labels.ON_DEMAND, zone: str = ZONE
) -> tuple[NodeClaim, Node, tuple[Pod, ...]]:
    """A node of this type with these pods, an hour old."""
    own = {
        labels.NODEPOOL: "default", labels.INSTANCE_TYPE: instance_type.name, labels.CAPACITY_TYPE: capacity_type,
        labels.ZONE: zone, labels.ARCH: "amd64", labels.OS: "linux",
    }  # fmt: skip
    placed = tuple(on(name, pod) for pod in pods)
    seen = {labels.PODS_SEEN: consolidation_timer.pods_digest(placed)}
    about = msgspec.structs.replace(claim(name).metadata, labels=own, annotations=seen)
    ready = {labels.INITIALIZED: "true", labels.REGISTERED: "true", labels.HOSTNAME: f"node-{name}"}
    built = node(
        name,
        metadata=ObjectMeta(f"node-{name}", labels=own | ready),
        allocatable=dict(instance_type.allocatable),
        capacity=dict(instance_type.capacity),
    )
    return claim(name, metadata=about), built, placed


def cluster(*machines: tuple[NodeClaim, Node, tuple[Pod, ...]], **fields: object) -> Snapshot:
    built = snapshot(
        nodeclaims=tuple(claim for claim, _, _ in machines),
        nodes=tuple(node for _, node, _ in machines),
        pods=tuple(pod for _, _, pods in machines for pod in pods),
        nodeclasses=(builders.nodeclass(),),
    )
    return msgspec.structs.replace(built, **fields)


def app(name: str, cpu_millicores: int, **fields: object) -> Pod:
    return builders.pod(name, cpu_millicores=cpu_millicores, memory_bytes=2**28, **fields)


def run(observed: Snapshot, types: Catalog, plan: Plan | None = None) -> Consolidation:
    return consolidate(observed, plan or Plan(), types, locked=NOBODY)


def moved(found: Consolidation) -> list[tuple[str, ...]]:
    return [move.candidates for move in found.moves]


def reasons(found: Consolidation) -> dict[str, str]:
    return {refusal.claim: refusal.reason for refusal in found.refused}


def bought(found: Consolidation) -> list[str]:
    return [node.instance_types[0] for move in found.moves for node in move.new_nodes]


def test_a_node_too_large_becomes_a_smaller_one_and_says_what_it_saves() -> None:
    found = run(cluster(machine("a", LARGE, app("p", 900))), catalog(LARGE, SMALL))
    (move,) = found.moves
    assert bought(found) == ["m5.large"]
    assert move.saving_picousd_per_hour == 7 * PICOUSD // 10
    assert move.evictions == 1
    # A cent for the eviction, and the new node's price for six minutes.
    assert move.cost_picousd == PICOUSD // 100 + PICOUSD // 100
    assert move.describe() == ("saves $0.7000/h; 1 eviction and the overlap count as $0.02, earned back in 2 minutes")


def test_pods_with_room_elsewhere_move_there_and_the_node_is_deleted() -> None:
    """H31 too: a node without a NodeClaim has room like any other."""
    other = builders.unmanaged_node("other")
    observed = cluster(machine("a", SMALL, app("p", 900)))
    observed = msgspec.structs.replace(observed, nodes=(*observed.nodes, other))
    found = run(observed, catalog(SMALL))
    assert moved(found) == [("a",)]
    assert bought(found) == []


def test_several_nodes_become_fewer_and_each_connected_group_is_a_move_of_its_own() -> None:
    """H13, and more than one new node for several candidates."""
    machines = [machine(name, LARGE, app(f"p-{name}", 900)) for name in "abcd"]
    found = run(cluster(*machines), catalog(LARGE, SMALL))
    assert sorted(name for move in found.moves for name in move.candidates) == ["a", "b", "c", "d"]
    assert set(bought(found)) <= {"m5.large", "m5.4xlarge"}
    price = sum(node.price_picousd_per_hour for move in found.moves for node in move.new_nodes)
    assert price <= 4 * PICOUSD // 10


def test_the_node_with_most_pods_is_the_one_that_stays() -> None:
    """Any two of the three may go for the same saving; they go that evict least."""
    crowded = machine("a", LARGE, *(app(f"p-{number}", 500) for number in range(6)))
    found = run(
        cluster(crowded, machine("b", LARGE, app("b", 500)), machine("c", LARGE, app("c", 500))), catalog(LARGE)
    )
    assert sorted(moved(found)) == [("b",), ("c",)]
    assert bought(found) == []


def worth(found: Consolidation) -> Fraction:
    return sum((move.value_picousd for move in found.moves), start=Fraction(0))


@pytest.mark.parametrize("seed", range(6))
def test_what_is_worth_most_is_no_single_node_and_no_few_nodes_alone(seed: int) -> None:
    """Nor the nodes of least disruption together, which Karpenter tries."""
    dice = Random(f"consolidation/{seed}")
    machines = [
        machine(f"n{number}", kind, *(app(f"p-{number}-{pod}", dice.randrange(100, 900)) for pod in range(count)))
        for number in range(dice.randrange(3, 7))
        for kind, count in [dice.choice(((LARGE, 12), (LARGE, 3), (LARGE, 1), (SMALL, 2), (SMALL, 1), (TINY, 1)))]
    ]
    observed, types = cluster(*machines), catalog(LARGE, SMALL, TINY)
    candidates, _, _ = find_candidates(observed, Plan(), types, locked=NOBODY)
    found = worth(run(observed, types))
    gentle = sorted(candidates, key=lambda candidate: (candidate.disruption_cost, candidate.name))
    alone = [[candidate] for candidate in candidates] + [gentle[:count] for count in range(2, len(gentle) + 1)]
    assert all(worth(judge(observed, Plan(), types, chosen)) <= found for chosen in alone)


def test_room_that_no_pod_fits_into_hardly_counts_in_the_order_of_removal() -> None:
    """Cpu is free on one node and memory on the other, and a pod needs both."""
    of_cpu = machine("a", LARGE, *(app(f"a-{number}", 990) for number in range(16)))
    pods = (builders.pod(f"b-{number}", cpu_millicores=500, memory_bytes=14 * 2**30) for number in range(4))
    observed, types = cluster(of_cpu, machine("b", LARGE, *pods)), catalog(LARGE)
    candidates, _, _ = find_candidates(observed, Plan(), types, locked=NOBODY)
    _, spare, _ = removal_order.build_problem(candidates, observed, types)
    _, divided, _ = removal_order.build_problem(candidates, observed, types, in_whole_pods=False)
    assert all(0 <= 4 * room < whole for room, whole in zip(spare[:2], divided[:2], strict=True))


def test_a_replacement_must_be_cheaper_in_its_worst_offering() -> None:
    """H4: spot from 0.2 to 1.0 beside a node of 0.5."""
    places = ((builders.ZONES[0], 1.0), (builders.ZONES[1], 0.2), (builders.ZONES[2], 0.4))
    offerings = tuple(
        Offering(
            zone, labels.SPOT, int(price * PICOUSD), True,
            from_labels({labels.ZONE: zone, labels.CAPACITY_TYPE: labels.SPOT}),
        )
        for zone, price in places
    )  # fmt: skip
    varied = msgspec.structs.replace(kind("c5.large", 2, 0.9, 0.9), offerings=offerings)
    half = kind("m5.xlarge", 4, 0.5)
    found = run(cluster(machine("a", half, app("p", 900))), catalog(half, varied))
    assert moved(found) == []
    assert reasons(found) == {"a": "Can't replace with a cheaper node"}


def test_what_may_be_spot_or_on_demand_becomes_spot() -> None:
    """H3."""
    both = kind("c5.large", 2, 0.10, 0.03)
    found = run(cluster(machine("a", LARGE, app("p", 900))), catalog(LARGE, both))
    ((new,),) = (move.new_nodes for move in found.moves)
    assert new.capacity_type == labels.SPOT
    (stated,) = [one for one in new.requirements if one.key == labels.CAPACITY_TYPE]
    assert (stated.operator, stated.values) == (Operator.IN, (labels.SPOT,))
    assert new.price_picousd_per_hour == int(0.03 * PICOUSD)


def test_prices_of_a_capacity_type_that_the_pool_does_not_allow_do_not_count() -> None:
    """H39."""
    both = kind("c5.large", 2, 0.40, 0.10)
    half = kind("m5.xlarge", 4, 0.5)
    pool = builders.nodepool(requirements=builders.capacity_types(labels.ON_DEMAND), budgets=(Budget("100%"),))
    observed = cluster(machine("a", half, app("p", 900)), nodepools=(pool,))
    (move,) = run(observed, catalog(half, both)).moves
    assert move.saving_picousd_per_hour == PICOUSD // 10


def test_a_replacement_stays_in_the_zone_that_its_pods_need() -> None:
    """H40."""
    here = _in_zones(kind("c5.large", 2, 0.40), builders.ZONES[:1], 0.40)
    there = _in_zones(kind("c6.large", 2, 0.10), builders.ZONES[1:2], 0.10)
    half = kind("m5.xlarge", 4, 0.5)
    pinned = app("p", 900, node_selector={labels.ZONE: ZONE})
    found = run(cluster(machine("a", half, pinned)), catalog(half, here, there))
    assert bought(found) == ["c5.large"]


def _in_zones(instance_type: InstanceType, zones: Iterable[str], price: float) -> InstanceType:
    offerings = tuple(
        Offering(
            zone, labels.ON_DEMAND, int(price * PICOUSD), True,
            from_labels({labels.ZONE: zone, labels.CAPACITY_TYPE: labels.ON_DEMAND}),
        )
        for zone in zones
    )  # fmt: skip
    stated = [one for one in instance_type.requirements if one.key not in (labels.ZONE, labels.CAPACITY_TYPE)]
    of_place = from_labels({labels.CAPACITY_TYPE: labels.ON_DEMAND})
    places = NodeSelectorRequirement(labels.ZONE, Operator.IN, tuple(zones)).requirement()
    requirements = of_place.intersection([*stated, places])
    return msgspec.structs.replace(instance_type, offerings=offerings, requirements=requirements)


SPOT_LARGE = kind("m5.4xlarge", 16, 0.80, 0.40)


@pytest.mark.parametrize(("cheaper", "gate", "said"), [
    (15, False, "SpotToSpotConsolidation is disabled"),
    (14, True, "requires 15 cheaper instance type options than the current candidate to consolidate, got 14"),
])  # fmt: skip
def test_spot_nodes_need_their_gate_and_fifteen_cheaper_types(cheaper: int, gate: bool, said: str) -> None:
    """H6 and H7."""
    options = [kind(f"c{number}.large", 2, 0.20, 0.05 + number / 1000) for number in range(cheaper)]
    gates = (SPOT_TO_SPOT_CONSOLIDATION,) if gate else ()
    observed = cluster(
        machine("a", SPOT_LARGE, app("p", 900), capacity_type=labels.SPOT), settings=Settings(feature_gates=gates)
    )
    found = run(observed, catalog(SPOT_LARGE, *options))
    assert moved(found) == []
    assert said in reasons(found)["a"]


def test_of_more_cheaper_spot_types_fifteen_are_launched_from() -> None:
    """H9."""
    options = [kind(f"c{number}.large", 2, 0.20, 0.05 + number / 1000) for number in range(18)]
    observed = cluster(
        machine("a", SPOT_LARGE, app("p", 900), capacity_type=labels.SPOT),
        settings=Settings(feature_gates=(SPOT_TO_SPOT_CONSOLIDATION,)),
    )
    ((new,),) = (move.new_nodes for move in run(observed, catalog(SPOT_LARGE, *options)).moves)
    assert new.instance_types == tuple(f"c{number}.large" for number in range(15))


@pytest.mark.parametrize(("least", "sent"), [(16, 16), (10, 15)])
def test_min_values_may_need_more_than_fifteen(least: int, sent: int) -> None:
    """H10."""
    options = [kind(f"c{number}.large", 2, 0.20, 0.05 + number / 1000) for number in range(18)]
    several = NodeSelectorRequirement(labels.INSTANCE_TYPE, Operator.EXISTS, (), least)
    pool = builders.nodepool(requirements=(several,), budgets=(Budget("100%"),))
    observed = cluster(
        machine("a", SPOT_LARGE, app("p", 900), capacity_type=labels.SPOT),
        settings=Settings(feature_gates=(SPOT_TO_SPOT_CONSOLIDATION,)),
        nodepools=(pool,),
    )
    ((new,),) = (move.new_nodes for move in run(observed, catalog(SPOT_LARGE, *options)).moves)
    assert len(new.instance_types) == sent


def test_min_values_that_cheaper_types_do_not_meet_keep_the_node() -> None:
    """H16: no replacement, and no error either."""
    several = NodeSelectorRequirement(labels.INSTANCE_TYPE, Operator.EXISTS, (), 2)
    pool = builders.nodepool(requirements=(several,), budgets=(Budget("100%"),))
    observed = cluster(machine("a", LARGE, app("p", 900)), nodepools=(pool,))
    found = run(observed, catalog(LARGE, SMALL))
    assert moved(found) == []
    assert "minValues 2" in reasons(found)["a"]


def test_a_pod_that_waits_without_a_place_keeps_nobody_from_moving() -> None:
    """H22, the first half."""
    stuck = msgspec.structs.replace(app("stuck", 900_000), unschedulable=True)
    observed = cluster(machine("a", LARGE, app("p", 900)))
    observed = msgspec.structs.replace(observed, pods=(*observed.pods, stuck))
    assert moved(run(observed, catalog(LARGE, SMALL))) == [("a",)]


def test_a_pod_that_would_have_no_place_keeps_its_node_and_only_that() -> None:
    """H22, the second half."""
    bound = app("bound", 900, node_selector={labels.HOSTNAME: "node-a"})
    found = run(cluster(machine("a", LARGE, bound), machine("b", LARGE, app("p", 900))), catalog(LARGE, SMALL))
    assert [name for names in moved(found) for name in names] == ["b"]
    assert "pod default/bound would have no place" in reasons(found)["a"]


def test_a_node_within_its_own_consolidate_after_takes_no_pods() -> None:
    """H21."""
    pool = builders.nodepool(consolidate_after_seconds=7200, budgets=(Budget("100%"),))
    ready = builders.nodepool("ready", budgets=(Budget("100%"),))
    stays = app("q", 900, annotations={labels.DO_NOT_DISRUPT: "true"})
    source, target = machine("a", SMALL, app("p", 900)), machine("b", LARGE, stays)
    about = msgspec.structs.replace(source[0].metadata, labels=source[0].metadata.labels | {labels.NODEPOOL: "ready"})
    claims = (msgspec.structs.replace(source[0], metadata=about), target[0])
    observed = cluster(source, target, nodepools=(pool, ready), nodeclaims=claims)
    only_there = msgspec.structs.replace(observed, pods=tuple(
        msgspec.structs.replace(pod, node_selector={labels.INSTANCE_TYPE: "m5.4xlarge"})
        if pod.metadata.name == "p" else pod
        for pod in observed.pods
    ))  # fmt: skip
    assert moved(run(only_there, catalog(LARGE, SMALL))) == []
    chosen, _, _ = find_candidates(only_there, Plan(), catalog(LARGE, SMALL), locked=NOBODY)
    assert [candidate.name for candidate in chosen] == ["a"]
    assert judge(only_there, Plan(), catalog(LARGE, SMALL), chosen).moves == ()
    later = msgspec.structs.replace(only_there, now=NOW + timedelta(hours=2))
    assert ("a",) in moved(run(later, catalog(LARGE, SMALL)))


def test_evictions_that_cost_more_than_a_day_saves_are_left() -> None:
    slightly = kind("m5a.4xlarge", 16, 0.79)
    pods = [app(f"p-{number}", 300) for number in range(40)]
    found = run(cluster(machine("a", LARGE, *pods)), catalog(LARGE, slightly))
    assert moved(found) == []
    assert reasons(found)["a"] == (
        "Can't replace with a node so much cheaper that it pays: it saves $0.0100/h; 40 evictions and the overlap"
        " count as $0.48, earned back in 2,874 minutes"
    )


def test_a_node_about_to_expire_has_no_time_to_earn_it_back() -> None:
    expiring = machine("a", LARGE, app("p", 900))
    soon = msgspec.structs.replace(expiring[0], expire_after_seconds=3600 + 60)
    observed = cluster((soon, *expiring[1:]))
    assert moved(run(observed, catalog(LARGE, kind("c5.4xlarge", 16, 0.70)))) == []


@pytest.mark.parametrize(("other_pods", "agrees"), [(14, True), (1, False)])
def test_balanced_asks_for_a_saving_in_proportion_to_the_disruption(other_pods: int, agrees: bool) -> None:
    """The node saves an eighth of the pool's price at most; its share of the pool's disruption decides."""
    pool = builders.nodepool(consolidation_policy="Balanced", budgets=(Budget("100%"),))
    slightly = kind("c5.4xlarge", 16, 0.60)
    selector = {labels.ARCH: "amd64"}
    mine = [app(f"m-{number}", 3800, node_selector=selector) for number in range(4)]
    guard = {labels.DO_NOT_DISRUPT: "true"}
    others = [app(f"o-{number}", 900, annotations=guard) for number in range(other_pods)]
    observed = cluster(machine("a", LARGE, *mine), machine("b", LARGE, *others), nodepools=(pool,))
    found = run(observed, catalog(LARGE, slightly))
    assert (("a",) in moved(found)) == agrees
    if not agrees:
        assert "consolidationPolicy Balanced: it saves 12.5% of the price of NodePool default" in reasons(found)["a"]


def test_budgets_and_gates_bound_the_candidates() -> None:
    machines = [machine(name, LARGE, app(f"p-{name}", 900)) for name in "abc"]
    pool = builders.nodepool(budgets=(Budget("1"),))
    found = run(cluster(*machines, nodepools=(pool,)), catalog(LARGE, SMALL))
    assert len(moved(found)) == 1
    assert sorted(refusal.reason for refusal in found.blocked) == 2 * [
        "the budgets of NodePool default allow no further disruption"
    ]


def test_the_price_of_a_node_is_known_also_where_nothing_is_left_of_its_offering() -> None:
    """H42."""
    gone = msgspec.structs.replace(
        LARGE, offerings=tuple(msgspec.structs.replace(each, available=False) for each in LARGE.offerings)
    )
    nodeclaim = machine("a", LARGE)[0]
    assert node_price(nodeclaim, catalog(gone)) == int(0.8 * PICOUSD)
    assert node_price(nodeclaim, catalog(SMALL)) is None


def test_a_node_whose_type_is_not_known_is_not_compared() -> None:
    found = run(cluster(machine("a", LARGE, app("p", 900))), catalog(SMALL))
    assert moved(found) == []
    assert 'instance type "m5.4xlarge" has no known price' in reasons(found)["a"]


def test_of_many_nodes_that_pay_each_by_itself_all_and_half_of_them_are_tried_and_no_more() -> None:
    asked = list[None]()

    def has_time() -> bool:
        asked.append(None)
        return True

    machines = [machine(f"n{number:02}", LARGE, app(f"p-{number}", 900)) for number in range(24)]
    found = consolidate(cluster(*machines), Plan(), catalog(LARGE, SMALL), locked=NOBODY, has_time=has_time)
    assert len({name for move in found.moves for name in move.candidates}) == 24
    assert len(asked) == 2


def test_without_time_nothing_is_tried() -> None:
    observed = cluster(machine("a", LARGE, app("p", 900)))
    found = consolidate(observed, Plan(), catalog(LARGE, SMALL), locked=NOBODY, has_time=lambda: False)
    assert found.moves == ()


def test_without_time_to_judge_nothing_goes() -> None:
    observed, types = cluster(machine("a", LARGE, app("p", 900))), catalog(LARGE, SMALL)
    chosen, _ = still_allowed(observed, Plan(), types, {"a": "a"}, locked=NOBODY)
    assert moved(judge(observed, Plan(), types, chosen)) == [("a",)]
    found = judge(observed, Plan(), types, chosen, has_time=lambda: False)
    assert moved(found) == []
    assert reasons(found) == {"a": "no time was left to plan for its pods; tried again later"}


def test_what_was_chosen_is_judged_alike_on_the_snapshot_that_is_stored() -> None:
    machines = [machine(name, LARGE, app(f"p-{name}", 900 * number)) for number, name in enumerate("abc", 1)]
    types = catalog(LARGE, SMALL, TINY)
    found = run(cluster(*machines), types)
    assert found.snapshot is not None
    names = [name for move in found.moves for name in move.candidates]
    assert judge_again(found.snapshot, types, names) == (found.plan, ())


def test_a_candidate_with_another_uid_is_not_the_one_that_was_proposed() -> None:
    observed, types = cluster(machine("a", LARGE, app("p", 900))), catalog(LARGE, SMALL)
    allowed, kept = still_allowed(observed, Plan(), types, {"a": "a"}, locked=NOBODY)
    assert ([candidate.name for candidate in allowed], kept) == (["a"], [])
    assert still_allowed(observed, Plan(), types, {"a": "another"}, locked=NOBODY) == ([], [])
    assert judge(observed, Plan(), types, ()).moves == ()


def test_those_that_may_not_go_any_more_say_why() -> None:
    kept = app("p-c", 900, annotations={labels.DO_NOT_DISRUPT: "true"})
    machines = [machine("a", LARGE, app("p-a", 900)), machine("b", LARGE), machine("c", LARGE, kept)]
    machines += [machine(name, LARGE, *(app(f"p-{name}-{number}", 90) for number in range(3))) for name in "de"]
    machines += [machine("f", LARGE, app("p-f", 900))]
    observed = cluster(*machines)
    going = tuple(
        msgspec.structs.replace(claim, metadata=msgspec.structs.replace(claim.metadata, deletion_timestamp=NOW))
        if claim.name == "f"
        else claim
        for claim in observed.nodeclaims
    )
    observed = msgspec.structs.replace(observed, nodeclaims=going)
    uids = {name: name for name in "abcdef"} | {"gone": "gone"}
    allowed, stays = still_allowed(
        observed, Plan(), catalog(LARGE, SMALL), uids, locked=frozenset({"e"}), most_evictions=2
    )
    assert [candidate.name for candidate in allowed] == ["a"]
    assert {blocked.claim: blocked.reason for blocked in stays} == {
        "b": "no pod of the node needs another one any more",
        "c": "pod has the karpenter.sh/do-not-disrupt annotation (Pod=default/p-c)",
        "d": "no more than 2 evictions may be made for the sake of price",
        "e": "another disruption or an interruption notice holds the node",
        "f": "node is deleting or marked for deletion",
    }


def test_the_total_never_rises_whatever_is_moved() -> None:
    machines = [
        machine(f"n{number}", (LARGE, SMALL)[number % 2], app(f"p-{number}", 300 + 150 * number)) for number in range(9)
    ]
    found = run(cluster(*machines), catalog(LARGE, SMALL, TINY))
    assert found.moves
    for move in found.moves:
        after = sum(new.price_picousd_per_hour for new in move.new_nodes)
        assert after + move.saving_picousd_per_hour == move.price_picousd_per_hour
        assert move.value_picousd > Fraction(0)
