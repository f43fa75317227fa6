"""Whether Karpenter runs in a cluster: its Deployment by the label of its chart, and the Lease that its leader renews.

Both are asked of the API server by label and by name, which costs the same in every cluster.
Source: Karpenter v1.14 ``charts/karpenter`` and ``pkg/operator/options`` (LEADER_ELECTION_NAME).
"""

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from spotwright.adapters.kubernetes.codecs.listed_objects import object_decoder
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.errors import Denied
from spotwright.model.kubernetes.meta import parse_time

_DEPLOYMENTS: Final = ("/apis/apps/v1/deployments", {"labelSelector": "app.kubernetes.io/name=karpenter"})
_LEASE: Final = "karpenter-leader-election"
_LEASES: Final = ("/apis/coordination.k8s.io/v1/leases", {"fieldSelector": f"metadata.name={_LEASE}"})
# A leader renews its Lease every few seconds; one that ends gives it back.
_RENEWED_WITHIN: Final = timedelta(seconds=60)


def running_karpenter(api: Transport, *, now: datetime) -> str:
    """The Deployment that wants or has pods, or else the Lease that was renewed lately; "" = there is neither.

    A cluster whose RBAC is of an earlier version does not show Leases: the Deployment alone counts then.
    """
    found = (f"Deployment {_name(one)}" for one in _listed(api, *_DEPLOYMENTS) if _has_pods(one))
    if deployment := next(found, ""):
        return deployment
    try:
        held = (f"the holder of Lease {_name(one)}" for one in _listed(api, *_LEASES) if _is_held(one, now))
        return next(held, "")
    except Denied:
        return ""


def _listed(api: Transport, path: str, query: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    return api.items(path, object_decoder(dict[str, Any]), query)


def _has_pods(deployment: Mapping[str, Any]) -> bool:
    wanted = (deployment.get("spec") or {}).get("replicas", 1)
    return bool(wanted) or bool((deployment.get("status") or {}).get("replicas"))


def _is_held(lease: Mapping[str, Any], now: datetime) -> bool:
    spec = lease.get("spec") or {}
    renewed = parse_time(spec.get("renewTime") or "")
    return bool(spec.get("holderIdentity")) and renewed is not None and now - renewed < _RENEWED_WITHIN


def _name(document: Mapping[str, Any]) -> str:
    return f"{document['metadata'].get('namespace', 'default')}/{document['metadata']['name']}"
