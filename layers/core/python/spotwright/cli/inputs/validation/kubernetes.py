"""Objects of Kubernetes' own kinds."""

import zlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path as File
from typing import Any, Final

import msgspec

from spotwright.cli.inputs.validation import names, pods, workloads
from spotwright.cli.inputs.validation.fields import CORE, FIELDS, NOT_REQUIRED, REQUIRED
from spotwright.cli.inputs.validation.problems import Path, Problem, Problems, missing
from spotwright.cli.inputs.validation.schema import Rule, Schema, SchemaValidator

SCHEMA_FILE: Final = File(__file__).with_name("kubernetes.schema.json.z")
_RULES: Final[dict[str, Rule]] = pods.RULES | workloads.RULES
# Kinds whose names are not DNS subdomains.
_NAMES: Final[dict[str, names.Check]] = {"Namespace": names.dns_label, "Service": names.dns_label}
# Where the kinds are whose names are DNS subdomains; others may have anything that can be a part of a URL.
_SUBDOMAINS: Final = tuple(
    f"io.k8s.api.{group}." for group in ("core", "apps", "autoscaling", "batch", "policy", "scheduling", "storage")
)


class KubernetesSchema(msgspec.Struct, frozen=True):
    """``version``: of Kubernetes. ``kinds``: apiVersion → kind → (definition, whether it lives in a namespace)."""

    version: str
    kinds: dict[str, dict[str, tuple[str, bool]]]
    definitions: dict[str, dict[str, Any]]


@cache
def kubernetes_schema() -> KubernetesSchema:
    schema = msgspec.json.decode(zlib.decompress(SCHEMA_FILE.read_bytes()), type=KubernetesSchema)
    for name, fields in NOT_REQUIRED.items():
        required = schema.definitions[name]["required"]
        schema.definitions[name]["required"] = [field for field in required if field not in fields]
    return schema


class KubernetesValidator:
    """Validates objects; equal pod specs only once, since pods of a workload have the same."""

    def __init__(self) -> None:
        self._schema = kubernetes_schema()
        rules = {name: _rule(name) for name in {*FIELDS, *REQUIRED, *_RULES}}
        rules_without_pods = dict(rules)
        self._pod_spec_rule = rules_without_pods.pop(f"{CORE}PodSpec")
        self._inner = SchemaValidator(self._schema.definitions, rules, _no_expressions)
        definitions = dict(self._schema.definitions) | {f"{CORE}PodSpec": {"type": "object"}}
        rules_without_pods[f"{CORE}PodSpec"] = self._pod_spec
        self._outer = SchemaValidator(definitions, rules_without_pods, _no_expressions)
        self._seen: dict[bytes, tuple[Problem, ...]] = {}

    def problems(self, content: Mapping[str, Any]) -> Problems:
        """What is wrong with an object of a known version and kind."""
        kind = content["kind"]
        definition, _ = self._schema.kinds[content["apiVersion"]][kind]
        usual = names.dns_subdomain if definition.startswith(_SUBDOMAINS) else names.path_segment
        yield from metadata_problems(content, _NAMES.get(kind, usual))
        yield from self._outer.problems(content, {"$ref": definition}, ())

    def part_problems(self, value: Any, definition: str, path: Path) -> Problems:
        """What is wrong with a part of an object of another API, such as its metadata."""
        yield from self._outer.problems(value, {"$ref": definition}, path)

    def _pod_spec(self, value: Any, path: Path) -> Problems:
        key = msgspec.json.encode(value)
        found = self._seen.get(key)
        if found is None:
            found = tuple(self._inner.problems(value, {"$ref": f"{CORE}PodSpec"}, ()))
            self._seen[key] = found
        for problem in found:
            yield problem.below(path)


def metadata_problems(content: Mapping[str, Any], name_check: names.Check) -> Problems:
    """Of the object's own name."""
    metadata = content.get("metadata")
    if not isinstance(metadata, Mapping):
        return
    name = metadata.get("name")
    if not name and not metadata.get("generateName"):
        yield missing(("metadata", "name"))
    yield from name_check(name, ("metadata", "name"))


def _rule(name: str) -> Rule:
    """The checks of a definition: fields that must be there, single fields, and what holds between fields."""
    required, fields, between = REQUIRED.get(name, ()), FIELDS.get(name, {}), _RULES.get(name)

    def check(value: Any, path: Path) -> Problems:
        for field in required:
            if value.get(field) in (None, "", [], {}):
                yield missing((*path, field))
        for field, check_field in fields.items():
            if (item := value.get(field)) is not None:
                yield from check_field(item, (*path, field))
        if between is not None:
            yield from between(value, path)

    return check


def _no_expressions(_value: Any, _schema: Schema, _path: Path) -> Problems:
    return iter(())
