"""What a case expects of a plan, and where the plan breaks it. See FORMAT.md."""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

type Raw = Mapping[str, Any]
type Broken = Iterator[str]

HOSTNAME = "kubernetes.io/hostname"
BOUNDS = {"Gt": int.__gt__, "Gte": int.__ge__, "Lt": int.__lt__, "Lte": int.__le__}


@cache
def catalog_values(file: Path) -> dict[str, dict[str, set[str]]]:
    """What each instance type of a catalog says about its labels; a label it cannot have is an empty set."""
    types = json.loads(file.read_text())["instanceTypes"]
    return {type_["name"]: _stated(type_["requirements"]) for type_ in types}


def _stated(requirements: list[Raw]) -> dict[str, set[str]]:
    known = (requirement for requirement in requirements if requirement["operator"] in ("In", "DoesNotExist"))
    return {one["key"]: set(one.get("values") or []) for one in known}


@dataclass(eq=False)
class Place:
    """A node that pods are on. ``types``: what the catalog says about each type a new node may become."""

    name: str
    labels: Raw
    requirements: list[Raw] = field(default_factory=list)
    new: Raw | None = None
    types: list[dict[str, set[str]]] = field(default_factory=list)

    def values(self, key: str) -> set[str] | None:
        """The values the label can have in the end; empty if it cannot be there, None if nothing limits it."""
        if key == HOSTNAME and (self.new or key not in self.labels):
            return {self.name}
        if key in self.labels:
            return {str(self.labels[key])}
        mine = [requirement for requirement in self.requirements if requirement["key"] == key]
        listed = [set(map(str, one.get("values") or [])) for one in mine if one["operator"] in ("In", "DoesNotExist")]
        if any(key in type_ for type_ in self.types):
            listed.append(set().union(*(type_.get(key, set()) for type_ in self.types)))
        if not listed:
            return None
        return {value for value in set.intersection(*listed) if all(allows(one, value) for one in mine)}

    def states(self, key: str) -> bool:
        """Whether the label is set or a requirement asks for it to be there."""
        asked = any(
            requirement["key"] == key and requirement["operator"] != "DoesNotExist" for requirement in self.requirements
        )
        return key in self.labels or asked


def allows(requirement: Raw, value: str) -> bool:
    operator, values = requirement["operator"], [str(one) for one in requirement.get("values") or []]
    if operator in BOUNDS:
        return value.isdigit() and bool(BOUNDS[operator](int(value), int(values[0])))
    return operator == "Exists" or (
        value in values if operator == "In" else operator == "NotIn" and value not in values
    )


def pod_name(metadata: Raw) -> str:
    return f"{metadata.get('namespace', 'default')}/{metadata['name']}"


class Outcome:
    """A case after a plan: the place of every pod, and why the others have none."""

    def __init__(self, case: Raw, plan: Raw, catalog: Path) -> None:
        self.pods = {pod_name(one["metadata"]): one for one in case["objects"] if one["kind"] == "Pod"}
        left_out = [*plan["unschedulable"], *plan["ignored"]]
        self.left_out: dict[str, str] = {one["pod"]: " ".join(one["reasons"]) for one in left_out}
        self.new_nodes: list[Raw] = plan["newNodes"]
        hosts = _hosts(case)
        bound = {name: pod["spec"]["nodeName"] for name, pod in self.pods.items() if pod["spec"].get("nodeName")}
        planned = {name: node["name"] for node in plan["existingNodes"] for name in node["pods"]}
        self.places = {name: hosts.setdefault(host, Place(host, {})) for name, host in (bound | planned).items()}
        for number, node in enumerate(self.new_nodes, 1):
            types = [catalog_values(catalog).get(one, {}) for one in node["instanceTypes"]]
            place = Place(f"new node {number}", node["labels"], node["requirements"], node, types)
            self.places |= dict.fromkeys(node["pods"], place)

    def where(self, name: str) -> str:
        return self.places[name].name if name in self.places else "nowhere"

    def counts(self, key: str, selector: Raw, namespace: str) -> tuple[Counter[str], list[str]]:
        """How many matching pods each domain has, and the pods whose domain is still open."""
        counts, undecided = Counter[str](), list[str]()
        for name, pod in self.pods.items():
            if name not in self.places or not _counts(pod, selector) or not name.startswith(namespace + "/"):
                continue
            values = self.places[name].values(key)
            if values is not None and len(values) == 1:
                counts.update(values)
            elif self.places[name].new:
                undecided.append(name)
        return counts, undecided


def _hosts(case: Raw) -> dict[str, Place]:
    """Nodes and claims by name; where both are there, the Node knows more."""
    found = {}
    for kind in ("NodeClaim", "Node"):
        for one in (each for each in case["objects"] if each["kind"] == kind):
            name, spec = one["metadata"]["name"], one.get("spec") or {}
            found[name] = Place(name, one["metadata"].get("labels") or {}, list(spec.get("requirements") or []))
    return found


def _counts(pod: Raw, selector: Raw) -> bool:
    gone = pod["metadata"].get("deletionTimestamp") or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
    return not gone and selector.items() <= (pod["metadata"].get("labels") or {}).items()


def broken(case: Raw, plan: Raw, catalog: Path) -> Broken:
    """Everything the plan breaks of what the case expects, in words."""
    outcome, expect = Outcome(case, plan, catalog), dict(case.get("expect") or {})
    if "expect" in case:
        yield from _left_out(expect.pop("unschedulable", []), outcome)
    new_nodes = expect.pop("new_nodes", len(outcome.new_nodes))
    if not in_range(new_nodes, len(outcome.new_nodes)):
        yield f"new_nodes: expected {new_nodes}, got {len(outcome.new_nodes)}"
    for name, wanted in expect.pop("pods", {}).items():
        yield from _pod(name, dict(wanted), outcome)
    for wanted in expect.pop("skew", []):
        counts, undecided = outcome.counts(wanted["key"], wanted["selector"], wanted.get("namespace", "default"))
        if undecided or sorted(counts.values()) != sorted(wanted["counts"]):
            yield f"skew of {wanted['key']}: expected {wanted['counts']}, got {dict(counts)}, open: {undecided}"
    for name, words in expect.pop("reasons", {}).items():
        reason = outcome.left_out.get(name, "")
        if missing := [word for word in words if word.lower() not in reason.lower()]:
            yield f"reasons of {name}: {missing} not in {reason!r}"
    yield from _unknown("", expect)


def _left_out(wanted: Any, outcome: Outcome) -> Broken:
    got = sorted(outcome.left_out)
    if isinstance(wanted, list):
        fine = got == sorted(wanted)
    else:
        among = wanted.get("among", got) if isinstance(wanted, dict) else got
        fine = in_range(wanted, len(got)) and set(got) <= set(among)
    if not fine:
        yield f"unschedulable: expected {wanted}, got {outcome.left_out}"


def _pod(name: str, wanted: dict[str, Any], outcome: Outcome) -> Broken:
    place, optional = outcome.places.get(name), wanted.pop("optional", False)
    if place is None:
        if not optional:
            yield f"{name}: expected {wanted}, has no place: {outcome.left_out.get(name, 'not in the plan')}"
        return
    on = wanted.pop("on", place.name)
    if on != place.name and not (on == "new" and place.new):
        yield f"{name}: expected on {on}, is on {place.name}"
    for key, values in wanted.pop("labels", {}).items():
        yield from _label(f"{name} label {key}", values, place, key)
    for other in wanted.pop("with", []):
        if outcome.places.get(other) is not place:
            yield f"{name} with {other}: on {place.name} and {outcome.where(other)}"
    for other in wanted.pop("apart", []):
        if outcome.places.get(other) is place:
            yield f"{name} apart from {other}: both on {place.name}"
    if wanted:
        yield from _new_node(name, wanted, place)


def _label(what: str, wanted: str | list[str] | None, place: Place, key: str) -> Broken:
    got = place.values(key)
    if wanted is None:
        fine = not place.states(key)
    else:
        fine = bool(got) and got is not None and got <= set(wanted if isinstance(wanted, list) else [wanted])
    if not fine:
        yield f"{what}: expected {wanted}, got {got}"


def _new_node(name: str, wanted: dict[str, Any], place: Place) -> Broken:
    node = place.new
    if node is None:
        yield f"{name}: expected {wanted}, is on {place.name}"
        return
    listed, types = node["instanceTypes"], wanted.pop("instance_types", {})
    wrong = [one for one in listed if one not in types.get("all_in", listed) or one in types.get("exclude", [])]
    missing = [one for one in types.get("include", []) if one not in listed]
    if wrong or missing:
        yield f"{name} instance_types: wrong {wrong[:8]}, missing {missing}"
    if (pool := wanted.pop("nodepool", node["nodePool"])) != node["nodePool"]:
        yield f"{name} nodepool: expected {pool}, got {node['nodePool']}"
    got = sorted(
        one["key"] + (f"={one['value']}" if one.get("value") else "") + f":{one['effect']}" for one in node["taints"]
    )
    if sorted(taints := wanted.pop("taints", got)) != got:
        yield f"{name} taints: expected {taints}, got {got}"
    price = wanted.pop("price", node["pricePerHour"])
    if not in_range(price, node["pricePerHour"]):
        yield f"{name} price: expected {price}, got {node['pricePerHour']}"
    yield from _unknown(f"{name} ", wanted)


def _unknown(prefix: str, rest: Raw) -> Broken:
    for name in rest:
        yield f"{prefix}{name}: no expectation that FORMAT.md knows"


def in_range(wanted: Any, got: float) -> bool:
    """Whether a number is the one wanted, or within {min, max}."""
    if isinstance(wanted, dict):
        return bool(wanted.get("min", 0) <= got <= wanted.get("max", got))
    return math.isclose(got, wanted, rel_tol=1e-6, abs_tol=1e-9)
