"""Nominated pods: planned for a node that is not ready yet. The next plan counts them on that node.

A nomination is a row per claim (NominationRow); until lifecycle writes it, the committed decision stands for it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.decisions.decision import Decision
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Settings
from spotwright.workflows.ports.rows import NominationRow
from spotwright.workflows.ports.state import StatePort

# As long as a claim may take to register; afterwards liveness deletes the claim.
NOMINATION_LIFETIME: Final = timedelta(minutes=15)

#: A pod's key and uid.
type PodIdentity = tuple[str, str]


def is_enabled(settings: Settings) -> bool:
    return settings.follow_plan == "Nominate"


def nominations_of(decision: Decision) -> Iterator[NominationRow]:
    """A row for each claim that pods were planned for, be they pending or on a node on its way out."""
    created = int(decision.now.timestamp() * 1000)
    due = expiry_ms(created)
    for launch in decision.launches:
        moving = launch.moving_pods or ({},) * len(launch.claims)
        for claim, pods, movers in zip(launch.claims, launch.pods, moving, strict=False):
            if pods or movers:
                yield NominationRow(
                    claim, decision.cluster, pods, created=created, due=due, launch=launch.id, moving_pods=movers
                )


def expiry_ms(created: int) -> int:
    """When a nomination of that time ends at the latest; both epoch milliseconds."""
    return created + int(NOMINATION_LIFETIME.total_seconds() * 1000)


def open_nominations(
    state: StatePort, pending_decisions: Iterable[Decision], settings: Settings
) -> tuple[NominationRow, ...]:
    """Every open nomination, by claim. ``pending_decisions``: committed decisions, read before the rows."""
    if not is_enabled(settings):
        return ()
    rows = {row.claim: row for decision in pending_decisions for row in nominations_of(decision)}
    rows |= {row.claim: row for row in state.nominations()}
    return tuple(rows[claim] for claim in sorted(rows))


def is_for_claim(nomination: NominationRow, claim: NodeClaim) -> bool:
    """Whether the claim is the nomination's, and not one of the same name that somebody else made."""
    return nomination.launch in ("", claim.metadata.annotations.get(labels.LAUNCH))


def place_nominated_pods(
    pods: Iterable[Pod],
    nominations: Collection[NominationRow],
    *,
    node_names: Mapping[str, str],
    leaving_nodes: Collection[str] = (),
    now: datetime,
) -> tuple[Pod, ...]:
    """Pods for the planner: a nominated pod is on its node and is not planned again.

    ``node_names``: claim → name of its node, without claims that are being deleted; ``leaving_nodes``: nodes on their
    way out, whose pods are on the node that they were planned for; a pod that stops leaves its place there to the pod
    that comes after it. A nomination that is overdue, or whose claim is gone, is dropped, and so is the
    ``nominatedNodeName`` that was written for it; one that another component wrote stays. A pod may be in several: the
    newest counts whose claim stays and which is not overdue.
    """
    if not nominations and not leaving_nodes:
        return tuple(pods)
    moment = int(now.timestamp() * 1000)
    by_pod: dict[PodIdentity, list[NominationRow]] = {}
    moving: dict[PodIdentity, list[NominationRow]] = {}
    for row in sorted(nominations, key=lambda nomination: (nomination.created, nomination.claim)):
        for identity in row.pods.items():
            by_pod.setdefault(identity, []).append(row)
        for identity in row.moving_pods.items():
            moving.setdefault(identity, []).append(row)

    def place(pod: Pod) -> Pod:
        identity = (pod.key, pod.metadata.uid)
        if pod.node_name in leaving_nodes and pod.node_name:
            if not eviction.is_reschedulable(pod):
                return pod
            return _moved(pod, moving.get(identity, ()), node_names, moment)
        return _placed(pod, by_pod.get(identity, ()), node_names, moment)

    return tuple(map(place, pods))


def _placed(pod: Pod, rows: Sequence[NominationRow], node_names: Mapping[str, str], now: int) -> Pod:
    """``rows``: the pod's nominations, oldest first."""
    if not rows or pod.node_name or pod.nominated_node_name not in ("", *(row.node for row in rows)):
        return pod
    nodes = [node_names[row.claim] for row in rows if row.claim in node_names and now < row.due]
    return msgspec.structs.replace(pod, node_name=nodes[-1] if nodes else "", nominated_node_name="")


def _moved(pod: Pod, rows: Sequence[NominationRow], node_names: Mapping[str, str], now: int) -> Pod:
    """The pod where it will be, as long as its promise lasts. ``rows``: its nominations, oldest first."""
    nodes = [node_names[row.claim] for row in rows if row.claim in node_names and now < expiry_ms(row.created)]
    return msgspec.structs.replace(pod, node_name=nodes[-1]) if nodes else pod
