"""Unknown fields of NodePools and EC2NodeClasses, such as misspelled ones.

The API server prunes unknown fields, with no more than a warning; kubectl's last-applied annotation still has them.
Source: the CRDs in ``spotwright/manifests``.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from spotwright.model import labels

type Tree = Mapping[str, "Tree | None"]

# Field of a v1beta1 NodePool → where it is in v1.
MOVED_FIELDS: Final = {
    "spec.template.spec.kubelet": "kubelet moved to EC2NodeClass spec.kubelet in v1; the API server drops it here"
}

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
_FIELDS: Final[Mapping[str, Tree]] = {"NodePool": _NODEPOOL, "EC2NodeClass": _EC2NODECLASS}


def field_problems(obj: Mapping[str, Any]) -> tuple[str, ...]:
    """Sentences about unknown or empty fields of the object and of its last-applied manifest, sorted."""
    tree = _FIELDS[obj["kind"]]
    problems = set(_find_problems(obj.get("spec"), tree, "spec"))
    problems.update(_find_problems(_last_applied(obj), tree, "spec"))
    return tuple(sorted(problems))


def _last_applied(obj: Mapping[str, Any]) -> Any:
    annotation = (obj["metadata"].get("annotations") or {}).get(labels.LAST_APPLIED, "")
    try:
        applied = msgspec.json.decode(annotation) if annotation else {}
    except (msgspec.DecodeError, RecursionError):
        # Anybody may write an annotation.
        return None
    return applied.get("spec") if isinstance(applied, dict) else None


def _find_problems(value: Any, tree: Tree, path: str) -> Iterator[str]:
    """``value``: an object, or a list of such; no field has lists of lists."""
    for item in value if isinstance(value, list) else (value,):
        if isinstance(item, dict):
            yield from _find_problems_of_object(item, tree, path)


def _find_problems_of_object(obj: Mapping[str, Any], tree: Tree, path: str) -> Iterator[str]:
    for name, inner in obj.items():
        field = f"{path}.{name}"
        if field in MOVED_FIELDS and name not in tree:
            yield f"unknown field {field}: {MOVED_FIELDS[field]}"
        elif name not in tree:
            import difflib  # Slow to import, and rarely needed.

            similar = difflib.get_close_matches(name, tree, n=1, cutoff=0.6)
            yield f"unknown field {field}" + (f", did you mean {similar[0]}?" if similar else "")
        elif inner is None and name != "metadata":
            yield f"field {field} is empty: give it a value or leave it out"
        elif (subtree := tree[name]) is not None:
            yield from _find_problems(inner, subtree, field)
