"""A whole cluster in virtual time: fakes of everything outside, and the functions invoked as on AWS.

Invocations come from doorbells with their delays, from schedules, and from EventBridge's messages. Doorbells for what
changes in the cluster come from a forwarder.
"""

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Final

from spotwright.errors import ApiError
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Settings
from spotwright.simulation import builders
from spotwright.simulation.clock import Clock
from spotwright.simulation.cluster import FakeCluster
from spotwright.simulation.cluster_state import FakeClusterState
from spotwright.simulation.ec2 import FakeEc2
from spotwright.simulation.effects import Effects
from spotwright.simulation.forwarder import ForwarderOfEveryChange, MakeForwarder
from spotwright.simulation.kubelets import Kubelets, replacement_pod
from spotwright.simulation.outages import PortsWithOutages
from spotwright.simulation.state import FakeBlobs, FakeCatalogs, FakeDoorbells, FakeState
from spotwright.workflows.disrupt.workflow import disrupt
from spotwright.workflows.interrupt import interrupt
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.provision.workflow import provision, unserved_request
from spotwright.workflows.sweep.workflow import sweep

MINUTE: Final = 60
# Functions that still ring for each other after so many rounds at the same time would do so for ever.
MAX_ROUNDS: Final = 100


class FakeOtherProvisioners:
    """See OtherProvisionerPort."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def running(self, *, now: datetime) -> str:
        return self._cluster.running_karpenter(now=now)


class World:
    """Ports of one cluster, all of them fakes, and time to let things happen.

    ``failures``: what a function's invocation ended with, by queue. ``outages``: what every call of functions to a port
    (cluster, ec2, state, blobs …) ends with; users and machines go on meanwhile. ``seconds_left``: of an invocation.
    """

    def __init__(
        self,
        catalog: Catalog | None = None,
        cluster: str = builders.CLUSTER,
        forwarder: MakeForwarder = ForwarderOfEveryChange,
    ) -> None:
        self.clock = Clock()
        self.effects = Effects(self.clock)
        self.cluster = FakeCluster(cluster, self.clock, self.effects)
        self.events = self.cluster
        self.cluster_state = FakeClusterState(self.cluster, self.clock, self.effects)
        self.other_provisioners = FakeOtherProvisioners(self.cluster)
        self.ec2 = FakeEc2(cluster, self.clock, self.effects)
        self.state = FakeState(cluster, self.effects)
        self.blobs = FakeBlobs(cluster, self.effects)
        self.doorbells = FakeDoorbells(self.clock, self.effects)
        self.catalogs = FakeCatalogs(catalog or builders.small_catalog())
        self.facts = builders.FACTS
        self.settings = Settings()
        self.state.current_catalog_key = "catalogs/given"
        types = {
            instance_type.name: instance_type
            for instance_types in self.catalogs.catalog.by_nodeclass.values()
            for instance_type in instance_types
        }
        self.kubelets = Kubelets(self.cluster, self.ec2, self.clock, types)
        self.forwarder = forwarder(self.cluster, self.doorbells, self.state, self.clock)
        self.forwarder_runs = True
        self.failures: list[tuple[str, ApiError]] = []
        self.outages: dict[str, ApiError] = {}
        self.seconds_left: SecondsLeft = None
        self.ports: Any = PortsWithOutages(self, self.outages)
        self._replicas: dict[str, tuple[Pod, int]] = {}
        self._plans = True
        self._made = 0
        self._second = 0

    # What users do

    def deploy(self, template: Pod, replicas: int) -> None:
        """A Deployment: keeps so many pods like ``template`` (named after it), and fewer when scaled down."""
        self._replicas[template.metadata.name] = (template, replicas)
        self._plans = True
        self._controllers()

    def forget_deployments(self) -> None:
        """Their pods stay; nobody replaces them, or plans for them when their nodes go, until something is deployed."""
        self._replicas.clear()
        self._plans = False

    def forget_changes(self) -> None:
        """The doorbells for what changed until now are lost, and the forwarder does not ring for it again."""
        self._forward()
        self.forwarder.forget()
        for queue in self.functions():
            self.doorbells.receive(queue)

    def claims(self) -> tuple[NodeClaim, ...]:
        return self.cluster.all("nodeclaims")

    def running_pods(self) -> tuple[Pod, ...]:
        return tuple(
            pod for pod in self.cluster.all("pods") if pod.node_name and pod.metadata.deletion_timestamp is None
        )

    # What EC2 does

    def deliver_event(self, detail_type: str, detail: Mapping[str, Any], source: str = "aws.ec2") -> None:
        """EventBridge delivers a message to ``interrupt``."""
        envelope = {
            "version": "0", "id": f"event-{len(self.effects.log)}", "detail-type": detail_type, "source": source,
            "account": "123456789012", "time": self.clock.now().isoformat(), "region": "ap-northeast-2",
            "resources": [], "detail": dict(detail),
        }  # fmt: skip
        interrupt({self.cluster.name: self.ports}, self.ports.ec2, envelope, now=self.clock.now())

    def interrupt_spot(self, instance: str, *, seconds: int = 120) -> None:
        """A spot interruption warning; the instance goes after ``seconds``."""
        self.deliver_event(
            "EC2 Spot Instance Interruption Warning", {"instance-id": instance, "instance-action": "terminate"}
        )
        self.ec2.stop(instance, after_seconds=seconds)

    # Time

    def run(self, seconds: int, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass, a second at a time; True as soon as ``until`` holds, False when it never did."""
        for _ in range(seconds):
            self.settle()
            if until is not None and until():
                return True
            self.pass_second()
        self.settle()
        return until is not None and until()

    def pass_second(self) -> None:
        """A second passes, and nothing happens yet."""
        self.clock.advance(1)
        self._second += 1

    def settle(self) -> None:
        """Everything that happens at this moment, until nothing more does; RuntimeError if that never comes."""
        self.act_outside()
        for _ in range(MAX_ROUNDS):
            if not self._deliver():
                return
            self.kubelets.reconcile()
        raise RuntimeError("the functions wake each other without end")

    def act_outside(self) -> None:
        """What machines, controllers, the forwarder and schedules do at this moment; no function is invoked."""
        self.kubelets.reconcile()
        self._controllers()
        if self.forwarder_runs:
            self.cluster_state.take()
        else:
            self.cluster_state.stop()
        self._forward()
        self._schedules()

    def _deliver(self) -> bool:
        """Wake every function whose queue holds messages; True when one was."""
        woken = False
        for queue, work in self.functions().items():
            bells = self.doorbells.receive(queue)
            if bells:
                woken = True
                self._invoke(queue, work, bells)
        return woken

    def functions(self) -> Mapping[str, Callable[[tuple[Doorbell, ...]], None]]:
        """What a queue's messages invoke, by queue."""
        return {
            "provision": self._provision,
            "notices": self._lifecycle,
            "lifecycle": self._lifecycle,
            "disrupt": self._disrupt,
            "sweep": self._sweep,
        }

    def _invoke(self, queue: str, work: Callable[[tuple[Doorbell, ...]], None], bells: tuple[Doorbell, ...]) -> None:
        """As SQS and Lambda: what fails comes back after the visibility timeout."""
        try:
            work(bells)
        except ApiError as failure:
            self.failures.append((queue, failure))
            self.doorbells.ring(queue, bells, delay_seconds=180)

    def _provision(self, bells: tuple[Doorbell, ...]) -> None:
        if not self._plans:
            return
        request = unserved_request(bells)
        provision(self.ports, clock=self.clock.now, seconds_left=self.seconds_left, unserved_request=request)

    def _lifecycle(self, bells: tuple[Doorbell, ...]) -> None:
        lifecycle(self.ports, bells, now=self.clock.now(), seconds_left=self.seconds_left)

    def _disrupt(self, bells: tuple[Doorbell, ...]) -> None:
        tuple(disrupt(self.ports, bells, clock=self.clock.now, seconds_left=self.seconds_left))

    def _sweep(self, bells: tuple[Doorbell, ...]) -> None:
        tuple(sweep(self.ports, bells, clock=self.clock.now, seconds_left=self.seconds_left))

    def _schedules(self) -> None:
        name = self.cluster.name
        if self._second % MINUTE == 0:
            self.doorbells.ring("sweep", [Doorbell(name, "poll")])
            self.doorbells.ring("disrupt", [Doorbell(name, "evaluate")])
        if self._second % (10 * MINUTE) == 0:
            self.doorbells.ring("sweep", [Doorbell(name, "full")])

    def _forward(self) -> None:
        if self.forwarder_runs:
            self.forwarder.forward()
        else:
            self.forwarder.stop()

    def _controllers(self) -> None:
        """ReplicaSets: as many active pods as wanted."""
        for name, (template, wanted) in self._replicas.items():
            active = [
                pod for pod in self.cluster.all("pods") if pod.metadata.name.startswith(f"{name}-") and pod.is_active
            ]
            for pod in active[wanted:]:
                self.cluster.delete("pods", pod.metadata)
            for _ in range(wanted - len(active)):
                self._made += 1
                self.cluster.put("pods", replacement_pod(template, f"{name}-{self._made:04d}"))
