"""PersistentVolumeClaims, PersistentVolumes, StorageClasses and CSINodes, from JSON into the model."""

import hashlib
from collections.abc import Iterable
from typing import Any, Final

from spotwright.adapters.kubernetes.codecs.decode_errors import DECODE_ERRORS, DecodeError, describe_error
from spotwright.adapters.kubernetes.codecs.objects import (
    Json,
    decode_metadata,
    decode_node_selector_requirements,
    validate,
)
from spotwright.model import labels
from spotwright.model.kubernetes.volumes import (
    EBS_CSI_DRIVER,
    CSINode,
    NodeSelectorTerms,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from spotwright.model.quoting import quote
from spotwright.model.requirements import NodeSelectorRequirement, Operator

_BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
# In-tree volume plugins whose volumes a CSI driver has taken over.
_MIGRATED: Final = {"kubernetes.io/aws-ebs": EBS_CSI_DRIVER}


_CSI_VOLUME: Final = "kubernetes.io/csi/"


def attachment_names(node: str, volumes_attached: Iterable[Json]) -> tuple[str, ...]:
    """The names of the VolumeAttachments of ``status.volumesAttached``; only CSI volumes have one.

    Source: kubernetes/kubernetes ``pkg/volume/csi/csi_attacher.go`` names it by a hash of volume, driver and node.
    """
    names = (str(volume.get("name") or "") for volume in volumes_attached)
    volumes = (name.removeprefix(_CSI_VOLUME).partition("^") for name in names if name.startswith(_CSI_VOLUME))
    return tuple(
        f"csi-{hashlib.sha256(f'{handle}{driver}{node}'.encode()).hexdigest()}" for driver, _, handle in volumes
    )


def decode_persistent_volume_claim(obj: Json) -> PersistentVolumeClaim:
    """A claim; ``read_error`` says why it cannot be read, as for the three other kinds here."""
    try:
        return validate(_claim(obj))
    except DECODE_ERRORS as error:
        return PersistentVolumeClaim(validate(decode_metadata(obj)), read_error=describe_error(error))


def decode_persistent_volume(obj: Json) -> PersistentVolume:
    try:
        return validate(_volume(obj))
    except DECODE_ERRORS as error:
        return PersistentVolume(validate(decode_metadata(obj)), read_error=describe_error(error))


def decode_storage_class(obj: Json) -> StorageClass:
    try:
        return validate(_storage_class(obj))
    except DECODE_ERRORS as error:
        return StorageClass(validate(decode_metadata(obj)), read_error=describe_error(error))


def decode_csi_node(obj: Json) -> CSINode:
    try:
        return validate(_csi_node(obj))
    except DECODE_ERRORS as error:
        return CSINode(validate(decode_metadata(obj)), read_error=describe_error(error))


def _claim(obj: Json) -> PersistentVolumeClaim:
    spec, metadata = obj.get("spec") or {}, decode_metadata(obj)
    return PersistentVolumeClaim(
        metadata=metadata,
        volume_name=spec.get("volumeName") or "",
        storage_class_name=spec.get("storageClassName"),
        bind_completed=_BIND_COMPLETED in metadata.annotations,
        phase=(obj.get("status") or {}).get("phase") or "",
    )


def _volume(obj: Json) -> PersistentVolume:
    """The host of a local or hostPath volume is no constraint, since another node may replace it."""
    spec = obj.get("spec") or {}
    terms = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
    local = bool(spec.get("local") or spec.get("hostPath"))
    driver = (spec.get("csi") or {}).get("driver") or (EBS_CSI_DRIVER if spec.get("awsElasticBlockStore") else "")
    return PersistentVolume(decode_metadata(obj), _node_selector_terms(terms, local=local), driver)


def _node_selector_terms(terms: Iterable[Json], *, local: bool) -> NodeSelectorTerms:
    alternatives = tuple(decode_node_selector_requirements(term.get("matchExpressions")) for term in terms)
    if not local:
        return alternatives
    without_hostname = tuple(
        tuple(expression for expression in term if expression.key != labels.HOSTNAME) for term in alternatives
    )
    return () if any(not term for term in without_hostname) else without_hostname


def _storage_class(obj: Json) -> StorageClass:
    provisioner = obj.get("provisioner") or ""
    return StorageClass(
        metadata=decode_metadata(obj),
        provisioner=_MIGRATED.get(provisioner, provisioner),
        waits_for_first_consumer=obj.get("volumeBindingMode") == "WaitForFirstConsumer",
        allowed_topologies=tuple(
            tuple(
                NodeSelectorRequirement(
                    match_label_expression.get("key") or "",
                    Operator.IN,
                    tuple(str(value) for value in match_label_expression.get("values") or ()),
                )
                for match_label_expression in term.get("matchLabelExpressions") or ()
            )
            for term in obj.get("allowedTopologies") or ()
        ),
    )


def _csi_node(obj: Json) -> CSINode:
    drivers = (obj.get("spec") or {}).get("drivers") or ()
    return CSINode(
        decode_metadata(obj),
        {
            driver["name"]: _volume_count(driver["allocatable"]["count"])
            for driver in drivers
            if (driver.get("allocatable") or {}).get("count") is not None
        },
    )


def _volume_count(count: Any) -> int:
    if isinstance(count, bool) or not isinstance(count, int):
        raise DecodeError(f"spec.drivers.allocatable.count: {quote(count)} is not a whole number")
    return count
