"""What v1alpha1 and v1beta1 say alike of an instance, as an EC2NodeClass says it: disks, tags, metadata service."""

from typing import Final

from spotwright.conversion import Json
from spotwright.conversion.remarks import ObjectRemarks, refuse, refuse_missing
from spotwright.model import labels, quantity

ROLE_PLACEHOLDER: Final = "${KARPENTER_NODE_ROLE}"
# What Karpenter before v1 set where nothing was said of the metadata service.
METADATA_OPTIONS: Final = {
    "httpEndpoint": "enabled",
    "httpProtocolIPv6": "disabled",
    "httpPutResponseHopLimit": 2,
    "httpTokens": "required",
}
_RESERVED_TAGS: Final = (labels.CLUSTER_NAME_TAG, labels.NODEPOOL, labels.NODECLAIM, labels.EC2NODECLASS)
_GONE_TAGS: Final = ("karpenter.sh/provisioner-name", "karpenter.sh/managed-by")
_GIB: Final = 2**30
# v1alpha1's own bounds, 1 GB and 64 TB.
_SMALLEST_VOLUME_BYTES: Final = 10**9
_LARGEST_VOLUME_BYTES: Final = 64 * 10**12


def tags(given: Json, path: str, remarks: ObjectRemarks) -> Json:
    """Tags that v1 lets users set."""
    kept = {}
    for key, value in given.items():
        if key in (*_RESERVED_TAGS, *_GONE_TAGS) or key.startswith("kubernetes.io/cluster"):
            remarks.lost(f"{path}[{key}]", "is reserved: whoever starts the instance sets its own tags")
        else:
            kept[key] = value
    return {"tags": kept} if kept else {}


def block_devices(given: list[Json], path: str) -> list[Json]:
    """Volumes, their sizes spelled as v1 asks; raises ConversionError."""
    if sum(bool(one.get("rootVolume")) for one in given) > 1:
        refuse(path, len(given), "volumes: only one of them may be the rootVolume")
    return [one | _disk(one["ebs"], f"{path}[{at}].ebs") if "ebs" in one else one for at, one in enumerate(given)]


def _disk(ebs: Json, path: str) -> Json:
    if "volumeSize" not in ebs:
        if "snapshotID" not in ebs:
            refuse_missing(f"{path}.volumeSize", "set snapshotID or volumeSize")
        return {"ebs": ebs}
    return {"ebs": ebs | {"volumeSize": _volume_size(ebs["volumeSize"], f"{path}.volumeSize")}}


def _volume_size(given: int | str, path: str) -> str:
    """As it is where v1 can say it; otherwise rounded up to whole Gi, as it was for EC2."""
    size_bytes = quantity.parse(given)
    if not _SMALLEST_VOLUME_BYTES <= size_bytes <= _LARGEST_VOLUME_BYTES:
        refuse(path, given, "is not between 1G and 64T")
    unit = str(given).lstrip("0123456789")
    whole = isinstance(given, str) and given[0] != "0" and unit in ("Gi", "G", "Ti", "T")
    return given if whole and isinstance(given, str) else f"{-(-size_bytes // _GIB)}Gi"


def metadata_options(given: Json | None, unset: Json) -> Json:
    """All four fields, since v1's defaults differ. ``unset``: what held for those that were left out of the field."""
    return {"metadataOptions": METADATA_OPTIONS if given is None else unset | given}
