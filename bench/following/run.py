"""One batch played in one way against a real kube-scheduler."""

import copy
import random
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from bench.following.workloads import RUN_LABEL
from local.kubernetes.api import ApiError
from local.kubernetes.control_plane import KUBELET_LABEL, ControlPlane
from spotwright.adapters.kubernetes.codecs.node import decode_node
from spotwright.adapters.kubernetes.codecs.nodepool import decode_nodepool_strict
from spotwright.adapters.kubernetes.codecs.pod import decode_pod
from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import PICOUSD, Catalog, InstanceType
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import NewNode, Plan
from spotwright.scheduling.pod_planner import plan_pods

type Json = dict[str, Any]

HOLD: Final = {"key": "spotwright.dev/held", "effect": "NoSchedule"}
BOOT_SECONDS: Final = (5.0, 20.0)
READY_SECONDS: Final = (3.0, 8.0)
LOOK_SECONDS: Final = 0.5
# kube-scheduler tries a pod again after 10 s at the latest when something changed; twice that, and a busy machine.
SETTLED_SECONDS: Final = 25.0
PATIENCE_SECONDS: Final = 180.0
TICK_SECONDS: Final = 3.0
AT_ONCE: Final = 8


@dataclass(frozen=True, slots=True)
class Variant:
    """How kube-scheduler is helped. ``nominate``: "" | planned | registered | ready; ``hold``: "" | node | batch;
    ``repeats``: what kube-scheduler took back is nominated again, at once and every TICK_SECONDS."""

    name: str
    nominate: str = ""
    hold: str = ""
    repeats: bool = False


@dataclass(frozen=True, slots=True)
class RunResult:
    """``unbound``: pods without a node at the end; ``extra_price``: dollars an hour to place them; ``empty``: unused
    nodes; ``waits``: seconds from the plan until each pod was bound."""

    pods: int
    nodes: int
    price: float
    elsewhere: int
    unbound: int
    empty: int
    extra_price: float
    waits: tuple[float, ...]


@dataclass(slots=True)
class Machine:
    """A node of the plan on its way. Times are seconds after the plan."""

    name: str
    node: NewNode
    type: InstanceType
    zone: str
    boots: float
    ready: float
    phase: str = "booting"


class Run:
    """``name``: of this play, unlike any other; ``reaction``: seconds until we act on a node that turned Ready."""

    def __init__(
        self, plane: ControlPlane, way: Variant, *, name: str, pool: Json, catalog: Catalog, reaction: float
    ) -> None:
        self._api, self._way, self._name, self._catalog, self._reaction = plane.api, way, name, catalog, reaction
        self._pool = copy.deepcopy(pool)
        self._pool["spec"]["template"]["metadata"] = {"labels": {RUN_LABEL: name}}
        self._pods_path = f"/api/v1/namespaces/{name}/pods"
        self._machines: list[Machine] = []
        self._bound: dict[str, tuple[str, float]] = {}
        self._threads = ThreadPoolExecutor(AT_ONCE)

    def run(self, pods: Sequence[Json], seed: int, together: threading.Barrier) -> RunResult:
        """Play; ``together`` is passed when the plan is made, so that all ways start at the same time."""
        self._create(pods)
        plan = self._plan()
        self._machines = list(self._ordered(plan, random.Random(seed)))
        together.wait(PATIENCE_SECONDS)
        planned = {key.partition("/")[2]: machine.name for machine in self._machines for key in machine.node.pods}
        bound = self._watch(planned)
        extra = self._plan() if len(bound) < len(planned) else Plan()
        hosts = {node for node, _ in bound.values()}
        return RunResult(
            pods=len(planned),
            nodes=len(self._machines),
            price=plan.price_picousd_per_hour / PICOUSD,
            elsewhere=sum(1 for pod, (node, _) in bound.items() if planned[pod] != node),
            unbound=len(planned) - len(bound),
            empty=len(self._machines) - len(hosts),
            extra_price=extra.price_picousd_per_hour / PICOUSD,
            waits=tuple(second for _, second in bound.values()),
        )

    def clean(self) -> None:
        for machine in self._machines:
            self._api.delete(f"/api/v1/nodes/{machine.name}")
        self._api.delete(self._pods_path, {"gracePeriodSeconds": 0})
        self._api.delete(f"/api/v1/namespaces/{self._name}")
        self._threads.shutdown()

    def _create(self, pods: Sequence[Json]) -> None:
        self._api.create("/api/v1/namespaces", {"metadata": {"name": self._name}})
        account = f"/api/v1/namespaces/{self._name}/serviceaccounts/default"
        while self._api.find(account) is None:
            time.sleep(0.1)
        for pod in pods:
            self._api.create(
                self._pods_path, copy.deepcopy(pod) | {"spec": pod["spec"] | {"nodeSelector": {RUN_LABEL: self._name}}}
            )
        while not all(pod.unschedulable for pod in map(decode_pod, self._api.get(self._pods_path)["items"])):
            time.sleep(0.2)

    def _plan(self) -> Plan:
        """For the pods that wait now, on the nodes that are there."""
        pool = decode_nodepool_strict(self._pool | {"status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        nodes = self._api.get("/api/v1/nodes", labelSelector=f"{RUN_LABEL}={self._name}")["items"]
        snapshot = Snapshot(
            cluster="bench",
            now=datetime.now(UTC),
            pods=tuple(map(decode_pod, self._api.get(self._pods_path)["items"])),
            nodes=tuple(map(decode_node, nodes)),
            nodepools=(pool,),
        )
        return plan_pods(snapshot, self._catalog)

    def _ordered(self, plan: Plan, chance: random.Random) -> Iterator[Machine]:
        """The plan's nodes, each the cheapest of its types in one of its zones."""
        types = {instance_type.name: instance_type for instance_type in self._catalog.instance_types("")}
        for number, node in enumerate(plan.new_nodes):
            boots = chance.uniform(*BOOT_SECONDS)
            zone = chance.choice(sorted(node.zones))
            yield Machine(
                f"{self._name}-n{number}", node, types[node.instance_types[0]], zone, boots,
                boots + chance.uniform(*READY_SECONDS),
            )  # fmt: skip

    def _watch(self, planned: dict[str, str]) -> dict[str, tuple[str, float]]:
        """Let machines join until every pod is bound or nothing changes any more; pod → (node, second)."""
        started = changed = time.monotonic()
        bound = self._bound
        if self._way.nominate == "planned":
            for machine in self._machines:
                self._nominate(machine)
        while len(bound) < len(planned) and time.monotonic() - started < PATIENCE_SECONDS:
            now = time.monotonic() - started
            steps = [self._advance(machine, now) for machine in self._machines]
            if any(steps):
                changed = time.monotonic()
            self._release(now)
            for pod in self._api.get(self._pods_path)["items"]:
                node, name = pod["spec"].get("nodeName"), pod["metadata"]["name"]
                if node and name not in bound:
                    bound[name] = (node, now)
                    changed = time.monotonic()
            if (
                all(machine.phase == "up" for machine in self._machines)
                and time.monotonic() - changed > SETTLED_SECONDS
            ):
                break
            time.sleep(LOOK_SECONDS)
        return bound

    def _advance(self, machine: Machine, now: float) -> bool:
        """The machine's next step, when it is time; True when it took one."""
        before = machine.phase
        if machine.phase == "booting" and now >= machine.boots:
            self._register(machine)
            machine.phase = "registered"
            if self._way.nominate == "registered":
                self._nominate(machine)
        elif machine.phase == "registered" and now >= machine.ready:
            self._api.patch(f"/api/v1/nodes/{machine.name}", {"metadata": {"labels": {KUBELET_LABEL: "kwok"}}})
            machine.phase = "ready"
            machine.ready = now + self._reaction
        return machine.phase != before

    def _release(self, now: float) -> None:
        """What we do about nodes that are Ready: at once, or when the whole batch is."""
        waiting = [
            machine
            for machine in self._machines
            if machine.phase == "ready" and now >= machine.ready and self._is_ready(machine)
        ]
        if self._way.hold == "batch" and len(waiting) < len(self._machines):
            return
        for machine in waiting:
            if self._way.nominate == "ready":
                self._nominate(machine)
            if self._way.hold == "node":
                self._lift(machine)
        if self._way.hold == "batch":
            list(self._threads.map(self._lift, waiting))
        for machine in waiting:
            machine.phase, machine.ready = "up", now
        for machine in self._machines:
            if self._way.repeats and machine.phase == "up" and now >= machine.ready:
                self._nominate(machine)
                machine.ready = now + TICK_SECONDS

    def _is_ready(self, machine: Machine) -> bool:
        """Ready, and without any taint but ours."""
        node = self._api.get(f"/api/v1/nodes/{machine.name}")
        return (
            all(taint["key"] == HOLD["key"] for taint in node["spec"].get("taints") or ())
            and decode_node(node).is_ready
        )

    def _register(self, machine: Machine) -> None:
        amounts = resources.text(machine.type.allocatable)
        known = {labels.HOSTNAME: machine.name, labels.ZONE: machine.zone, labels.INSTANCE_TYPE: machine.type.name}
        known |= {labels.ARCH: "amd64", labels.OS: "linux", RUN_LABEL: self._name}
        not_ready = {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
        self._api.create(
            "/api/v1/nodes",
            {
                "metadata": {"name": machine.name, "labels": machine.node.labels | known},
                "spec": {"taints": [HOLD] if self._way.hold else []},
                "status": {"capacity": amounts, "allocatable": amounts, "conditions": [not_ready]},
            },
        )

    def _lift(self, machine: Machine) -> None:
        node = self._api.get(f"/api/v1/nodes/{machine.name}")
        kept = [taint for taint in node["spec"].get("taints") or () if taint["key"] != HOLD["key"]]
        self._api.patch(f"/api/v1/nodes/{machine.name}", {"spec": {"taints": kept}})

    def _nominate(self, machine: Machine) -> None:
        """Only pods that are not bound and not nominated already."""
        open_keys = [key for key in machine.node.pods if key.partition("/")[2] not in self._bound]
        list(self._threads.map(lambda key: self._nominate_pod(key, machine.name), open_keys))

    def _nominate_pod(self, key: str, node: str) -> None:
        path = f"{self._pods_path}/{key.partition('/')[2]}/status"
        wanted = [
            {"op": "test", "path": "/spec/nodeName", "value": None},
            {"op": "test", "path": "/status/nominatedNodeName", "value": None},
            {"op": "add", "path": "/status/nominatedNodeName", "value": node},
        ]
        try:
            self._api.patch(path, wanted, kind="json-patch+json")
        except ApiError as error:
            if error.status != 422:
                raise
