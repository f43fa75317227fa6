"""Functions that make the OpenAPI schemas of the CustomResourceDefinitions.

Facets have their OpenAPI names (``maxLength``, ``pattern``, ``default`` …). Source of the dialect:
https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definitions/
"""

from collections.abc import Mapping, Sequence
from typing import Any

type Schema = dict[str, Any]
type Rule = dict[str, str]


def string(description: str, *, rules: Sequence[Rule] = (), **facets: Any) -> Schema:
    return {"type": "string"} | _description(description) | facets | _validations(rules)


def enum(description: str, *values: str, **facets: Any) -> Schema:
    """A string that is one of ``values``."""
    return string(description, enum=list(values), **facets)


def integer(description: str, minimum: int, maximum: int | None = None, **facets: Any) -> Schema:
    """A whole number; its format is int32 if ``maximum`` is below 2^31."""
    size = "int32" if maximum is not None and maximum < 2**31 else "int64"
    bounds = {"minimum": minimum} | ({} if maximum is None else {"maximum": maximum})
    return {"type": "integer", "format": size} | _description(description) | bounds | facets


def boolean(description: str, **facets: Any) -> Schema:
    return {"type": "boolean"} | _description(description) | facets


def date_time(description: str) -> Schema:
    return string(description, format="date-time")


def quantity(description: str, **facets: Any) -> Schema:
    """A Kubernetes quantity: ``2``, ``500m``, ``1.5Gi``."""
    kind = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}
    return _description(description) | kind | {"pattern": QUANTITY} | facets


def array(
    description: str,
    of: Schema,
    *,
    kind: str = "atomic",
    keys: Sequence[str] = (),
    rules: Sequence[Rule] = (),
    **facets: Any,
) -> Schema:
    """A list. ``kind``: atomic (replaced as a whole), set, or map (merged by the fields ``keys``)."""
    merge: Schema = {"x-kubernetes-list-type": kind}
    if keys:
        merge["x-kubernetes-list-map-keys"] = list(keys)
    return {"type": "array"} | _description(description) | {"items": of} | merge | facets | _validations(rules)


def map_of(description: str, of: Schema, *, rules: Sequence[Rule] = (), **facets: Any) -> Schema:
    """A map with free keys and a schema for all its values."""
    return {"type": "object"} | _description(description) | {"additionalProperties": of} | facets | _validations(rules)


def object_with(
    description: str,
    properties: Mapping[str, Schema],
    *,
    required: Sequence[str] = (),
    rules: Sequence[Rule] = (),
    **facets: Any,
) -> Schema:
    """An object with named fields; the API server prunes all others."""
    shape: Schema = {"type": "object"} | _description(description) | {"properties": dict(properties)}
    if required:
        shape["required"] = list(required)
    return shape | facets | _validations(rules)


def rule(expression: str, message: str) -> Rule:
    """A CEL expression that must hold, and the message when it does not."""
    return {"rule": expression, "message": message}


def _description(description: str) -> Schema:
    """A description; "" = none, which fields of the CRDs must not have."""
    return {"description": description} if description else {}


def _validations(rules: Sequence[Rule]) -> Schema:
    return {"x-kubernetes-validations": list(rules)} if rules else {}


def printer_column(name: str, path: str, kind: str = "string", priority: int = 0) -> Schema:
    """A column of `kubectl get`; priority 1 shows with `-o wide` only."""
    return {"name": name, "jsonPath": path, "type": kind} | ({"priority": priority} if priority else {})


def custom_resource_definition(
    *,
    group: str,
    kind: str,
    description: str,
    spec: Schema,
    status: Schema,
    columns: Sequence[Schema],
    short_names: Sequence[str] = (),
    scale: Mapping[str, str] | None = None,
    version: str = "v1",
) -> Schema:
    """The CustomResourceDefinition of a cluster-scoped kind with a single version."""
    plural = kind.lower() + ("es" if kind.endswith("s") else "s")
    names: Schema = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    names |= {"categories": ["karpenter"]} | ({"shortNames": list(short_names)} if short_names else {})
    served: Schema = {
        "name": version,
        "served": True,
        "storage": True,
        "additionalPrinterColumns": list(columns),
        "subresources": {"status": {}} | ({"scale": dict(scale)} if scale else {}),
        "schema": {"openAPIV3Schema": _object(description, spec, status)},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {"group": group, "names": names, "scope": "Cluster", "versions": [served]},
    }


def _object(description: str, spec: Schema, status: Schema) -> Schema:
    """A Kubernetes object; the API server itself checks apiVersion, kind and metadata."""
    properties: Schema = {
        "apiVersion": string("Group and version of this object's schema."),
        "kind": string("The kind of this object."),
        "metadata": {"type": "object"},
        "spec": spec,
        "status": status,
    }
    return object_with(description, properties, required=["spec"])


QUANTITY = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
