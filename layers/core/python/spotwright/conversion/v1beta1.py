"""NodePool and EC2NodeClass of v1beta1 as those of v1."""

from typing import Final

from spotwright.conversion import Json, ami_fields, instance_fields, node_metadata
from spotwright.conversion.provisioner import CLASS_REFERENCE, kubelet_settings
from spotwright.conversion.remarks import ObjectRemarks, refuse, refuse_missing

_TEMPLATE: Final = "spec.template"
_AS_IT_IS: Final = (
    "associatePublicIPAddress", "context", "detailedMonitoring", "instanceProfile", "instanceStorePolicy", "role",
    "userData",
)  # fmt: skip
# A term's fields that EC2 was asked for alone, whatever stood beside them.
_ALONE: Final = ("id", "name")


def nodepool_spec(spec: Json, remarks: ObjectRemarks) -> tuple[Json, Json]:
    """``spec`` of a v1 NodePool, and the kubelet configuration, which v1 keeps in the class. Raises ConversionError."""
    given, claim = dict(spec), dict(spec["template"]["spec"])
    metadata = given.pop("template").get("metadata", {})
    about = node_metadata.template_metadata(
        metadata.get("labels", {}), metadata.get("annotations", {}), f"{_TEMPLATE}.metadata", remarks
    )
    disruption = dict(given.pop("disruption", {}))
    kubelet = kubelet_settings(claim.pop("kubelet", {}))
    made: Json = {
        "requirements": node_metadata.requirements(
            claim.pop("requirements", []), f"{_TEMPLATE}.spec.requirements", remarks
        )
    }
    made |= {name: claim.pop(name) for name in ("taints", "startupTaints") if name in claim}
    made["nodeClassRef"] = _reference(claim.pop("nodeClassRef"))
    made["expireAfter"] = disruption.pop("expireAfter", "720h")
    pool: Json = {"template": ({"metadata": about} if about else {}) | {"spec": made}}
    pool["disruption"] = _disruption(disruption)
    pool |= {name: given.pop(name) for name in ("limits", "weight") if name in given}
    if (requests := claim.pop("resources", {}).get("requests")) is not None:
        refuse(f"{_TEMPLATE}.spec.resources.requests", requests, "is no NodePool's to set: pods say what they request")
    return pool, kubelet


def _reference(given: Json) -> Json:
    group = given.get("apiVersion", "").partition("/")[0] or CLASS_REFERENCE["group"]
    return {"group": group, "kind": given.get("kind") or CLASS_REFERENCE["kind"], "name": given["name"]}


def _disruption(given: Json) -> Json:
    policy, after = given.get("consolidationPolicy", "WhenUnderutilized"), given.get("consolidateAfter")
    path = "spec.disruption.consolidateAfter"
    made: Json = {"consolidationPolicy": policy, "consolidateAfter": after}
    if policy == "WhenEmpty" and after is None:
        refuse_missing(path, "consolidationPolicy WhenEmpty needs it")
    if policy == "WhenUnderutilized":
        if after not in (None, "Never"):
            refuse(path, after, "goes with consolidationPolicy WhenEmpty alone in v1beta1; in v1 with any")
        made = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": after or "0s"}
    for at, one in enumerate(given.get("budgets", ())):
        if ("schedule" in one) != ("duration" in one):
            refuse(f"spec.disruption.budgets[{at}]", one, "has only one of schedule and duration: they go together")
    return made | ({"budgets": given["budgets"]} if "budgets" in given else {})


def nodeclass_spec(spec: Json, remarks: ObjectRemarks) -> Json:
    """``spec`` of a v1 EC2NodeClass. Raises ConversionError."""
    given = dict(spec)
    if ("role" in given) == ("instanceProfile" in given):
        refuse("spec.role", given.get("role"), "and instanceProfile: set exactly one of them")
    terms = _terms(given.pop("amiSelectorTerms", []), "spec.amiSelectorTerms", ("id",), remarks)
    devices = instance_fields.block_devices(given.pop("blockDeviceMappings", []), "spec.blockDeviceMappings")
    made = ami_fields.ami_fields(given.pop("amiFamily"), terms, devices, "spec", remarks)
    for name, alone in (("subnetSelectorTerms", ("id",)), ("securityGroupSelectorTerms", _ALONE)):
        made[name] = _terms(given.pop(name), f"spec.{name}", alone, remarks)
    made |= instance_fields.tags(given.pop("tags", {}), "spec.tags", remarks)
    made |= instance_fields.metadata_options(given.pop("metadataOptions", None), instance_fields.METADATA_OPTIONS)
    made |= {name: given.pop(name) for name in _AS_IT_IS if name in given}
    return made


def _terms(given: list[Json], path: str, alone: tuple[str, ...], remarks: ObjectRemarks) -> list[Json]:
    """Terms that v1 takes. What stood beside an id or a group's name was never asked for."""
    kept = []
    for at, term in enumerate(given):
        where = f"{path}[{at}]"
        if not set(term) - {"owner"}:
            refuse(where, term, "selects nothing: it needs tags, an id or a name")
        first = next((name for name in alone if term.get(name)), None)
        for name in sorted(set(term) - {first}) if first else ():
            remarks.lost(f"{where}.{name}", f"stands beside {first}, which is asked for alone")
        kept.append({first: term[first]} if first else term)
    return kept
