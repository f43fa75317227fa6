"""NodePools and EC2NodeClasses of v1beta1 as v1 objects."""

from typing import Final

from spotwright.conversion import Json, node_metadata, nodeclass_fields
from spotwright.conversion.provisioner import CLASS_REFERENCE, kubelet_settings
from spotwright.conversion.remarks import ConversionError, ObjectRemarks, refuse, refuse_missing

_TEMPLATE: Final = "spec.template"
_UNCHANGED: Final = (
    "associatePublicIPAddress", "context", "detailedMonitoring", "instanceProfile", "instanceStorePolicy", "role",
    "userData",
)  # fmt: skip
# Fields of a term for which v1beta1 ignored all other fields of the term.
_EXCLUSIVE: Final = ("id", "name")


def nodepool_spec(spec: Json, remarks: ObjectRemarks) -> tuple[Json, Json]:
    """``spec`` of a v1 NodePool, and the kubelet configuration, which v1 keeps in the class. Raises ConversionError."""
    remaining, claim = dict(spec), dict(spec["template"]["spec"])
    metadata = remaining.pop("template").get("metadata", {})
    template_metadata = node_metadata.template_metadata(
        metadata.get("labels", {}), metadata.get("annotations", {}), f"{_TEMPLATE}.metadata", remarks
    )
    disruption = dict(remaining.pop("disruption", {}))
    kubelet = kubelet_settings(claim.pop("kubelet", {}))
    template: Json = {
        "requirements": node_metadata.requirements(
            claim.pop("requirements", []), f"{_TEMPLATE}.spec.requirements", remarks
        )
    }
    template |= {name: claim.pop(name) for name in ("taints", "startupTaints") if name in claim}
    template["nodeClassRef"] = _reference(claim.pop("nodeClassRef"))
    template["expireAfter"] = disruption.pop("expireAfter", "720h")
    pool: Json = {"template": ({"metadata": template_metadata} if template_metadata else {}) | {"spec": template}}
    pool["disruption"] = _disruption(disruption)
    pool |= {name: remaining.pop(name) for name in ("limits", "weight") if name in remaining}
    if (requests := claim.pop("resources", {}).get("requests")) is not None:
        refuse(f"{_TEMPLATE}.spec.resources.requests", requests, "is no NodePool's to set: pods say what they request")
    return pool, kubelet


def _reference(ref: Json) -> Json:
    group = ref.get("apiVersion", "").partition("/")[0] or CLASS_REFERENCE["group"]
    return {"group": group, "kind": ref.get("kind") or CLASS_REFERENCE["kind"], "name": ref["name"]}


def _disruption(old: Json) -> Json:
    policy, after = old.get("consolidationPolicy", "WhenUnderutilized"), old.get("consolidateAfter")
    path = "spec.disruption.consolidateAfter"
    disruption: Json = {"consolidationPolicy": policy, "consolidateAfter": after}
    if policy == "WhenEmpty" and after is None:
        refuse_missing(path, "consolidationPolicy WhenEmpty needs it")
    if policy == "WhenUnderutilized":
        if after not in (None, "Never"):
            refuse(path, after, "goes with consolidationPolicy WhenEmpty alone in v1beta1; in v1 with any")
        disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": after or "0s"}
    for index, budget in enumerate(old.get("budgets", ())):
        if ("schedule" in budget) != ("duration" in budget):
            refuse(
                f"spec.disruption.budgets[{index}]", budget, "has only one of schedule and duration: they go together"
            )
    return disruption | ({"budgets": old["budgets"]} if "budgets" in old else {})


def nodeclass_spec(spec: Json, remarks: ObjectRemarks) -> Json:
    """``spec`` of a v1 EC2NodeClass. Raises ConversionError."""
    remaining = dict(spec)
    if ("role" in remaining) == ("instanceProfile" in remaining):
        raise ConversionError("spec: set exactly one of role and instanceProfile")
    terms = _terms(remaining.pop("amiSelectorTerms", []), "spec.amiSelectorTerms", ("id",), remarks)
    devices = nodeclass_fields.block_devices(remaining.pop("blockDeviceMappings", []), "spec.blockDeviceMappings")
    nodeclass = nodeclass_fields.ami_fields(remaining.pop("amiFamily"), terms, devices, "spec", remarks)
    for name, exclusive in (("subnetSelectorTerms", ("id",)), ("securityGroupSelectorTerms", _EXCLUSIVE)):
        nodeclass[name] = _terms(remaining.pop(name), f"spec.{name}", exclusive, remarks)
    nodeclass |= nodeclass_fields.tags(remaining.pop("tags", {}), "spec.tags", remarks)
    nodeclass |= nodeclass_fields.metadata_options(
        remaining.pop("metadataOptions", None), nodeclass_fields.METADATA_OPTIONS
    )
    nodeclass |= {name: remaining.pop(name) for name in _UNCHANGED if name in remaining}
    return nodeclass


def _terms(old_terms: list[Json], path: str, exclusive: tuple[str, ...], remarks: ObjectRemarks) -> list[Json]:
    """The terms that v1 allows, without fields that v1beta1 ignored beside an id or a group's name."""
    kept = []
    for index, term in enumerate(old_terms):
        where = f"{path}[{index}]"
        if not set(term) - {"owner"}:
            refuse(where, term, "selects nothing: it needs tags, an id or a name")
        first = next((name for name in exclusive if term.get(name)), None)
        for name in sorted(set(term) - {first}) if first else ():
            remarks.lost(f"{where}.{name}", f"stands beside {first}, which is asked for alone")
        kept.append({first: term[first]} if first else term)
    return kept
