"""CloudFormation's intrinsic functions, conditions and parameters. Pure, but for the look-ups handed in."""

import base64
import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from local.aws.cloudformation.template import InvalidTemplate, Template, substitute, variable_names

_DYNAMIC = re.compile(r"\{\{resolve:(ssm|ssm-secure):([^:}]+)(?::\d+)?\}\}")


class _NoValue:
    """What `Ref: AWS::NoValue` leaves: the property is not there."""


NO_VALUE = _NoValue()


@dataclass(frozen=True)
class PhysicalResource:
    """A resource that exists: what Ref and Fn::GetAtt give."""

    physical_id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    ref: str = ""

    def attribute(self, name: str) -> Any:
        """Raises KeyError for an attribute the resource does not have."""
        if name in self.attributes:
            return self.attributes[name]
        value: Any = self.attributes
        for part in name.split("."):
            value = value[part]
        return value


@dataclass
class Scope:
    """Everything a template may refer to. `resources` grows while they are created."""

    template: Template
    parameters: Mapping[str, Any]
    pseudo_parameters: Mapping[str, Any]
    exports: Mapping[str, str]
    availability_zones: tuple[str, ...]
    read_parameter: Callable[[str], str]
    resources: dict[str, PhysicalResource] = field(default_factory=dict)

    def condition(self, name: str) -> bool:
        conditions = self.template.get("Conditions", {})
        if name not in conditions:
            raise InvalidTemplate(f"Template error: unresolved condition dependency {name}")
        return bool(self.resolve(conditions[name]))

    def is_included(self, resource: Mapping[str, Any]) -> bool:
        return "Condition" not in resource or self.condition(resource["Condition"])

    def resolve(self, value: Any) -> Any:
        """`value` with every function applied; raises InvalidTemplate."""
        match value:
            case dict() if len(value) == 1:
                name, argument = next(iter(value.items()))
                function = _FUNCTIONS.get(name)
                if function is not None:
                    return function(self, argument)
                return self._members(value)
            case dict():
                return self._members(value)
            case list():
                return [item for item in map(self.resolve, value) if item is not NO_VALUE]
            case str() if "{{resolve:" in value:
                return _DYNAMIC.sub(lambda match: self.read_parameter(match[2]), value)
            case _:
                return value

    def _members(self, value: Mapping[str, Any]) -> dict[str, Any]:
        resolved = {key: self.resolve(item) for key, item in value.items()}
        return {key: item for key, item in resolved.items() if item is not NO_VALUE}

    def ref(self, name: str) -> Any:
        if name == "AWS::NoValue":
            return NO_VALUE
        for known in (self.pseudo_parameters, self.parameters):
            if name in known:
                return known[name]
        if name in self.resources:
            return self.resources[name].ref or self.resources[name].physical_id
        raise InvalidTemplate(f"Template error: Ref to {name}, which does not exist")

    def attribute(self, name: str, path: str) -> Any:
        if name not in self.resources:
            raise InvalidTemplate(f"Template error: instance of Fn::GetAtt references undefined resource {name}")
        try:
            return self.resources[name].attribute(path)
        except (KeyError, TypeError):
            raise InvalidTemplate(f"Template error: resource {name} has no attribute {path}") from None


def _get_att(scope: Scope, argument: Any) -> Any:
    name, path = argument.split(".", 1) if isinstance(argument, str) else argument
    return scope.attribute(name, scope.resolve(path))


def _sub(scope: Scope, argument: Any) -> str:
    text, variables = argument if isinstance(argument, list) else (argument, {})
    values = {}
    for name in variable_names(text):
        if name in variables:
            value = scope.resolve(variables[name])
        elif "." in name:
            value = scope.attribute(*name.split(".", 1))
        else:
            value = scope.ref(name)
        values[name] = as_text(value)
    return substitute(text, values)


def _join(scope: Scope, argument: Any) -> str:
    separator, parts = argument
    return str(separator).join(as_text(part) for part in scope.resolve(parts))


def _split(scope: Scope, argument: Any) -> list[str]:
    separator, text = argument
    return str(scope.resolve(text)).split(separator)


def _select(scope: Scope, argument: Any) -> Any:
    index, parts = scope.resolve(argument[0]), scope.resolve(argument[1])
    try:
        return parts[int(index)]
    except (IndexError, ValueError):
        raise InvalidTemplate("Template error: Fn::Select cannot select nonexistent value") from None


def _if(scope: Scope, argument: Any) -> Any:
    name, then, otherwise = argument
    return scope.resolve(then if scope.condition(name) else otherwise)


def _find_in_map(scope: Scope, argument: Any) -> Any:
    keys = [scope.resolve(key) for key in argument[:3]]
    value: Any = scope.template.get("Mappings", {})
    for key in keys:
        if key not in value:
            if len(argument) > 3:
                return scope.resolve(argument[3]["DefaultValue"])
            raise InvalidTemplate(f"Template error: Unable to get mapping for {'::'.join(map(str, keys))}")
        value = value[key]
    return value


def _import_value(scope: Scope, argument: Any) -> str:
    name = scope.resolve(argument)
    if name not in scope.exports:
        raise InvalidTemplate(f"No export named {name} found.")
    return scope.exports[name]


def _cidr(scope: Scope, argument: Any) -> list[str]:
    block, count, *bits = scope.resolve(argument)
    network = ipaddress.ip_network(block)
    prefix = network.max_prefixlen - int(bits[0] if bits else 8)
    return [str(subnet) for subnet, _ in zip(network.subnets(new_prefix=prefix), range(int(count)), strict=False)]


def as_text(value: Any) -> str:
    """As CloudFormation writes values into strings."""
    match value:
        case bool():
            return "true" if value else "false"
        case list():
            return ",".join(as_text(item) for item in value)
        case _:
            return str(value)


type _Function = Callable[[Scope, Any], Any]

_FUNCTIONS: dict[str, _Function] = {
    "Ref": lambda scope, name: scope.ref(name),
    "Condition": lambda scope, name: scope.condition(name)
    if isinstance(name, str)
    else {"Condition": scope.resolve(name)},
    "Fn::And": lambda scope, tests: all(scope.resolve(test) for test in tests),
    "Fn::Base64": lambda scope, text: base64.b64encode(str(scope.resolve(text)).encode()).decode(),
    "Fn::Cidr": _cidr,
    "Fn::Contains": lambda scope, pair: scope.resolve(pair[1]) in scope.resolve(pair[0]),
    "Fn::Equals": lambda scope, pair: as_text(scope.resolve(pair[0])) == as_text(scope.resolve(pair[1])),
    "Fn::FindInMap": _find_in_map,
    "Fn::GetAZs": lambda scope, _region: list(scope.availability_zones),
    "Fn::GetAtt": _get_att,
    "Fn::If": _if,
    "Fn::ImportValue": _import_value,
    "Fn::Join": _join,
    "Fn::Length": lambda scope, items: len(scope.resolve(items)),
    "Fn::Not": lambda scope, tests: not scope.resolve(tests[0]),
    "Fn::Or": lambda scope, tests: any(scope.resolve(test) for test in tests),
    "Fn::Select": _select,
    "Fn::Split": _split,
    "Fn::Sub": _sub,
    "Fn::ToJsonString": lambda scope, value: json.dumps(scope.resolve(value)),
}


def resolve_parameters(
    template: Template, provided: Mapping[str, str], previous: Mapping[str, str], read_parameter: Callable[[str], str]
) -> dict[str, Any]:
    """Every parameter's value: given, else previous, else its default; SSM types are looked up.

    Raises InvalidTemplate for a missing, unknown or disallowed value.
    """
    declared: Mapping[str, Mapping[str, Any]] = template.get("Parameters", {})
    unknown = sorted(provided.keys() - declared.keys())
    if unknown:
        raise InvalidTemplate(f"Parameters: [{', '.join(unknown)}] do not exist in the template")
    missing = [
        name
        for name, parameter in declared.items()
        if name not in provided and name not in previous and "Default" not in parameter
    ]
    if missing:
        raise InvalidTemplate(f"Parameters: [{', '.join(missing)}] must have values")
    return {
        name: _parameter(
            name, parameter, provided.get(name, previous.get(name, parameter.get("Default"))), read_parameter
        )
        for name, parameter in declared.items()
    }


def _parameter(name: str, declared: Mapping[str, Any], value: Any, stored: Callable[[str], str]) -> Any:
    allowed = declared.get("AllowedValues")
    if allowed is not None and str(value) not in map(str, allowed):
        raise InvalidTemplate(f"Parameter {name} must be one of AllowedValues")
    pattern = declared.get("AllowedPattern")
    if pattern is not None and not re.fullmatch(pattern, str(value)):
        raise InvalidTemplate(f"Parameter {name} failed to satisfy constraint: must match pattern {pattern}")
    kind = str(declared.get("Type", "String"))
    if kind.startswith("AWS::SSM::Parameter::Value"):
        value, kind = stored(str(value)), kind.removeprefix("AWS::SSM::Parameter::Value<").removesuffix(">")
    if kind.startswith("List<") or kind == "CommaDelimitedList":
        return [part.strip() for part in str(value).split(",")] if str(value) else []
    return as_text(value)


def check_rules(scope: Scope) -> None:
    """The template's Rules section: every assertion of a rule whose condition holds; raises InvalidTemplate."""
    for name, rule in scope.template.get("Rules", {}).items():
        if "RuleCondition" in rule and not scope.resolve(rule["RuleCondition"]):
            continue
        for assertion in rule.get("Assertions", ()):
            if not scope.resolve(assertion["Assert"]):
                raise InvalidTemplate(f"Rule {name}: {assertion.get('AssertDescription', 'assertion failed')}")
