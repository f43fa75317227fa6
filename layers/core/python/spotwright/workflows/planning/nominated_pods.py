"""Pods that were planned for a node that is on its way: the next plan counts them as being there.

A promise is a row per claim (NominationRow); before lifecycle wrote it, the committed decision says the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.decisions.decision import Decision
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Settings
from spotwright.workflows.ports.rows import NominationRow
from spotwright.workflows.ports.state import StatePort

# A promise lasts as long as a claim may take to register: afterwards the claim is gone (lifecycle.liveness).
NOMINATION_LIFETIME: Final = timedelta(minutes=15)


def is_enabled(settings: Settings) -> bool:
    return settings.follow_plan == "Nominate"


def nominations_of(decision: Decision) -> Iterator[NominationRow]:
    """A row for each claim that pods were planned for which waited then."""
    made = int(decision.now.timestamp() * 1000)
    due = made + int(NOMINATION_LIFETIME.total_seconds() * 1000)
    for launch in decision.launches:
        for claim, pods in zip(launch.claims, launch.pods, strict=False):
            if pods:
                yield NominationRow(claim, decision.cluster, pods, created=made, due=due)


def open_nominations(
    state: StatePort, pending_decisions: Iterable[Decision], settings: Settings
) -> tuple[NominationRow, ...]:
    """Every open promise, by claim. ``pending_decisions``: committed decisions that were read before the rows are."""
    if not is_enabled(settings):
        return ()
    rows = {row.claim: row for decision in pending_decisions for row in nominations_of(decision)}
    rows |= {row.claim: row for row in state.nominations()}
    return tuple(rows[claim] for claim in sorted(rows))


def place_nominated_pods(
    pods: Iterable[Pod], nominations: Iterable[NominationRow], *, node_names: Mapping[str, str], now: datetime
) -> tuple[Pod, ...]:
    """Pods as the planner shall see them: a promised one sits on its node and is not planned again.

    ``node_names``: claim → name of its node, without those that leave. A promise that is overdue, or whose claim is
    gone, counts for nothing, and neither does the nomination that was written for it; one that somebody else made
    stands.
    """
    moment = int(now.timestamp() * 1000)
    by_pod = {(key, uid): row for row in nominations for key, uid in row.pods.items()}
    return tuple(_placed(pod, by_pod.get((pod.key, pod.metadata.uid)), node_names, moment) for pod in pods)


def _placed(pod: Pod, row: NominationRow | None, hosts: Mapping[str, str], now: int) -> Pod:
    if row is None or pod.node_name or pod.nominated_node_name not in ("", row.node):
        return pod
    seat = hosts.get(row.claim, "") if now < row.due else ""
    return msgspec.structs.replace(pod, node_name=seat, nominated_node_name="")
