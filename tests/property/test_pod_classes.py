"""Pods planned as groups and the same pods planned one by one: what may differ, and what may not.

Each pod gets a toleration of a taint that nobody has. That makes it a class of its own, so that everything done for a
group is done pod by pod, and changes nothing else.
"""

from collections import Counter

import msgspec
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from spotwright.model.kubernetes.taints import Toleration
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from tests.property.plans import clusters, left, planned, unlimited
from tests.unit.scheduling.builders import TYPES

ONE_BY_ONE = settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])


def singly(cluster: Snapshot) -> Snapshot:
    """The cluster with every pod a class of its own."""
    return msgspec.structs.replace(
        cluster,
        pods=tuple(
            msgspec.structs.replace(pod, tolerations=(*pod.tolerations, Toleration(f"nobody-{number}", "Exists")))
            for number, pod in enumerate(cluster.pods)
        ),
    )


@ONE_BY_ONE
@given(clusters)
def test_a_group_leaves_as_many_pods_as_its_pods_alone_would(cluster: Snapshot) -> None:
    free = unlimited(cluster)
    assert left(planned(free)) == left(planned(singly(free)))


@ONE_BY_ONE
@given(clusters)
def test_groups_cost_at_most_one_small_node_more_than_single_pods(cluster: Snapshot) -> None:
    """The search is bounded, so the two may end on different sides of the cheapest plan, but not far from it."""
    free = unlimited(cluster)
    grouped, single = planned(free), planned(singly(free))
    assume(left(grouped) == left(single))
    dearest = max(offering.price_picousd_per_hour for type_ in TYPES for offering in type_.offerings)
    assert grouped.price_picousd_per_hour <= single.price_picousd_per_hour + dearest


@ONE_BY_ONE
@given(clusters, st.data())
def test_names_of_equal_pods_mean_nothing(cluster: Snapshot, data: st.DataObject) -> None:
    """Pods of one deployment may swap names: the same shapes are bought, with as many pods on each."""
    numbers = data.draw(st.permutations(range(len(cluster.pods))))
    renamed = msgspec.structs.replace(
        cluster,
        pods=tuple(
            msgspec.structs.replace(
                pod,
                metadata=msgspec.structs.replace(
                    pod.metadata, name=f"{pod.metadata.labels['app']}-x{number:03}", uid=str(number)
                ),
            )
            for number, pod in zip(numbers, cluster.pods, strict=True)
        ),
    )
    assert _shapes(planned(renamed)) == _shapes(planned(cluster))


def _shapes(plan: Plan) -> Counter[tuple[str, tuple[str, ...], tuple[tuple[str, int], ...]]]:
    return Counter(
        (
            new_node.nodepool,
            new_node.instance_types,
            tuple(sorted(Counter(pod.rpartition("-")[0] for pod in new_node.pods).items())),
        )
        for new_node in plan.new_nodes
    )
