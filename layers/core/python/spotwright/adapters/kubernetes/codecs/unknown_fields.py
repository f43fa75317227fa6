"""Which fields a NodePool and an EC2NodeClass have, to name those that do not exist.

The API server prunes unknown fields silently (or with a warning that nobody read); what the user wrote is still in
kubectl's last-applied annotation. Source: the CRDs in ``spotwright/manifests``.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from spotwright.model import labels

type Tree = Mapping[str, "Tree | None"]

_REQUIREMENT: Final[Tree] = dict.fromkeys(("key", "operator", "values", "minValues"))
_TAINT: Final[Tree] = dict.fromkeys(("key", "value", "effect", "timeAdded"))
_NODEPOOL: Final[Tree] = {
    "template": {
        "metadata": {"labels": None, "annotations": None},
        "spec": {
            "taints": _TAINT,
            "startupTaints": _TAINT,
            "requirements": _REQUIREMENT,
            "nodeClassRef": dict.fromkeys(("group", "kind", "name")),
            "terminationGracePeriod": None,
            "expireAfter": None,
        },
    },
    "disruption": {
        "consolidateAfter": None,
        "consolidationPolicy": None,
        "budgets": dict.fromkeys(("nodes", "reasons", "schedule", "duration")),
    },
    "limits": None,
    "weight": None,
    "replicas": None,
}
_EBS: Final[Tree] = dict.fromkeys(
    (
        "volumeSize", "volumeType", "iops", "throughput", "encrypted", "deleteOnTermination", "kmsKeyID",
        "snapshotID", "volumeInitializationRate",
    )
)  # fmt: skip
_EC2NODECLASS: Final[Tree] = {
    "subnetSelectorTerms": {"tags": None, "id": None},
    "securityGroupSelectorTerms": {"tags": None, "id": None, "name": None},
    "capacityReservationSelectorTerms": {"tags": None, "id": None, "ownerID": None, "instanceMatchCriteria": None},
    "placementGroupSelector": {"name": None, "id": None},
    "amiSelectorTerms": dict.fromkeys(("alias", "tags", "id", "name", "owner", "ssmParameter")),
    "amiFamily": None,
    "userData": None,
    "role": None,
    "instanceProfile": None,
    "tags": None,
    "kubelet": None,
    "blockDeviceMappings": {"deviceName": None, "rootVolume": None, "ebs": _EBS},
    "instanceStorePolicy": None,
    "networkInterfaces": dict.fromkeys(("networkCardIndex", "deviceIndex", "interfaceType")),
    "associatePublicIPAddress": None,
    "detailedMonitoring": None,
    "ipPrefixCount": None,
    "metadataOptions": dict.fromkeys(("httpEndpoint", "httpProtocolIPv6", "httpPutResponseHopLimit", "httpTokens")),
    "connectionTracking": dict.fromkeys(("tcpEstablishedTimeout", "udpStreamTimeout", "udpTimeout")),
    "cpuOptions": {"nestedVirtualization": None},
    "context": None,
}
_KNOWN: Final[Mapping[str, Tree]] = {"NodePool": _NODEPOOL, "EC2NodeClass": _EC2NODECLASS}


def field_problems(obj: Mapping[str, Any]) -> tuple[str, ...]:
    """Sentences about fields of this object, or of the manifest it was applied from, that mean nothing; sorted."""
    tree = _KNOWN[obj["kind"]]
    found = set(_unknown(obj.get("spec"), tree, "spec"))
    found.update(_unknown(_last_applied(obj), tree, "spec"))
    return tuple(sorted(found))


def _last_applied(obj: Mapping[str, Any]) -> Any:
    annotation = (obj["metadata"].get("annotations") or {}).get(labels.LAST_APPLIED, "")
    try:
        applied = msgspec.json.decode(annotation) if annotation else {}
    except msgspec.DecodeError:
        return None
    return applied.get("spec") if isinstance(applied, dict) else None


def _unknown(value: Any, tree: Tree, path: str) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _unknown(item, tree, path)
        return
    if not isinstance(value, dict):
        return
    for name, inner in value.items():
        here = f"{path}.{name}"
        if name not in tree:
            import difflib  # Slow to import, and seldom needed.

            near = difflib.get_close_matches(name, tree, n=1, cutoff=0.6)
            yield f"unknown field {here}" + (f", did you mean {near[0]}?" if near else "")
        elif inner is None and name != "metadata":
            yield f"field {here} is empty: give it a value or leave it out"
        elif (deeper := tree[name]) is not None:
            yield from _unknown(inner, deeper, here)
