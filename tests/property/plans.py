"""Small clusters of every kind, for laws of plans."""

from collections import Counter
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm, TopologySpreadConstraint
from spotwright.model.kubernetes.taints import Taint, Toleration
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.scheduling.pod_planner import plan_pods
from tests.unit.scheduling.builders import TYPES, daemonset, node, pod, pool, snapshot, zone_is

CATALOG = Catalog({"": TYPES})
BATCH = Taint("dedicated", "NoSchedule", "batch")

# A plan takes its time: fewer examples than of other laws.
LAWS = settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])


@st.composite
def deployments(draw: st.DrawFn) -> tuple[Pod, ...]:
    """Equal pods of one deployment, some with demands, some with rules about each other."""
    app = f"app-{draw(st.integers(0, 10**9))}"
    mine = (NodeSelectorRequirement("app", "In", (app,)),)
    fields: dict[str, Any] = draw(
        st.sampled_from(
            (
                {},
                {},
                {"node_selector": {labels.ZONE: "z2"}},
                {"node_selector": {labels.CAPACITY_TYPE: labels.ON_DEMAND}},
                {"tolerations": (Toleration("dedicated", "Exists"),)},
                {"node_affinity": ((zone_is("z1", "z3"),),)},
                {"topology_spread_constraints": (TopologySpreadConstraint(labels.ZONE, 1, mine),)},
                {"topology_spread_constraints": (TopologySpreadConstraint(labels.HOSTNAME, 1, mine),)},
                {"pod_anti_affinity": (PodAffinityTerm(labels.HOSTNAME, mine, ("default",)),)},
                {"pod_affinity": (PodAffinityTerm(labels.ZONE, mine, ("default",)),)},
            )
        )
    )
    cpu = draw(st.sampled_from(("50m", "250m", "1", "1900m", "3", "7", "9")))
    memory = draw(st.sampled_from(("64Mi", "500Mi", "1Gi", "3Gi", "14Gi")))
    count = draw(st.integers(1, 6))
    return tuple(pod(f"{app}-{n}", cpu, memory, labels={"app": app}, **fields) for n in range(count))


pools = st.lists(
    st.sampled_from(
        (
            pool("plain"),
            pool("heavy", weight=10),
            pool("limited", weight=5, limits={"cpu": "12"}),
            pool("few", limits={"nodes": "2"}),
            pool("tainted", taints=(BATCH,), weight=20),
            pool("on-demand", NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.ON_DEMAND,))),
        )
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda nodepool: nodepool.name,
)
clusters: st.SearchStrategy[Snapshot] = st.builds(
    lambda groups, pools_, nodes, daemons: snapshot(
        *(one for group in groups for one in group),
        pools=pools_,
        nodes=tuple(node(f"n{number}", cpu) for number, cpu in enumerate(nodes)),
        daemonsets=tuple(daemonset(f"d{number}") for number in range(daemons)),
    ),
    st.lists(deployments(), min_size=1, max_size=5, unique_by=lambda group: group[0].metadata.labels["app"]),
    pools,
    st.lists(st.sampled_from((1, 2, 4)), max_size=3),
    st.integers(0, 2),
)


def planned(cluster: Snapshot, catalog: Catalog = CATALOG) -> Plan:
    return plan_pods(cluster, catalog)


def left(plan: Plan) -> Counter[str]:
    """Pods without a place by their deployment; which of equal pods they are means nothing."""
    return Counter(unplaced_pod.pod.rpartition("-")[0] for unplaced_pod in plan.unschedulable_pods)


def unlimited(cluster: Snapshot) -> Snapshot:
    """Without limits: where pods compete for the last node of a pool, whoever is packed first gets it."""
    pools = tuple(msgspec.structs.replace(nodepool, limits={}) for nodepool in cluster.nodepools)
    return msgspec.structs.replace(cluster, nodepools=pools)
