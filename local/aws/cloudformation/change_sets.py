"""What an update would change: the contents of a change set, without touching anything."""

from collections.abc import Mapping
from typing import Any

from local.aws.cloudformation import schemas
from local.aws.cloudformation.deployment import is_custom_resource, stack_outputs
from local.aws.cloudformation.intrinsics import PhysicalResource, Scope
from local.aws.cloudformation.stacks import Stack, StackInput, StackResource
from local.aws.cloudformation.template import InvalidTemplate, dependency_order


class KnownAfterApply(Mapping[str, Any]):
    """Attributes of a resource that is still to be made: any name, a text that stands for the value."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getitem__(self, attribute: str) -> str:
        return f"{{{{changeSet:KNOWN_AFTER_APPLY:{self._name}.{attribute}}}}}"

    def __contains__(self, _attribute: object) -> bool:
        return True

    def __iter__(self) -> Any:
        return iter(())

    def __len__(self) -> int:
        return 0


def resource_changes(stack: Stack, request: StackInput, scope: Scope, region: str) -> list[dict[str, Any]]:
    """One entry per resource that would be added, modified or removed, in the order of the work."""
    resources = request.template["Resources"]
    found = []
    wanted = [name for name in dependency_order(resources) if scope.is_included(resources[name])]
    for name in wanted:
        change, physical = _change(name, resources[name], stack.resources.get(name), scope, region)
        scope.resources[name] = physical
        if change is not None:
            found.append(change)
    stack_resources = [resource for name, resource in stack.resources.items() if name not in wanted]
    return found + [_entry("Remove", resource.name, resource.type, resource) for resource in stack_resources]


def is_unchanged(stack: Stack, request: StackInput, scope: Scope, found: list[dict[str, Any]]) -> bool:
    """Whether executing would do nothing at all: no resource, output, or tag differs."""
    before = stack.input
    if before is None or found or dict(before.tags) != dict(request.tags):
        return False
    old, new = before.template["Resources"], request.template["Resources"]
    try:
        return bool(old == new and stack.outputs == stack_outputs(scope))
    except InvalidTemplate:
        return False


def _change(
    name: str, definition: Mapping[str, Any], before: StackResource | None, scope: Scope, region: str
) -> tuple[dict[str, Any] | None, PhysicalResource]:
    """The change, and what references to the resource give afterwards."""
    kind, unknown = (
        definition["Type"],
        PhysicalResource(f"{{{{changeSet:KNOWN_AFTER_APPLY:{name}}}}}", KnownAfterApply(name)),
    )
    if before is None:
        return _entry("Add", name, kind, None), unknown
    after = _properties(kind, definition, scope, region)
    if before.type == kind and after == before.properties:
        if {**before.definition, "Properties": 0} == {**definition, "Properties": 0}:
            return None, before.physical
        entry = _entry("Modify", name, kind, before)
        entry["ResourceChange"] |= {"Replacement": "False", "Scope": ["Metadata"]}
        return entry, before.physical
    recreated = before.type != kind or _replaces(kind, region, before.properties, after)
    entry = _entry("Modify", name, kind, before)
    entry["ResourceChange"] |= {
        "Replacement": "True" if recreated else "False",
        "Scope": ["Properties"],
        "Details": [
            _detail(kind, region, before.properties, after, key)
            for key in sorted(before.properties.keys() | after.keys())
            if before.properties.get(key) != after.get(key)
        ],
    }
    return entry, unknown if recreated else before.physical


def _properties(kind: str, definition: Mapping[str, Any], scope: Scope, region: str) -> dict[str, Any]:
    """As the handler would get them; a placeholder that does not fit the schema stays as it is."""
    properties = dict(scope.resolve(definition.get("Properties", {})))
    if is_custom_resource(kind):
        return properties
    try:
        return schemas.validate_properties(kind, region, properties)
    except schemas.InvalidProperties:
        return properties


def _replaces(kind: str, region: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    return not is_custom_resource(kind) and schemas.requires_replacement(kind, region, before, after)


def _detail(kind: str, region: str, before: Mapping[str, Any], after: Mapping[str, Any], key: str) -> dict[str, Any]:
    recreated = _replaces(kind, region, {key: before.get(key)}, {key: after.get(key)})
    return {
        "Target": {
            "Attribute": "Properties",
            "Name": key,
            "RequiresRecreation": "Always" if recreated else "Never",
        },
        "Evaluation": "Static",
        "ChangeSource": "DirectModification",
    }


def _entry(action: str, name: str, kind: str, before: StackResource | None) -> dict[str, Any]:
    change: dict[str, Any] = {"Action": action, "LogicalResourceId": name, "ResourceType": kind}
    change |= {"Scope": [], "Details": []}
    if before is not None:
        change["PhysicalResourceId"] = before.physical.physical_id
    if action == "Remove":
        change["PolicyAction"] = (
            "Retain" if (before and "Retain" in str(before.definition.get("DeletionPolicy"))) else "Delete"
        )
    return {"Type": "Resource", "ResourceChange": change}
