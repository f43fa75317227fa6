"""amiFamily, amiSelectorTerms and blockDeviceMappings of a v1 EC2NodeClass."""

from typing import Final

from spotwright.conversion import Json
from spotwright.conversion.remarks import ObjectRemarks, refuse

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
