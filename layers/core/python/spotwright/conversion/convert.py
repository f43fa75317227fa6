"""Old objects in, v1 objects out; everything that is not old passes."""

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
    """For each object that was given: what has become of it, and what is to be said about it."""

    objects: tuple[tuple[Json, ...], ...]
    remarks: tuple[tuple[Remark, ...], ...]


def convert(objects: Sequence[Json]) -> ConversionResult:
    """Every object as v1 has it. ``objects``: each with ``kind`` and ``metadata``.

    An object of v1, or of any other kind, is the same afterwards; only a class that takes its NodePools' kubelet
    settings is not, nor is such a NodePool. Raises ConversionError, whose ``origin`` is the object's index.
    """
    remarks = [ObjectRemarks(origin) for origin in range(len(objects))]
    taken = {str(one["metadata"].get("name")) for one in objects if one["kind"] in ("EC2NodeClass", "AWSNodeTemplate")}
    pieces: list[ResultObject] = []
    for content, about in zip(objects, remarks, strict=True):
        try:
            pieces += _pieces(content, about, taken)
        except ConversionError as error:
            error.origin = about.origin
            raise
        pod_remarks.note_renamed(content, about)
    _repeated(pieces)
    made: list[list[Json]] = [[] for _ in objects]
    for result_object in kubelet_placement.place_kubelets(pieces):
        made[result_object.remarks.origin].append(result_object.content)
    return ConversionResult(tuple(map(tuple, made)), tuple(tuple(about.remarks) for about in remarks))


def _pieces(content: Json, remarks: ObjectRemarks, taken: set[str]) -> Iterator[ResultObject]:
    kind, version = content["kind"], content.get("apiVersion")
    if (kind, version) in CLAIM_KINDS:
        remarks.lost("", "is left out: it stands for one instance, and applied anew it would buy another")
    elif kind in ("Provisioner", "AWSNodeTemplate") and is_karpenter_group(version):
        if version != CONVERTED_KINDS[kind]:
            refuse("apiVersion", version, f"is not {CONVERTED_KINDS[kind]}, the only one that is converted")
        yield from _provisioner(content, remarks, taken) if kind == "Provisioner" else [_template(content, remarks)]
    elif kind in CONVERTED_KINDS and version == CONVERTED_KINDS[kind]:
        yield _beta(content, remarks)
    else:
        yield ResultObject(content, remarks, kubelet=kubelet_placement.annotated_kubelet(content), is_converted=False)


def _provisioner(content: Json, remarks: ObjectRemarks, taken: set[str]) -> Iterator[ResultObject]:
    """A NodePool, and the class of the Provisioner's own provider."""
    metadata = _metadata(content, remarks)
    spec = _spec(content, old_schemas.provisioner(), remarks)
    own = spec.get("provider")
    if own is not None and "providerRef" in spec:
        refuse("spec.providerRef", spec["providerRef"], "cannot be combined with provider")
    name = "" if own is None else kubelet_placement.free_name(metadata["name"], taken)
    made, kubelet = provisioner.nodepool_spec(spec, remarks, name)
    yield _made("NodePool", "karpenter.sh/v1", metadata, made, remarks, kubelet or None)
    if own is not None:
        taken.add(name)
        inner = awsnodetemplate.nodeclass_spec(own, "spec.provider", remarks)
        yield _made("EC2NodeClass", "karpenter.k8s.aws/v1", {"name": name}, inner, remarks)


def _template(content: Json, remarks: ObjectRemarks) -> ResultObject:
    metadata = _metadata(content, remarks)
    spec = _spec(content, old_schemas.aws_node_template(), remarks)
    made = awsnodetemplate.nodeclass_spec(spec, "spec", remarks)
    return _made("EC2NodeClass", "karpenter.k8s.aws/v1", metadata, made, remarks)


def _beta(content: Json, remarks: ObjectRemarks) -> ResultObject:
    metadata = _metadata(content, remarks)
    if content["kind"] == "NodePool":
        made, kubelet = v1beta1.nodepool_spec(_spec(content, old_schemas.nodepool_v1beta1(), remarks), remarks)
        return _made("NodePool", "karpenter.sh/v1", metadata, made, remarks, kubelet or None)
    spec = _spec(content, old_schemas.ec2_nodeclass_v1beta1(), remarks)
    return _made("EC2NodeClass", "karpenter.k8s.aws/v1", metadata, v1beta1.nodeclass_spec(spec, remarks), remarks)


def _spec(content: Json, schema: Json, remarks: ObjectRemarks) -> Json:
    """``spec`` as its schema has it; other fields of the object are told."""
    for name in content:
        if name not in ("apiVersion", "kind", "metadata", "spec", "status"):
            remarks.lost(name, f"{content['kind']} has no such field")
    given = content.get("spec")
    spec: Json = apply_schema(
        {} if given is None else given, schema, "spec", remarks, f"{content['apiVersion']} {content['kind']}"
    )
    return spec


def _metadata(content: Json, remarks: ObjectRemarks) -> Json:
    found = node_metadata.object_metadata(content, remarks)
    name = found.get("name")
    if not isinstance(name, str) or not name:
        refuse("metadata.name", name, "is not a name")
    return found


def _made(
    kind: str, version: str, metadata: Json, spec: Json, remarks: ObjectRemarks, kubelet: Json | None = None
) -> ResultObject:
    """A v1 object, held against our own definition."""
    sound = apply_schema(spec, old_schemas.v1(kind), f"as v1 {kind}: spec", remarks, f"v1 {kind}")
    return ResultObject(
        {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": sound}, remarks, kubelet=kubelet
    )


def _repeated(pieces: Sequence[ResultObject]) -> None:
    """Of objects with the same name ``kubectl apply`` leaves the last."""
    seen: set[tuple[str, str]] = set()
    for result_object in pieces:
        if result_object.is_converted and result_object.key in seen:
            result_object.remarks.to_do(
                "", f"{' '.join(result_object.key)} is there already, from another object: keep one of them"
            )
        if result_object.content["kind"] in ("NodePool", "EC2NodeClass"):
            seen.add(result_object.key)
