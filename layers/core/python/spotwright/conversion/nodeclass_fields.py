"""Fields of a v1 EC2NodeClass that v1alpha1 and v1beta1 have in common: images, disks, tags, metadata service."""

from typing import Final

from spotwright.conversion import Json
from spotwright.conversion.remarks import ObjectRemarks, refuse, refuse_missing
from spotwright.model import labels, quantity

# v0.31 chose this parameter by the cluster's version; v1 has no Ubuntu family and so no alias for it.
_UBUNTU_PARAMETER: Final = (
    "/aws/service/canonical/ubuntu/eks/20.04/${{KUBERNETES_VERSION}}/stable/current/{}/hvm/ebs-gp2/ami-id"
)
# The default disk of the family Ubuntu; AL2's device has another name.
_UBUNTU_DISK: Final = {
    "deviceName": "/dev/sda1",
    "rootVolume": True,
    "ebs": {"encrypted": True, "volumeType": "gp3", "volumeSize": "20Gi"},
}


def ami_fields(family: str, terms: list[Json], devices: list[Json], path: str, remarks: ObjectRemarks) -> Json:
    """``amiFamily``, ``amiSelectorTerms`` and ``blockDeviceMappings`` of a v1 class; raises ConversionError.

    ``terms``: the class' own selector terms; empty = it used the family's newest images.
    """
    disks: Json = {"blockDeviceMappings": devices} if devices else {}
    if family == "Ubuntu":
        return _ubuntu(terms, path, remarks) | {"blockDeviceMappings": devices or [_UBUNTU_DISK]}
    if family == "Custom":
        if not terms:
            refuse(f"{path}.amiFamily", family, "needs images: select them")
        remarks.to_do(
            f"{path}.userData",
            "v1 waits for nodes of the family Custom to register with the taint karpenter.sh/unregistered:NoExecute:"
            " have the kubelet set it",
        )
    if family == "AL2":
        remarks.note(f"{path}.amiFamily", "AL2 has no images for Kubernetes 1.33 and later: AL2023 follows it")
    if terms:
        return {"amiFamily": family, "amiSelectorTerms": terms} | disks
    return {"amiSelectorTerms": [{"alias": f"{family.lower()}@latest"}]} | disks


def _ubuntu(terms: list[Json], path: str, remarks: ObjectRemarks) -> Json:
    """Ubuntu boots as AL2 does."""
    remarks.note(f"{path}.amiFamily", "Ubuntu is no family of v1: its images boot as AL2, from the disk Ubuntu had")
    if terms:
        return {"amiFamily": "AL2", "amiSelectorTerms": terms}
    remarks.to_do(
        f"{path}.amiFamily",
        "v1 has no alias for Ubuntu: give the parameters the cluster's version (KUBERNETES_VERSION, such as 1.29),"
        " or select newer images by name, owner or id",
    )
    chosen = [{"ssmParameter": _UBUNTU_PARAMETER.format(arch)} for arch in ("amd64", "arm64")]
    return {"amiFamily": "AL2", "amiSelectorTerms": chosen}


ROLE_PLACEHOLDER: Final = "${KARPENTER_NODE_ROLE}"
# The defaults of Karpenter before v1 for the metadata service.
METADATA_OPTIONS: Final = {
    "httpEndpoint": "enabled",
    "httpProtocolIPv6": "disabled",
    "httpPutResponseHopLimit": 2,
    "httpTokens": "required",
}
_RESERVED_TAGS: Final = (labels.CLUSTER_NAME_TAG, labels.NODEPOOL, labels.NODECLAIM, labels.EC2NODECLASS)
_REMOVED_TAGS: Final = ("karpenter.sh/provisioner-name", "karpenter.sh/managed-by")
_GIB: Final = 2**30
# v1alpha1's own bounds, 1 GB and 64 TB.
_SMALLEST_VOLUME_BYTES: Final = 10**9
_LARGEST_VOLUME_BYTES: Final = 64 * 10**12


def tags(old_tags: Json, path: str, remarks: ObjectRemarks) -> Json:
    """The tags that v1 allows users to set."""
    kept = {}
    for key, value in old_tags.items():
        if key in (*_RESERVED_TAGS, *_REMOVED_TAGS) or key.startswith("kubernetes.io/cluster"):
            remarks.lost(f"{path}[{key}]", "is reserved: whoever starts the instance sets its own tags")
        else:
            kept[key] = value
    return {"tags": kept} if kept else {}


def block_devices(devices: list[Json], path: str) -> list[Json]:
    """Volumes with their sizes in v1's notation; raises ConversionError."""
    if sum(bool(device.get("rootVolume")) for device in devices) > 1:
        refuse(path, len(devices), "volumes: only one of them may be the rootVolume")
    return [
        device | _ebs_with_size(device["ebs"], f"{path}[{index}].ebs") if "ebs" in device else device
        for index, device in enumerate(devices)
    ]


def _ebs_with_size(ebs: Json, path: str) -> Json:
    if "volumeSize" not in ebs:
        if "snapshotID" not in ebs:
            refuse_missing(f"{path}.volumeSize", "set snapshotID or volumeSize")
        return {"ebs": ebs}
    return {"ebs": ebs | {"volumeSize": _volume_size(ebs["volumeSize"], f"{path}.volumeSize")}}


def _volume_size(size: int | str, path: str) -> str:
    """The size unchanged if v1 allows it, else rounded up to whole Gi, as Karpenter did for EC2."""
    size_bytes = quantity.parse(size)
    if not _SMALLEST_VOLUME_BYTES <= size_bytes <= _LARGEST_VOLUME_BYTES:
        refuse(path, size, "is not between 1G and 64T")
    unit = str(size).lstrip("0123456789")
    is_unchanged = isinstance(size, str) and size[0] != "0" and unit in ("Gi", "G", "Ti", "T")
    return size if is_unchanged and isinstance(size, str) else f"{-(-size_bytes // _GIB)}Gi"


def metadata_options(options: Json | None, unset: Json) -> Json:
    """All four fields, since v1's defaults differ. ``unset``: the defaults where only some are stated."""
    return {"metadataOptions": METADATA_OPTIONS if options is None else unset | options}
