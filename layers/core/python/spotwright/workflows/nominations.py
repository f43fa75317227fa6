"""Pods that were planned for a node that is on its way: the next plan counts them as being there.

A promise is a row per claim (NominationRow); before lifecycle wrote it, the committed decision says the same.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Settings
from spotwright.workflows.decisions import Decision
from spotwright.workflows.ports import StatePort
from spotwright.workflows.rows import NominationRow

# A promise lasts as long as a claim may take to register: afterwards the claim is gone (lifecycle.liveness).
PROMISED_FOR: Final = timedelta(minutes=15)


def wanted(settings: Settings) -> bool:
    return settings.follow_plan == "Nominate"


def of_decision(decision: Decision) -> Iterator[NominationRow]:
    """A row for each claim that pods were planned for which waited then."""
    made = int(decision.now.timestamp() * 1000)
    due = made + int(PROMISED_FOR.total_seconds() * 1000)
    for launch in decision.launches:
        for claim, pods in zip(launch.claims, launch.pods, strict=False):
            if pods:
                yield NominationRow(claim, decision.cluster, pods, created=made, due=due)


def promised(state: StatePort, waiting: Iterable[Decision], settings: Settings) -> tuple[NominationRow, ...]:
    """Every open promise, by claim. ``waiting``: committed decisions that were read before the rows are."""
    if not wanted(settings):
        return ()
    rows = {row.claim: row for decision in waiting for row in of_decision(decision)}
    rows |= {row.claim: row for row in state.nominations()}
    return tuple(rows[claim] for claim in sorted(rows))


def seated(
    pods: Iterable[Pod], rows: Iterable[NominationRow], *, hosts: Mapping[str, str], now: datetime
) -> tuple[Pod, ...]:
    """Pods as the planner shall see them: a promised one sits on its node and is not planned again.

    ``hosts``: claim → name of its node, without those that leave. A promise that is overdue, or whose claim is gone,
    counts for nothing, and neither does the nomination that was written for it; one that somebody else made stands.
    """
    moment = int(now.timestamp() * 1000)
    by_pod = {(key, uid): row for row in rows for key, uid in row.pods.items()}
    return tuple(_seen(pod, by_pod.get((pod.key, pod.metadata.uid)), hosts, moment) for pod in pods)


def _seen(pod: Pod, row: NominationRow | None, hosts: Mapping[str, str], now: int) -> Pod:
    if row is None or pod.node_name or pod.nominated_node_name not in ("", row.node):
        return pod
    seat = hosts.get(row.claim, "") if now < row.due else ""
    return msgspec.structs.replace(pod, node_name=seat, nominated_node_name="")
