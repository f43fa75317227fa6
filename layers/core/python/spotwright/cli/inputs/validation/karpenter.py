"""Objects of Karpenter's kinds, by the CustomResourceDefinitions that Spotwright installs."""

from collections.abc import Mapping
from functools import cache
from typing import Any, Final

from spotwright.adapters.kubernetes.codecs.unknown_fields import MOVED_FIELDS
from spotwright.cli.inputs.validation import names
from spotwright.cli.inputs.validation.capacity_buffer import capacity_buffer_schema
from spotwright.cli.inputs.validation.expressions import broken_rules
from spotwright.cli.inputs.validation.kubernetes import KubernetesValidator, metadata_problems
from spotwright.cli.inputs.validation.problems import Kind, Problem, Problems, nearest, path_text
from spotwright.cli.inputs.validation.schema import Schema, SchemaValidator
from spotwright.manifests.crds.ec2nodeclass.definition import ec2_nodeclass
from spotwright.manifests.crds.nodeclaim import nodeclaim
from spotwright.manifests.crds.nodeoverlay import nodeoverlay
from spotwright.manifests.crds.nodepool import nodepool
from spotwright.model import resources

type Json = Mapping[str, Any]

_DEFINITIONS: Final = {
    "NodePool": nodepool,
    "NodeClaim": nodeclaim,
    "NodeOverlay": nodeoverlay,
    "EC2NodeClass": ec2_nodeclass,
}
_LIMITED: Final = (resources.CPU, resources.MEMORY, resources.EPHEMERAL_STORAGE, resources.PODS, resources.NODES)
_METADATA: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"


def karpenter_problems(content: Json, kubernetes: KubernetesValidator) -> Problems:
    """What is wrong with an object."""
    yield from karpenter_metadata_problems(content, kubernetes)
    schema = _schema(str(content["kind"]))
    yield from map(_with_advice, SchemaValidator({}, {}, broken_rules).problems(content, schema, ()))


def karpenter_metadata_problems(content: Json, kubernetes: KubernetesValidator) -> Problems:
    """What is wrong with the metadata of an object, of any version."""
    yield from metadata_problems(content, names.dns_subdomain)
    yield from kubernetes.part_problems(content["metadata"], _METADATA, ("metadata",))


def limit_remarks(content: Json) -> Problems:
    """Limits of a valid NodePool that limit nothing, since no node has such a resource."""
    limits = (content.get("spec") or {}).get("limits") if content["kind"] == "NodePool" else None
    for name in limits or ():
        if "/" not in name and not name.startswith("hugepages-") and name not in _LIMITED:
            similar = nearest(name, _LIMITED)
            hint = f", did you mean {similar}?" if similar else f"; there are {', '.join(_LIMITED)}"
            yield Problem(Kind.VALUE, ("spec", "limits", name), f"limits nothing: no node has {name}{hint}")


def _with_advice(problem: Problem) -> Problem:
    moved = MOVED_FIELDS.get(path_text(problem.path)) if problem.kind is Kind.UNKNOWN else None
    return Problem(problem.kind, problem.path, f"unknown field: {moved}") if moved else problem


@cache
def _schema(kind: str) -> Schema:
    if kind == "CapacityBuffer":
        return capacity_buffer_schema()
    definition = _DEFINITIONS[kind]()
    schema: Schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema
