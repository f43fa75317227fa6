"""The model as Kubernetes objects."""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from spotwright.model import resources
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement

type Json = dict[str, Any]


def moment(at: datetime) -> str:
    """RFC 3339 in UTC with whole seconds, as metav1.Time."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def duration(seconds: int | None) -> str:
    """A duration as the CRDs take it; None is Never."""
    if seconds is None:
        return "Never"
    hours, rest = divmod(seconds, 3600)
    minutes, left = divmod(rest, 60)
    parts = [f"{size}{unit}" for size, unit in ((hours, "h"), (minutes, "m"), (left, "s")) if size]
    return "".join(parts) or "0s"


def selector(one: NodeSelectorRequirement) -> Json:
    return (
        {"key": one.key, "operator": str(one.operator)}
        | ({"values": list(one.values)} if one.values else {})
        | ({"minValues": one.min_values} if one.min_values is not None else {})
    )


def taint(one: Taint) -> Json:
    return {"key": one.key, "effect": str(one.effect)} | ({"value": one.value} if one.value else {})


def condition(one: Condition, *, since: datetime) -> Json:
    return {
        "type": one.type,
        "status": one.status,
        "reason": one.reason or one.type,
        "message": one.message,
        "lastTransitionTime": moment(one.last_transition_time or since),
        "observedGeneration": one.observed_generation,
    }


def metadata(about: ObjectMeta) -> Json:
    """What a client may state of an object's metadata."""
    return {
        "name": about.name,
        "labels": dict(about.labels),
        "annotations": dict(about.annotations),
        "finalizers": list(about.finalizers),
        "ownerReferences": [
            {
                "apiVersion": owner.api_version,
                "kind": owner.kind,
                "name": owner.name,
                "uid": owner.uid,
                "blockOwnerDeletion": True,
            }
            for owner in about.owner_references
        ],
    }


def nodeclaim(claim: NodeClaim) -> Json:
    """A NodeClaim to create; status is not part of it."""
    ref = claim.node_class_ref
    spec: Json = {
        "nodeClassRef": {"group": ref.group, "kind": ref.kind, "name": ref.name},
        "requirements": [selector(one) for one in claim.requirements],
        "resources": {"requests": resources.text(claim.requests)},
        "expireAfter": duration(claim.expire_after_seconds),
    }
    spec |= _given("taints", map(taint, claim.taints)) | _given("startupTaints", map(taint, claim.startup_taints))
    if claim.termination_grace_period_seconds is not None:
        spec["terminationGracePeriod"] = duration(claim.termination_grace_period_seconds)
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": metadata(claim.metadata),
        "spec": spec,
    }


def _given(name: str, items: Iterable[Json]) -> Json:
    listed = list(items)
    return {name: listed} if listed else {}
