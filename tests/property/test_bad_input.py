"""Whatever a manifest holds: a plan that names what is wrong, or an error that does; never a crash, never a hang."""

import contextlib
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from spotwright.adapters.kubernetes.codecs.pod import decode_pod
from spotwright.cli import InputError
from spotwright.cli.inputs.builtin_catalog import load_builtin_catalog
from spotwright.cli.inputs.documents import Document, Documents
from spotwright.cli.inputs.manifest_snapshot import decode_snapshot
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.scheduling.pod_planner import plan_pods
from tests.unit.scheduling.builders import TYPES

POOL = {
    "kind": "NodePool",
    "metadata": {"name": "default"},
    "spec": {"template": {"spec": {"requirements": [], "nodeClassRef": {"name": "default"}}}},
}
FINE = {"kind": "Pod", "metadata": {"name": "fine"}, "spec": {"containers": [{"name": "app"}]}}


def made(*objects: Any) -> Plan:
    snapshot: Snapshot = decode_snapshot(Documents(tuple(Document("m.yaml", one) for one in objects)))
    return plan_pods(snapshot, Catalog({"": TYPES}))


def seated(plan: Plan) -> list[str]:
    """Every pod that got a node."""
    new = [key for node in plan.new_nodes for key in node.pods]
    return new + [key for node in plan.existing_nodes for key in node.pods]


def answered(plan: Plan) -> dict[str, str]:
    """Reason by pod; a pod that is placed has none."""
    refused = {
        unplaced_pod.pod: "; ".join(unplaced_pod.reasons)
        for unplaced_pod in (*plan.unschedulable_pods, *plan.ignored_pods)
    }
    placed = seated(plan)
    assert len(placed) == len(set(placed))
    assert not set(placed) & set(refused)
    return refused


def pod(spec: Any, name: str = "bad", **metadata: Any) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": name, **metadata}, "spec": spec}


def requesting(**requests: Any) -> dict[str, Any]:
    return {"containers": [{"name": "app", "resources": {"requests": requests}}]}


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        (requesting(cpu="one"), "container app: resources.requests.cpu: 'one' is not a Kubernetes quantity"),
        (requesting(cpu="-1"), "container app: resources.requests.cpu: '-1' is negative"),
        (requesting(memory="100E"), "out of range"),
        (requesting(memory="1e999"), "out of range"),
        (requesting(memory="1e9999"), "is not a Kubernetes quantity"),
        ({"containers": requesting(memory="9E")["containers"] * 2}, "more memory together than 2^63-1"),
        ({"overhead": {"cpu": "x"}, "containers": []}, "spec.overhead.cpu: 'x'"),
        ({"nodeSelector": {"a b": "c"}, "containers": []}, "'a b' is not a label key"),
        ({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "z"}]}, "[0].maxSkew: 0"),
        ({"topologySpreadConstraints": [{"maxSkew": 1}]}, "[0].topologyKey is empty"),
        (
            {"topologySpreadConstraints": [{"topologyKey": "z", "whenUnsatisfiable": "Never"}]},
            "whenUnsatisfiable: 'Never' is not one of DoNotSchedule, ScheduleAnyway",
        ),
        (
            {
                "affinity": {
                    "podAntiAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": [
                            {
                                "topologyKey": "z",
                                "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Near"}]},
                            }
                        ]
                    }
                }
            },
            "labelSelector.matchExpressions[0].operator: 'Near' is not one of In, NotIn, Exists, DoesNotExist",
        ),
        ({"containers": "many"}, "malformed"),
        ({"containers": [None]}, "malformed"),
        ("text", "malformed"),
    ],
)
def test_a_pod_that_means_nothing_is_named_and_the_others_are_planned(spec: Any, named: str) -> None:
    reasons = answered(made(POOL, FINE, pod(spec)))
    assert set(reasons) == {"default/bad"}
    assert named in reasons["default/bad"]


KINDS = (
    *("NodePool", "Node", "NodeClaim", "DaemonSet", "NodeOverlay", "StorageClass", "Deployment", "CronJob"),
    *("PersistentVolume", "PersistentVolumeClaim", "PriorityClass", "CSINode"),
)
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(max_size=8) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
QUANTITIES = st.sampled_from(
    ["1", "100m", "-1", "9E", "1e300", "1e-300", "", "0", "NaN", "1Gi", "99999999999999999999"]
)
KEYS = st.sampled_from(["zone", "topology.kubernetes.io/zone", "kubernetes.io/hostname", "a/b/c", "", "karpenter.sh/x"])
VALUES = st.lists(st.sampled_from(["z1", "z2", "-", "1", "99999999999999999999999"]), max_size=3)
EXPRESSIONS = st.lists(
    st.fixed_dictionaries(
        {
            "key": KEYS,
            "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Near"]),
        },
        optional={"values": VALUES},
    ),
    max_size=3,
)
SELECTORS = st.fixed_dictionaries({}, optional={"matchLabels": st.just({"app": "a"}), "matchExpressions": EXPRESSIONS})
RULE = st.fixed_dictionaries(
    {"topologyKey": KEYS},
    optional={"labelSelector": SELECTORS, "namespaceSelector": SELECTORS, "maxSkew": st.integers(-1, 3)},
)
# Far more than these need; what the search itself may use is 30,000.
UNITS_OF_A_PLAN = 200_000
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SPECS = st.fixed_dictionaries(
    {"containers": st.lists(st.fixed_dictionaries({"resources": st.fixed_dictionaries({
        "requests": st.dictionaries(st.sampled_from(["cpu", "memory", "pods", "x.io/y"]), QUANTITIES, max_size=3)
    })}), max_size=2)},
    optional={
        "nodeSelector": st.dictionaries(KEYS, st.sampled_from(["z1", "a b", ""]), max_size=2),
        "affinity": st.fixed_dictionaries(
            {},
            optional={
                "nodeAffinity": st.fixed_dictionaries(
                    {REQUIRED: st.fixed_dictionaries(
                        {"nodeSelectorTerms": st.lists(st.fixed_dictionaries({"matchExpressions": EXPRESSIONS}))}
                    )}
                ),
                "podAffinity": st.fixed_dictionaries({REQUIRED: st.lists(RULE, max_size=2)}),
                "podAntiAffinity": st.fixed_dictionaries({REQUIRED: st.lists(RULE, max_size=2)}),
            },
        ),
        "topologySpreadConstraints": st.lists(RULE, max_size=2),
        "tolerations": st.lists(st.fixed_dictionaries({"operator": st.sampled_from(["Exists", "Equal", "Gt", "?"])})),
    },
)  # fmt: skip


@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(SPECS, max_size=4))
def test_every_pod_is_answered(specs: list[Any]) -> None:
    objects = [pod(spec, f"p{number}", labels={"app": "a"}) for number, spec in enumerate(specs)]
    plan = made(POOL, FINE, *objects)
    refused = answered(plan)
    placed = set(seated(plan))
    assert placed | set(refused) == {f"default/p{number}" for number in range(len(specs))} | {"default/fine"}
    assert all(refused.values())


@settings(max_examples=80, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["spec", "status"]), JUNK | st.dictionaries(
    st.sampled_from(["containers", "affinity", "tolerations", "nodeSelector", "nodeName", "conditions", "volumes",
                     "topologySpreadConstraints", "priority", "overhead"]), JUNK)))  # fmt: skip
def test_reading_a_pod_never_raises(parts: Any) -> None:
    assert decode_pod({"metadata": {"name": "p"}, **parts}).key == "default/p"


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(KINDS), JUNK, JUNK)
def test_any_object_is_planned_or_named(kind: str, spec: Any, status: Any) -> None:
    with contextlib.suppress(InputError):
        made(POOL, FINE, {"kind": kind, "metadata": {"name": "odd"}, "spec": spec, "status": status})


def test_ten_thousand_labels_are_no_hindrance() -> None:
    labels = {f"label-{number}": str(number) for number in range(10_000)}
    spread = {"topologyKey": "kubernetes.io/hostname", "maxSkew": 1, "labelSelector": {"matchLabels": {"label-7": "7"}}}
    objects = [pod({"topologySpreadConstraints": [spread]}, f"p{number}", labels=labels) for number in range(3)]
    assert not answered(made(POOL, *objects))


def test_a_cycle_of_affinities_is_answered() -> None:
    def near(app: str, other: str) -> dict[str, Any]:
        term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": other}}}
        return pod({"affinity": {"podAffinity": {REQUIRED: [term]}}}, app, labels={"app": app})

    reasons = answered(made(POOL, FINE, near("a", "b"), near("b", "c"), near("c", "a")))
    assert set(reasons) == {"default/a", "default/b", "default/c"}


@pytest.mark.parametrize("key", ["kubernetes.io/hostname", "topology.kubernetes.io/zone"])
def test_a_long_chain_of_affinities_is_answered(key: str) -> None:
    """Each pod wants the next one beside it, and the last one the first."""

    def near(app: int, other: int) -> dict[str, Any]:
        term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": f"a{other}"}}}
        return pod({"affinity": {"podAffinity": {REQUIRED: [term]}}}, f"p{app}", labels={"app": f"a{app}"})

    plan = made(POOL, FINE, *(near(number, (number + 1) % 60) for number in range(60)))
    assert len(answered(plan)) + len(seated(plan)) == 61
    assert plan.work_units < UNITS_OF_A_PLAN


def test_ten_thousand_domains_are_answered() -> None:
    """A spread over a label that has another value on each of many nodes."""
    room = {"cpu": "1", "memory": "4Gi", "pods": "10"}
    nodes = [
        {
            "kind": "Node",
            "metadata": {"name": f"n{number}", "labels": {"rack": f"r{number}"}},
            "spec": {"providerID": f"aws:///z1/i-{number}"},
            "status": {"allocatable": room, "capacity": room},
        }
        for number in range(10_000)
    ]
    spread = {"topologyKey": "rack", "maxSkew": 1, "labelSelector": {"matchLabels": {"app": "a"}}}
    several = [pod({"topologySpreadConstraints": [spread]}, f"p{number}", labels={"app": "a"}) for number in range(5)]
    plan = made(POOL, *nodes, *several)
    assert not answered(plan)
    assert plan.work_units < UNITS_OF_A_PLAN


def test_spreads_over_labels_that_depend_on_each_other_are_answered() -> None:
    """Types, families, sizes and amounts of memory have millions of combinations, of which hardly any exists."""
    keys = ("node.kubernetes.io/instance-type", *(f"karpenter.k8s.aws/instance-{name}" for name in ("family", "size")),
            "karpenter.k8s.aws/instance-memory", "topology.kubernetes.io/zone")  # fmt: skip
    own = {"matchLabels": {"app": "a"}}
    spreads = [
        {"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": own} for key in keys
    ]
    objects = (POOL, pod({"containers": [{"name": "app"}], "topologySpreadConstraints": spreads}, labels={"app": "a"}))
    snapshot = decode_snapshot(Documents(tuple(Document("m.yaml", one) for one in objects)))
    assert seated(plan_pods(snapshot, load_builtin_catalog())) == ["default/bad"]


def test_many_volumes_that_may_be_in_several_zones_each_are_answered() -> None:
    zones = [[{"key": "topology.kubernetes.io/zone", "values": [zone]}] for zone in ("z1", "z2", "z3")]
    topologies = [{"matchLabelExpressions": expressions} for expressions in zones]
    claims = [{"kind": "PersistentVolumeClaim", "metadata": {"name": f"c{n}"}, "spec": {"storageClassName": "zonal"}}
              for n in range(24)]  # fmt: skip
    zonal = {"kind": "StorageClass", "metadata": {"name": "zonal"}, "provisioner": "ebs.csi.aws.com",
             "volumeBindingMode": "WaitForFirstConsumer", "allowedTopologies": topologies}  # fmt: skip
    volumes = [{"name": f"v{n}", "persistentVolumeClaim": {"claimName": f"c{n}"}} for n in range(24)]
    assert answered(made(POOL, FINE, zonal, *claims, pod({"volumes": volumes}))).keys() <= {"default/bad"}


@pytest.mark.parametrize("least", [0, -1, 51, 10**6, 2**70, "3", True, 1.5])
def test_an_absurd_min_values_is_a_reason_or_an_error(least: Any) -> None:
    asked = {"key": "node.kubernetes.io/instance-type", "operator": "Exists", "minValues": least}
    pool = {
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": {"spec": {"requirements": [asked], "nodeClassRef": {"name": "default"}}}},
    }
    with contextlib.suppress(InputError):
        reasons = answered(made(pool, FINE))
        assert not reasons or "minValues" in reasons["default/fine"]


@pytest.mark.parametrize("spec", [1, {"replicas": 10**9}, {"replicas": "many"}, {"template": {"metadata": 1}}])
def test_a_workload_that_means_nothing_is_named(spec: Any) -> None:
    with pytest.raises(InputError, match=r"m\.yaml: .*(Deployment|many)"):
        made(POOL, {"kind": "Deployment", "metadata": {"name": "odd"}, "spec": spec})
