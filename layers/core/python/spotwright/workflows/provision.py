"""Provisioning: gather a snapshot, decide, commit. It buys nothing: what was committed is acted on by lifecycle."""

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Final, Protocol

import msgspec

from spotwright.aws.instance_types import unavailable_offerings as offering_health
from spotwright.failures import Conflict, Failure
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.volumes import Storage
from spotwright.model.snapshot import CAPACITY_BUFFER, STATIC_CAPACITY, InFlightNodeClaim, Settings, Snapshot
from spotwright.scheduling import planner
from spotwright.scheduling.plan import NewNode, Plan, to_in_flight_nodeclaim
from spotwright.workflows import decisions, nominations, offering_memory, planning_time, provision_buffers
from spotwright.workflows.decisions import SCALED_DOWN, Decision, Disruption
from spotwright.workflows.planning_time import SecondsLeft
from spotwright.workflows.ports import BlobPort, CatalogPort, ClusterPort, Doorbell, DoorbellPort, StatePort
from spotwright.workflows.rows import ClusterRow

# How often one invocation plans again after losing the commit to another planner.
COMMIT_ATTEMPTS: Final = 5
# Until pods are tried for which there was no time, where the others got no node either.
AGAIN_SECONDS: Final = 10


class Gathering(Protocol):
    """Where a snapshot comes from."""

    @property
    def cluster(self) -> ClusterPort: ...
    @property
    def state(self) -> StatePort: ...
    @property
    def blobs(self) -> BlobPort: ...
    @property
    def settings(self) -> Settings: ...


class Planning(Gathering, Protocol):
    """What a planner reaches."""

    @property
    def catalogs(self) -> CatalogPort: ...
    @property
    def bells(self) -> DoorbellPort: ...


class Served(msgspec.Struct, frozen=True):
    """What one invocation decided. ``plans`` and the ``decisions`` committed for them, in order.

    ``waited_seconds``: for each decision, from the newest of its pods to the decision. ``postponed``: pods for which
    there was no time; they follow in the next round.
    """

    plans: tuple[Plan, ...] = ()
    decisions: tuple[Decision, ...] = ()
    waited_seconds: tuple[float, ...] = ()
    postponed: int = 0


def provision(ports: Planning, *, clock: Callable[[], datetime], seconds_left: SecondsLeft = None) -> Served:
    """Plan until every request made before the last gathering is served; then ring lifecycle.

    Several invocations may run at once: the loser of a commit plans again on what the winner decided. Pods for
    which there is no time are left to the next invocation, which is rung for.
    """
    wanted = ports.state.request()
    plans: list[Plan] = []
    made: list[Decision] = []
    waited: list[float] = []
    postponed = 0
    row = ports.state.cluster()
    for _ in range(COMMIT_ATTEMPTS):
        if row.served >= wanted or row.paused:
            break
        snapshot, postponed = planning_time.fitted(gather(ports, row, now=clock()), seconds_left)
        plan = decide(snapshot, ports.catalogs.read(snapshot.catalog_key))
        if plan.excess_nodeclaims:
            _scale_down(ports, snapshot, row, plan)
            row = ports.state.cluster()
            continue
        plans.append(plan)
        if plan.new_nodes:
            decision = commit_plan(
                state=ports.state, blobs=ports.blobs, snapshot=snapshot, based_on=row.version, plan=plan,
                kind="provision", why=_why(snapshot, plan),
            )  # fmt: skip
            if decision is None:
                row = ports.state.cluster()
                continue
            made.append(decision)
            waited.append(_waited(snapshot, plan))
            ports.bells.ring("lifecycle", [Doorbell(ports.cluster.name, "decision", decision.id)])
        tell(ports.cluster, snapshot, plan, made[-1] if plan.new_nodes else None)
        ports.state.served(row.requested)
        if postponed:
            ports.bells.ring(
                "provision", [Doorbell(ports.cluster.name, "pods")], delay_seconds=0 if made else AGAIN_SECONDS
            )
            break
        row = ports.state.cluster()
        wanted = row.requested
    return Served(tuple(plans), tuple(made), tuple(waited), postponed)


def _scale_down(ports: Planning, snapshot: Snapshot, row: ClusterRow, plan: Plan) -> None:
    """Commit that static pools lose what they have beyond their replicas, and ring lifecycle for it."""
    uids = {one.name: one.metadata.uid for one in snapshot.nodeclaims if one.name in plan.excess_nodeclaims}
    id = decisions.identifier(snapshot.cluster, SCALED_DOWN, str(row.version), *sorted(uids.values()))
    decision = commit_plan(
        state=ports.state,
        blobs=ports.blobs,
        snapshot=snapshot,
        based_on=row.version,
        plan=Plan(excess_nodeclaims=plan.excess_nodeclaims),
        kind="scale-down",
        why=f"static NodePools have {len(uids)} nodes more than their replicas",
        disruption=Disruption(id, SCALED_DOWN, plan.excess_nodeclaims, uids),
    )
    if decision is not None:
        ports.bells.ring("lifecycle", [Doorbell(ports.cluster.name, "decision", decision.id)])


def decide(snapshot: Snapshot, catalog: Catalog) -> Plan:
    """The plan for a snapshot: a pure function of it and its catalog."""
    known = offering_health.from_snapshot(snapshot.unavailable_offerings)
    return planner.plan(snapshot, offering_health.apply_to_catalog(catalog, snapshot.nodeclasses, known))


def gather(ports: Gathering, row: ClusterRow, *, now: datetime) -> Snapshot:
    """Everything the planner looks at, directly from the API server. ``row``: the cluster's, read just before.

    Decisions are read before launches, launches before claims and nodes before pods, so that what happens in between
    shows up twice (as a launch and as its claim) or as capacity, never as a pod without the node that was bought for
    it. Storage is read after the pods that may ask for it, and only where one does. What has no order is read
    meanwhile.
    """
    state, settings, now_ms = ports.state, ports.settings, int(now.timestamp() * 1000)
    with ThreadPoolExecutor(3) as meanwhile:
        remembered = meanwhile.submit(state.offering_health, now_ms)
        catalog_key = meanwhile.submit(state.catalog_key)
        waiting = tuple(decisions.decode(ports.blobs.get(key)) for key in row.unacted)
        promises = meanwhile.submit(nominations.promised, state, waiting, settings)
        committed = tuple(_committed(state, waiting))
        gated = STATIC_CAPACITY in settings.feature_gates
        leaving, disrupting = decisions.on_their_way_out(waiting, state.commands()) if gated else ((), ())
        promised = promises.result()
        seen = observed(ports.cluster, settings, now)
    known = {claim.name for claim in seen.nodeclaims}
    in_flight = tuple(one for one in committed if one.nodeclaim.name not in known)
    health = remembered.result()
    described_ms = offering_memory.described_ms(state, health)
    hosts = _hosts(seen.nodeclaims, seen.nodes, in_flight)
    return msgspec.structs.replace(
        seen,
        in_flight=in_flight,
        nodeclaims_to_delete=leaving,
        nodeclaims_to_replace=disrupting,
        pods=nominations.seated(seen.pods, promised, hosts=hosts, now=now),
        unavailable_offerings=offering_health.to_snapshot(health, now_ms=now_ms, described_ms=described_ms),
        catalog_key=catalog_key.result(),
    )


def observed(cluster: ClusterPort, settings: Settings, now: datetime) -> Snapshot:
    """What the API server alone knows: claims before nodes before pods, and storage, where a pod asks for it, after
    them. What has no order is read meanwhile."""
    with ThreadPoolExecutor(6) as meanwhile:
        nodepools, nodeclasses = meanwhile.submit(cluster.nodepools), meanwhile.submit(cluster.nodeclasses)
        daemonsets, budgets = meanwhile.submit(cluster.daemonsets), meanwhile.submit(cluster.pod_disruption_budgets)
        namespaces = meanwhile.submit(cluster.namespaces)
        overlays = meanwhile.submit(cluster.nodeoverlays) if "NodeOverlay" in settings.feature_gates else None
        spare = meanwhile.submit(cluster.capacity_buffers) if CAPACITY_BUFFER in settings.feature_gates else None
        claims = cluster.nodeclaims()
        nodes = cluster.nodes()
        pods = tuple(pod for pod in cluster.pods() if not pod.is_terminal)
        storage = cluster.storage() if any(pod.volume_claim_names for pod in pods) else Storage()
    return Snapshot(
        cluster=cluster.name,
        now=now,
        nodepools=nodepools.result(),
        nodeclasses=nodeclasses.result(),
        nodeclaims=claims,
        nodes=nodes,
        daemonsets=daemonsets.result(),
        pod_disruption_budgets=budgets.result(),
        pods=pods,
        namespaces=namespaces.result(),
        storage=storage,
        nodeoverlays=overlays.result() if overlays else (),
        capacity_buffers=spare.result() if spare else (),
        settings=settings,
    )


def _hosts(
    claims: tuple[NodeClaim, ...], nodes: tuple[Node, ...], in_flight: tuple[InFlightNodeClaim, ...]
) -> dict[str, str]:
    """Claim → the name under which the planner knows its node: the Node's when there is one. Leaving ones are out."""
    by_provider = {node.provider_id: node.name for node in nodes if node.provider_id}
    staying = {
        one.name: by_provider.get(one.provider_id, one.name)
        for one in claims
        if one.metadata.deletion_timestamp is None
    }
    return {one.nodeclaim.name: one.nodeclaim.name for one in in_flight} | staying


def _committed(state: StatePort, waiting: tuple[Decision, ...]) -> Iterator[InFlightNodeClaim]:
    """Nodes that were decided and whose claims may not exist yet; one whose claim existed once is history.

    ``waiting``: decisions that were not acted on when they were read, before the rows: none falls in between.
    """
    seen = set()
    for row in state.launches():
        seen.add(row.id)
        node = msgspec.json.decode(row.node, type=NewNode)
        yield from (to_in_flight_nodeclaim(node, name) for name in row.claims if name not in row.uids)
    for decision in waiting:
        for launch in decision.launches:
            if launch.id not in seen:
                yield from (to_in_flight_nodeclaim(launch.node, name) for name in launch.claims)


def commit_plan(
    *, state: StatePort, blobs: BlobPort, snapshot: Snapshot, based_on: int, plan: Plan, kind: str, why: str,
    disruption: Disruption | None = None,
) -> Decision | None:  # fmt: skip
    """Store snapshot and decision, then make it true at one point; None when another decision was first."""
    body = msgspec.json.encode(snapshot, order="deterministic")
    snapshot_key = blobs.key("snapshots", body)
    number = decisions.identifier(snapshot.cluster, str(based_on), kind, snapshot_key)
    pending = {pod.key: pod.metadata.uid for pod in snapshot.pods if not pod.node_name}
    launches = decisions.launches(number, plan, pending)
    if disruption is not None:
        disruption = msgspec.structs.replace(
            disruption, replacements=tuple(name for launch in launches for name in launch.claims)
        )
    decision = Decision(
        id=number,
        kind=kind,
        cluster=snapshot.cluster,
        based_on=based_on,
        now=snapshot.now,
        snapshot=snapshot_key,
        catalog=snapshot.catalog_key,
        code=code_digest(),
        plan=plan,
        launches=launches,
        disruption=disruption,
        why=why,
    )
    with ThreadPoolExecutor(1) as beside:
        storing = beside.submit(blobs.put, "snapshots", body)
        key = blobs.put("decisions", decisions.encode(decision))
        storing.result()
    try:
        state.commit(expected_version=based_on, key=key)
    except Conflict:
        return None
    return decision


@cache
def code_digest() -> str:
    """A digest of the deciding code: model, scheduling and disruption, file by file."""
    digest = hashlib.sha256()
    for package in ("model", "scheduling", "disruption"):
        root = Path(__file__).parents[1] / package
        for file in sorted(root.rglob("*.py")):
            digest.update(file.relative_to(root).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def tell(cluster: ClusterPort, snapshot: Snapshot, plan: Plan, decision: Decision | None) -> None:
    """Events on pods, with Karpenter's reasons: where each should schedule, or why it cannot. Never raises."""
    _tell_others(cluster, snapshot, plan)
    provision_buffers.tell(cluster, snapshot, plan)
    pods = {pod.key: pod for pod in snapshot.pods}
    for key, reason, kind, message in _messages(plan, decision):
        if key in pods and _asks(pods[key]):
            try:
                cluster.event("pods", pods[key].metadata, type=kind, reason=reason, message=message, now=snapshot.now)
            except Failure:
                continue


def _tell_others(cluster: ClusterPort, snapshot: Snapshot, plan: Plan) -> None:
    """Events on NodePools that select nothing, and on nodes and claims that cannot be read."""
    about = {f"nodepools/{one.name}": one.metadata for one in snapshot.nodepools}
    about |= {f"nodeclaims/{one.name}": one.metadata for one in snapshot.nodeclaims}
    about |= {f"nodes/{one.name}": one.metadata for one in snapshot.nodes}
    said = [
        (f"nodepools/{name}", "NoCompatibleInstanceTypes", why)
        for name, why in plan.nodepools_without_offerings.items()
    ]
    for key, reason, why in (*said, *((key, "Unreadable", why) for key, why in plan.read_errors.items())):
        try:
            kind = key.partition("/")[0]
            cluster.event(kind, about[key], type="Warning", reason=reason, message=why, now=snapshot.now)
        except Failure:
            continue


def _asks(pod: Pod) -> bool:
    """True for a pod that waits for a place; one of a DaemonSet, or one that was not tried yet, is not spoken to."""
    return pod.unschedulable and not pod.is_owned_by("DaemonSet") and not pod.nominated_node_name


def _messages(plan: Plan, decision: Decision | None) -> Iterator[tuple[str, str, str, str]]:
    for launch in decision.launches if decision else ():
        names = ", ".join(f"nodeclaim/{name}" for name in launch.claims)
        for pod in launch.node.pods:
            yield pod, "Nominated", "Normal", f"Pod should schedule on: {names}"
    for node in plan.existing_nodes:
        for pod in node.pods:
            yield pod, "Nominated", "Normal", f"Pod should schedule on: node/{node.name}"
    for refused in (*plan.unschedulable_pods, *plan.ignored_pods):
        yield refused.pod, "FailedScheduling", "Warning", "Failed to schedule pod, " + "; ".join(refused.reasons)


def _waited(snapshot: Snapshot, plan: Plan) -> float:
    placed = {key for node in plan.new_nodes for key in node.pods}
    born = [
        pod.metadata.creation_timestamp
        for pod in snapshot.pods
        if pod.key in placed and pod.metadata.creation_timestamp
    ]
    return (snapshot.now - max(born)).total_seconds() if born else 0.0


def _why(snapshot: Snapshot, plan: Plan) -> str:
    waiting = {pod.key for pod in snapshot.pods}
    pods = sum(key in waiting for node in plan.new_nodes for key in node.pods)
    price = plan.price_picousd_per_hour / 10**12
    need = f"{pods} pending pods need" if pods else "static NodePools and CapacityBuffers need"
    return f"{need} {len(plan.new_nodes)} new nodes for ${price:.4f} per hour"
