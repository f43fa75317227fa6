"""A CloudFormation template: read from JSON or YAML, checked, its resources ordered. Pure."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

PSEUDO_PARAMETERS = frozenset(
    f"AWS::{name}"
    for name in (
        "AccountId",
        "NoValue",
        "NotificationARNs",
        "Partition",
        "Region",
        "StackId",
        "StackName",
        "URLSuffix",
    )
)
SECTIONS = frozenset(
    (
        "AWSTemplateFormatVersion",
        "Conditions",
        "Description",
        "Mappings",
        "Metadata",
        "Outputs",
        "Parameters",
        "Resources",
        "Rules",
    )
)
_SUBSTITUTION = re.compile(r"\$\{([^!${}][^${}]*)\}")

type Template = dict[str, Any]


class InvalidTemplate(Exception):
    """The template or a parameter is wrong: AWS's ValidationError, with this text."""


class _Loader(yaml.SafeLoader):
    """YAML with CloudFormation's short forms (`!Ref x`), dates left as text."""


def _short_form(loader: _Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
        if suffix == "GetAtt":
            value = value.split(".", 1)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        assert isinstance(node, yaml.MappingNode)
        value = loader.construct_mapping(node, deep=True)
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _short_form)
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def parse_template(body: str) -> Template:
    """Raises InvalidTemplate for a text that is no template."""
    try:
        template = json.loads(body) if body.lstrip().startswith("{") else yaml.load(body, _Loader)
    except (ValueError, yaml.YAMLError) as error:
        raise InvalidTemplate(f"Template format error: {error}") from None
    if not isinstance(template, dict) or not template.get("Resources"):
        raise InvalidTemplate("Template format error: At least one Resources member must be defined.")
    unknown = sorted(template.keys() - SECTIONS)
    if unknown:
        raise InvalidTemplate(f"Invalid template property or properties [{', '.join(unknown)}]")
    return template


def check_template(template: Template, known_types: Mapping[str, object]) -> None:
    """Raises InvalidTemplate for unknown resource types, references to nothing and circular dependencies."""
    resources = template["Resources"]
    for name, resource in resources.items():
        if not isinstance(resource, dict) or not resource.get("Type"):
            raise InvalidTemplate(
                f"Template format error: [/Resources/{name}] Every Resources object must contain a Type member."
            )
    unknown = sorted({r["Type"] for r in resources.values() if not _is_known(r["Type"], known_types)})
    if unknown:
        raise InvalidTemplate(f"Template format error: Unrecognized resource types: [{', '.join(unknown)}]")
    known = resources.keys() | template.get("Parameters", {}).keys() | PSEUDO_PARAMETERS
    for section in ("Resources", "Outputs"):
        missing = sorted(references(template.get(section, {})) - known)
        if missing:
            raise InvalidTemplate(
                f"Template format error: Unresolved resource dependencies [{', '.join(missing)}] "
                f"in the {section} block of the template"
            )
    dependency_order(resources)


def _is_known(name: str, known: Mapping[str, object]) -> bool:
    return name in known or name.startswith("Custom::")


def references(value: Any) -> set[str]:
    """Logical names that a value mentions by Ref, Fn::GetAtt, Fn::Sub or DependsOn."""
    return set(_references(value))


def _references(value: Any) -> Iterator[str]:
    match value:
        case {"Ref": str(name)} if len(value) == 1:
            yield name
        case {"Fn::GetAtt": [str(name), *_]} if len(value) == 1:
            yield name
        case {"Fn::GetAtt": str(path)} if len(value) == 1:
            yield path.partition(".")[0]
        case {"Fn::Sub": substitution} if len(value) == 1:
            text, variables = substitution if isinstance(substitution, list) else (substitution, {})
            yield from (name.partition(".")[0] for name in variable_names(text) if name not in variables)
            yield from _references(variables)
        case dict():
            for item in value.values():
                yield from _references(item)
        case list():
            for item in value:
                yield from _references(item)


def variable_names(text: str) -> list[str]:
    return [name.strip() for name in _SUBSTITUTION.findall(text)]


def substitute(text: str, values: Mapping[str, str]) -> str:
    filled = _SUBSTITUTION.sub(lambda match: values[match[1].strip()], text)
    return filled.replace("${!", "${")


def dependencies(resource: Mapping[str, Any]) -> set[str]:
    explicit = resource.get("DependsOn", [])
    named = {explicit} if isinstance(explicit, str) else set(explicit)
    return named | references(resource.get("Properties", {}))


def dependency_order(resources: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Names with each after everything it depends on; otherwise as written. Raises InvalidTemplate on a circle."""
    ordered: list[str] = []
    waiting = {name: dependencies(resource) & resources.keys() for name, resource in resources.items()}
    while waiting:
        free = [name for name, needs in waiting.items() if not needs - set(ordered) - {name}]
        if not free:
            raise InvalidTemplate(f"Circular dependency between resources: [{', '.join(sorted(waiting))}]")
        ordered += free
        for name in free:
            del waiting[name]
    return ordered
