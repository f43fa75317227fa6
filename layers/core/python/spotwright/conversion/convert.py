"""Objects before v1 in, v1 objects out; all other objects stay the same."""

from collections.abc import Iterator, Sequence

import msgspec

from spotwright.conversion import (
    CLAIM_KINDS,
    CONVERTED_KINDS,
    Json,
    awsnodetemplate,
    is_karpenter_group,
    kubelet_placement,
    node_metadata,
    old_schemas,
    pod_remarks,
    provisioner,
    v1beta1,
)
from spotwright.conversion.kubelet_placement import ResultObject
from spotwright.conversion.remarks import ConversionError, ObjectRemarks, Remark, refuse
from spotwright.conversion.schema_validation import apply_schema


class ConversionResult(msgspec.Struct, frozen=True):
    """For every input object in order: the objects it was converted to, and remarks about it."""

    objects: tuple[tuple[Json, ...], ...]
    remarks: tuple[tuple[Remark, ...], ...]


def convert(objects: Sequence[Json]) -> ConversionResult:
    """Converts objects that have ``kind`` and ``metadata``.

    Objects of v1 and of other kinds stay the same, but for kubelet settings that move from a NodePool to its class.
    Raises ConversionError, whose ``origin`` is the object's index.
    """
    remarks = [ObjectRemarks(origin) for origin in range(len(objects))]
    taken = {str(obj["metadata"].get("name")) for obj in objects if obj["kind"] in ("EC2NodeClass", "AWSNodeTemplate")}
    pieces: list[ResultObject] = []
    for content, object_remarks in zip(objects, remarks, strict=True):
        try:
            pieces += _convert_object(content, object_remarks, taken)
        except ConversionError as error:
            error.origin = object_remarks.origin
            raise
        pod_remarks.note_renamed(content, object_remarks)
    _note_duplicates(pieces)
    by_origin: list[list[Json]] = [[] for _ in objects]
    for result_object in kubelet_placement.place_kubelets(pieces):
        by_origin[result_object.remarks.origin].append(result_object.content)
    return ConversionResult(
        tuple(map(tuple, by_origin)), tuple(tuple(object_remarks.remarks) for object_remarks in remarks)
    )


def _convert_object(content: Json, remarks: ObjectRemarks, taken_names: set[str]) -> Iterator[ResultObject]:
    kind, version = content["kind"], content.get("apiVersion")
    if (kind, version) in CLAIM_KINDS:
        remarks.lost("", "is left out: it stands for one instance, and applied anew it would buy another")
    elif kind in ("Provisioner", "AWSNodeTemplate") and is_karpenter_group(version):
        if version != CONVERTED_KINDS[kind]:
            refuse("apiVersion", version, f"is not {CONVERTED_KINDS[kind]}, the only one that is converted")
        yield from (
            _convert_provisioner(content, remarks, taken_names)
            if kind == "Provisioner"
            else [_convert_template(content, remarks)]
        )
    elif kind in CONVERTED_KINDS and version == CONVERTED_KINDS[kind]:
        yield _convert_v1beta1(content, remarks)
    else:
        yield ResultObject(content, remarks, kubelet=kubelet_placement.annotated_kubelet(content), is_converted=False)


def _convert_provisioner(content: Json, remarks: ObjectRemarks, taken_names: set[str]) -> Iterator[ResultObject]:
    """A NodePool, and an EC2NodeClass if the Provisioner has a provider of its own."""
    metadata = _metadata(content, remarks)
    spec = _spec(content, old_schemas.provisioner(), remarks)
    provider = spec.get("provider")
    if provider is not None and "providerRef" in spec:
        refuse("spec.providerRef", spec["providerRef"], "cannot be combined with provider")
    name = "" if provider is None else kubelet_placement.free_name(metadata["name"], taken_names)
    pool, kubelet = provisioner.nodepool_spec(spec, remarks, name)
    yield _result_object("NodePool", "karpenter.sh/v1", metadata, pool, remarks, kubelet or None)
    if provider is not None:
        taken_names.add(name)
        nodeclass = awsnodetemplate.nodeclass_spec(provider, "spec.provider", remarks)
        yield _result_object("EC2NodeClass", "karpenter.k8s.aws/v1", {"name": name}, nodeclass, remarks)


def _convert_template(content: Json, remarks: ObjectRemarks) -> ResultObject:
    metadata = _metadata(content, remarks)
    spec = _spec(content, old_schemas.aws_node_template(), remarks)
    nodeclass = awsnodetemplate.nodeclass_spec(spec, "spec", remarks)
    return _result_object("EC2NodeClass", "karpenter.k8s.aws/v1", metadata, nodeclass, remarks)


def _convert_v1beta1(content: Json, remarks: ObjectRemarks) -> ResultObject:
    metadata = _metadata(content, remarks)
    if content["kind"] == "NodePool":
        pool, kubelet = v1beta1.nodepool_spec(_spec(content, old_schemas.nodepool_v1beta1(), remarks), remarks)
        return _result_object("NodePool", "karpenter.sh/v1", metadata, pool, remarks, kubelet or None)
    spec = _spec(content, old_schemas.ec2_nodeclass_v1beta1(), remarks)
    return _result_object(
        "EC2NodeClass", "karpenter.k8s.aws/v1", metadata, v1beta1.nodeclass_spec(spec, remarks), remarks
    )


def _spec(content: Json, schema: Json, remarks: ObjectRemarks) -> Json:
    """``spec``, validated by its schema; unknown fields of the object become remarks."""
    for name in content:
        if name not in ("apiVersion", "kind", "metadata", "spec", "status"):
            remarks.lost(name, f"{content['kind']} has no such field")
    raw = content.get("spec")
    spec: Json = apply_schema(
        {} if raw is None else raw, schema, "spec", remarks, f"{content['apiVersion']} {content['kind']}"
    )
    return spec


def _metadata(content: Json, remarks: ObjectRemarks) -> Json:
    metadata = node_metadata.object_metadata(content, remarks)
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        refuse("metadata.name", name, "is not a name")
    return metadata


def _result_object(
    kind: str, version: str, metadata: Json, spec: Json, remarks: ObjectRemarks, kubelet: Json | None = None
) -> ResultObject:
    """A v1 object, validated by Spotwright's CRD."""
    validated = apply_schema(spec, old_schemas.v1(kind), f"as v1 {kind}: spec", remarks, f"v1 {kind}")
    return ResultObject(
        {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": validated}, remarks, kubelet=kubelet
    )


def _note_duplicates(pieces: Sequence[ResultObject]) -> None:
    """Notes objects with the same kind and name: after ``kubectl apply`` only the last remains."""
    keys: set[tuple[str, str]] = set()
    for result_object in pieces:
        if result_object.is_converted and result_object.key in keys:
            result_object.remarks.to_do(
                "", f"{' '.join(result_object.key)} is there already, from another object: keep one of them"
            )
        if result_object.content["kind"] in ("NodePool", "EC2NodeClass"):
            keys.add(result_object.key)
