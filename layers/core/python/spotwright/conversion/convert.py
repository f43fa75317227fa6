"""Old objects in, v1 objects out; everything that is not old passes."""

from collections.abc import Iterator, Sequence

import msgspec

from spotwright.conversion import (
    CLAIMS,
    OLD,
    Json,
    awsnodetemplate,
    is_karpenters,
    kubelets,
    nodes,
    pods,
    provisioner,
    schemas,
    v1beta1,
)
from spotwright.conversion.kubelets import Piece
from spotwright.conversion.remarks import ConversionError, Remark, Told, refuse
from spotwright.conversion.shape import shaped


class Result(msgspec.Struct, frozen=True):
    """For each object that was given: what has become of it, and what is to be said about it."""

    objects: tuple[tuple[Json, ...], ...]
    remarks: tuple[tuple[Remark, ...], ...]


def converted(objects: Sequence[Json]) -> Result:
    """Every object as v1 has it. ``objects``: each with ``kind`` and ``metadata``.

    An object of v1, or of any other kind, is the same afterwards; only a class that takes its NodePools' kubelet
    settings is not, nor is such a NodePool. Raises ConversionError, whose ``origin`` is the object's index.
    """
    told = [Told(origin) for origin in range(len(objects))]
    taken = {str(one["metadata"].get("name")) for one in objects if one["kind"] in ("EC2NodeClass", "AWSNodeTemplate")}
    pieces: list[Piece] = []
    for content, about in zip(objects, told, strict=True):
        try:
            pieces += _pieces(content, about, taken)
        except ConversionError as error:
            error.origin = about.origin
            raise
        pods.remark(content, about)
    _repeated(pieces)
    made: list[list[Json]] = [[] for _ in objects]
    for one in kubelets.settle(pieces):
        made[one.told.origin].append(one.content)
    return Result(tuple(map(tuple, made)), tuple(tuple(about.remarks) for about in told))


def _pieces(content: Json, told: Told, taken: set[str]) -> Iterator[Piece]:
    kind, version = content["kind"], content.get("apiVersion")
    if (kind, version) in CLAIMS:
        told.lost("", "is left out: it stands for one instance, and applied anew it would buy another")
    elif kind in ("Provisioner", "AWSNodeTemplate") and is_karpenters(version):
        if version != OLD[kind]:
            refuse("apiVersion", version, f"is not {OLD[kind]}, the only one that is converted")
        yield from _provisioner(content, told, taken) if kind == "Provisioner" else [_template(content, told)]
    elif kind in OLD and version == OLD[kind]:
        yield _beta(content, told)
    else:
        yield Piece(content, told, kubelet=kubelets.annotated(content), made=False)


def _provisioner(content: Json, told: Told, taken: set[str]) -> Iterator[Piece]:
    """A NodePool, and the class of the Provisioner's own provider."""
    metadata = _metadata(content, told)
    spec = _spec(content, schemas.provisioner(), told)
    own = spec.get("provider")
    if own is not None and "providerRef" in spec:
        refuse("spec.providerRef", spec["providerRef"], "cannot be combined with provider")
    name = "" if own is None else kubelets.free_name(metadata["name"], taken)
    made, kubelet = provisioner.node_pool_spec(spec, told, name)
    yield _made("NodePool", "karpenter.sh/v1", metadata, made, told, kubelet or None)
    if own is not None:
        taken.add(name)
        inner = awsnodetemplate.node_class_spec(own, "spec.provider", told)
        yield _made("EC2NodeClass", "karpenter.k8s.aws/v1", {"name": name}, inner, told)


def _template(content: Json, told: Told) -> Piece:
    metadata = _metadata(content, told)
    spec = _spec(content, schemas.aws_node_template(), told)
    made = awsnodetemplate.node_class_spec(spec, "spec", told)
    return _made("EC2NodeClass", "karpenter.k8s.aws/v1", metadata, made, told)


def _beta(content: Json, told: Told) -> Piece:
    metadata = _metadata(content, told)
    if content["kind"] == "NodePool":
        made, kubelet = v1beta1.node_pool_spec(_spec(content, schemas.node_pool_v1beta1(), told), told)
        return _made("NodePool", "karpenter.sh/v1", metadata, made, told, kubelet or None)
    spec = _spec(content, schemas.ec2_node_class_v1beta1(), told)
    return _made("EC2NodeClass", "karpenter.k8s.aws/v1", metadata, v1beta1.node_class_spec(spec, told), told)


def _spec(content: Json, schema: Json, told: Told) -> Json:
    """``spec`` as its schema has it; other fields of the object are told."""
    for name in content:
        if name not in ("apiVersion", "kind", "metadata", "spec", "status"):
            told.lost(name, f"{content['kind']} has no such field")
    given = content.get("spec")
    spec: Json = shaped(
        {} if given is None else given, schema, "spec", told, f"{content['apiVersion']} {content['kind']}"
    )
    return spec


def _metadata(content: Json, told: Told) -> Json:
    found = nodes.object_metadata(content, told)
    name = found.get("name")
    if not isinstance(name, str) or not name:
        refuse("metadata.name", name, "is not a name")
    return found


def _made(kind: str, version: str, metadata: Json, spec: Json, told: Told, kubelet: Json | None = None) -> Piece:
    """A v1 object, held against our own definition."""
    sound = shaped(spec, schemas.v1(kind), f"as v1 {kind}: spec", told, f"v1 {kind}")
    return Piece({"apiVersion": version, "kind": kind, "metadata": metadata, "spec": sound}, told, kubelet=kubelet)


def _repeated(pieces: Sequence[Piece]) -> None:
    """Of objects with the same name ``kubectl apply`` leaves the last."""
    seen: set[tuple[str, str]] = set()
    for one in pieces:
        if one.made and one.key in seen:
            one.told.to_do("", f"{' '.join(one.key)} is there already, from another object: keep one of them")
        if one.content["kind"] in ("NodePool", "EC2NodeClass"):
            seen.add(one.key)
