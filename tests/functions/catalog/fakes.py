"""An account and a cluster in memory, as the catalog function meets them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import msgspec

from spotwright.adapters.kubernetes.codecs.nodeclass import decode_nodeclass_strict
from spotwright.aws.images.amis import Image
from spotwright.aws.instance_types import catalog_codec, region_facts
from spotwright.aws.instance_types.capacity import Overheads
from spotwright.aws.instance_types.price_file import PriceFile
from spotwright.aws.nodeclass.readiness import DiscoveredSecurityGroup, DiscoveredSubnet
from spotwright.errors import ApiError, NotFound
from spotwright.model import labels
from spotwright.model.ec2.fleet import ClusterFacts, Instance, InstanceProfile, LaunchTemplate
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import (
    CapacityReservation,
    CapacityReservationSelectorTerm,
    EC2NodeClass,
    PlacementGroup,
    PlacementGroupSelector,
    SelectorTerm,
)
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, find_condition
from spotwright.simulation.clock import Clock
from spotwright.simulation.cluster import FakeCluster
from spotwright.simulation.effects import Effects
from spotwright.simulation.state import FakeBlobs, FakeDoorbells, FakeState
from spotwright.workflows.catalog.workflow import CatalogResult, refresh_region, resolve_nodeclasses
from tests.unit.aws.samples import CLUSTER, FACTS, NOW, REGION, ZONES, region

NODE_ROLE = f"KarpenterNodeRole-{CLUSTER}"
TYPES = ("c5.large", "m5.large", "t4g.small")


class ClassCluster(FakeCluster):
    """A cluster that shows the status of classes."""

    def patch_status(self, kind: str, metadata: ObjectMeta, status: Mapping[str, Any]) -> None:
        if kind != "ec2nodeclasses":
            super().patch_status(kind, metadata, status)
            return
        read = decode_nodeclass_strict({"kind": "EC2NodeClass", "metadata": {}, "spec": {}, "status": dict(status)})
        with self._effects.record("cluster", "patch_status", f"{kind}/{metadata.name}"):
            self.update(
                kind,
                metadata.name,
                subnets=read.subnets,
                security_groups=read.security_groups,
                amis=read.amis,
                resolved_instance_profile=read.resolved_instance_profile,
                capacity_reservations=read.capacity_reservations,
                placement_group=read.placement_group,
            )


class Market:
    """Sells a few types; ``fails`` is raised in place of an answer."""

    def __init__(self) -> None:
        self.sells = region(*TYPES)
        self.fails: ApiError | None = None
        self.reads = 0
        self.before: region_facts.RegionFacts | None = None

    def read(self, now: datetime, before: region_facts.RegionFacts | None = None) -> region_facts.RegionFacts:
        if self.fails:
            raise self.fails
        self.reads += 1
        self.before = before
        return self.sells


class Prices:
    """The account's price file."""

    def __init__(self) -> None:
        self.file, self.complaint = PriceFile(), ""

    def read(self) -> tuple[PriceFile, str]:
        return self.file, self.complaint


class Shifts:
    """Zones that are shifted away from; ``fails`` is raised in place of an answer."""

    def __init__(self, *away: str) -> None:
        self.away = frozenset(away)
        self.fails: ApiError | None = None

    def shifted_zone_ids(self, now: datetime) -> frozenset[str]:
        if self.fails:
            raise self.fails
        return self.away


class Selection:
    """A VPC with three subnets and a group, and images for every parameter but the missing ones."""

    def __init__(self) -> None:
        self.found_subnets = tuple(
            DiscoveredSubnet(f"subnet-{z[-1]}", z, f"az-{z[-1]}", 100, FACTS.vpc_id) for z in ZONES
        )
        self.found_groups = (DiscoveredSecurityGroup("sg-1", "nodes", FACTS.vpc_id),)
        self.missing: frozenset[str] = frozenset()
        self.fails: dict[str, ApiError] = {}
        self.reservations: tuple[CapacityReservation, ...] = ()
        self.groups: tuple[PlacementGroup, ...] = ()

    def capacity_reservations(
        self, terms: Sequence[CapacityReservationSelectorTerm]
    ) -> tuple[CapacityReservation, ...]:
        return self.reservations if terms else ()

    def placement_group(self, selector: PlacementGroupSelector) -> PlacementGroup | None:
        return next((group for group in self.groups if selector.name == group.name or selector.id == group.id), None)

    def subnets(self, terms: Sequence[SelectorTerm]) -> tuple[DiscoveredSubnet, ...]:
        for term in terms:
            if term.id in self.fails:
                raise self.fails[term.id]
        return self.found_subnets

    def security_groups(self, terms: Sequence[SelectorTerm]) -> tuple[DiscoveredSecurityGroup, ...]:
        return self.found_groups

    def parameters(self, names: Sequence[str]) -> Mapping[str, str]:
        for name in names:
            if name in self.fails:
                raise self.fails[name]
        return {name: f"ami-{name.split('/')[-3]}-{name.split('/')[-4]}" for name in names if name not in self.missing}

    def images(self, ids: Sequence[str], terms: Sequence[SelectorTerm]) -> tuple[Image, ...]:
        return tuple(Image(id_, id_, "2026-01-01T00:00:00.000Z", id_.rpartition("-")[2]) for id_ in ids)


class Profiles:
    """Instance profiles: name → (path, role)."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self.now = now
        self.made: dict[str, InstanceProfile] = {}
        self.profiles: dict[str, tuple[str, str]] = {}
        self.roles = {NODE_ROLE}

    def role_of(self, name: str) -> str | None:
        return self.profiles[name][1] if name in self.profiles else None

    def ensure(self, *, name: str, path: str, role: str, tags: Mapping[str, str]) -> None:
        if role not in self.roles:
            raise NotFound(f"no role {role}", code="NoSuchEntity")
        self.profiles[name] = (path, role)
        self.made.setdefault(name, InstanceProfile(name, path, self.now(), dict(tags)))

    def profiles_under(self, path: str) -> tuple[InstanceProfile, ...]:
        return tuple(self.made[name] for name in self.names_under(path) if name in self.made)

    def read(self, name: str) -> InstanceProfile | None:
        return self.made.get(name) if name in self.profiles else None

    def names_under(self, path: str) -> tuple[str, ...]:
        return tuple(sorted(name for name, (where, _) in self.profiles.items() if where.startswith(path)))

    def delete(self, name: str) -> None:
        self.profiles.pop(name, None)


class Templates:
    """Launch templates: id → class; ``created`` when they were made."""

    def __init__(self) -> None:
        self.templates: dict[str, str] = {}
        self.created: dict[str, datetime] = {}
        self.fails: ApiError | None = None
        self.instances: list[Instance] = []

    def instances_of_cluster(self) -> tuple[Instance, ...]:
        return tuple(self.instances)

    def launch_templates(self, nodeclass: str = "") -> tuple[LaunchTemplate, ...]:
        chosen = [id for id, of in sorted(self.templates.items()) if nodeclass in ("", of)]
        return tuple(LaunchTemplate(id, self.created.get(id, NOW)) for id in chosen)

    def delete_launch_template(self, template_id: str) -> None:
        if self.fails:
            raise self.fails
        self.templates.pop(template_id, None)


class Trials:
    """EC2 as one asks it whether it would: ``says``: operation → its errors in turn, the last one for ever after."""

    def __init__(self) -> None:
        self.says: dict[str, list[ApiError]] = {}
        self.asked: list[tuple[str, str]] = []
        self.templates: dict[str, Mapping[str, Any]] = {}

    def launch_template(self, name: str, data: Mapping[str, Any]) -> tuple[str, str] | None:
        return (name, "1") if name in self.templates else None

    def ensure_launch_template(self, name: str, data: Mapping[str, Any], tags: Mapping[str, str]) -> tuple[str, str]:
        self._answer("CreateLaunchTemplate", data["ImageId"])
        self.templates[name] = data
        return name, "1"

    def dry_run(self, operation: str, request: Mapping[str, Any]) -> None:
        assert request["DryRun"]
        if operation == "RunInstances":
            self._answer(operation, request["NetworkInterfaces"][0]["SubnetId"])
        else:
            self._answer(operation, request["LaunchTemplateConfigs"][0]["Overrides"][0]["InstanceType"])

    def _answer(self, operation: str, about: str) -> None:
        self.asked.append((operation, about))
        answers = self.says.get(operation, [])
        if answers:
            raise answers[0] if len(answers) == 1 else answers.pop(0)

    def take(self) -> list[tuple[str, str]]:
        """What was asked since the last time."""
        asked, self.asked = self.asked, []
        return asked


@dataclass
class CatalogWorld:
    """See workflows.ports.bundles.CatalogPorts."""

    clock: Clock = field(default_factory=Clock)
    facts: ClusterFacts = FACTS
    region: str = REGION
    node_roles: tuple[str, ...] = (NODE_ROLE,)
    overheads: Overheads = field(default_factory=Overheads)
    reserved_capacity: bool = True
    account_prices: Prices = field(default_factory=Prices)
    zonal_shifts: Shifts | None = None
    dry_runs: Trials | None = None

    def __post_init__(self) -> None:
        self.effects = Effects(self.clock)
        self.cluster = ClassCluster(CLUSTER, self.clock, self.effects)
        self.state = FakeState(CLUSTER, self.effects)
        self.blobs = FakeBlobs(CLUSTER, self.effects)
        self.doorbells = FakeDoorbells(self.clock, self.effects)
        self.region_source, self.selectors = Market(), Selection()
        self.instance_profiles, self.launch_templates = Profiles(self.clock.now), Templates()

    def apply(self, name: str = "default", **changes: Any) -> EC2NodeClass:
        """A user applies a class."""
        fields = {
            "subnet_selector_terms": (SelectorTerm(tags={"a": "b"}),),
            "security_group_selector_terms": (SelectorTerm(tags={"a": "b"}),),
            "ami_selector_terms": (SelectorTerm(alias="al2023@latest"),),
            "role": NODE_ROLE,
        }
        nodeclass: EC2NodeClass = self.cluster.put(
            "ec2nodeclasses", EC2NodeClass(ObjectMeta(name), **(fields | changes))
        )
        return nodeclass

    def claim(
        self, name: str, nodeclass: str = "default", *, kind: str = "karpenter.k8s.aws/EC2NodeClass", **changes: Any
    ) -> NodeClaim:
        """``kind``: group and kind of its class."""
        group, _, class_kind = kind.partition("/")
        ref = NodeClassReference(group, class_kind, nodeclass)
        nodeclaim: NodeClaim = self.cluster.put("nodeclaims", NodeClaim(ObjectMeta(name, **changes), ref))
        return nodeclaim

    def delete(self, name: str = "default") -> None:
        """A user deletes a class."""
        self.cluster.delete("ec2nodeclasses", self.nodeclass(name).metadata)

    def run(self, *names: str, attempt: int = 0) -> CatalogResult:
        attempts = dict.fromkeys(names or ("",), attempt)
        return resolve_nodeclasses(self, names, now=self.clock.now(), attempts=attempts)

    def refresh(self) -> CatalogResult:
        return refresh_region(self, now=self.clock.now())

    def nodeclass(self, name: str = "default") -> EC2NodeClass:
        found = {nodeclass.name: nodeclass for nodeclass in self.cluster.nodeclasses()}
        return found[name]

    def condition(self, kind: str, name: str = "default") -> Condition:
        condition = find_condition(self.nodeclass(name).conditions, kind)
        assert condition is not None, kind
        return condition

    def catalog(self) -> Catalog:
        return catalog_codec.decode(self.blobs.get(self.state.catalog_key()))

    def rung(self) -> set[tuple[str, str, str]]:
        """(queue, kind, key) of everything that waits; taken."""
        found = {(message.queue, message.doorbell.kind, message.doorbell.key) for message in self.doorbells.messages}
        self.doorbells.messages.clear()
        return found

    def stale_hash(self, name: str, version: str) -> None:
        """A class, and a claim of it, that another version of the hash was written to."""
        stamped = {labels.EC2NODECLASS_HASH: "1", labels.EC2NODECLASS_HASH_VERSION: version}
        self.cluster.update("ec2nodeclasses", name, annotations=stamped)

    def drift(self, name: str) -> None:
        claim = self.cluster.nodeclaim(name)
        assert claim is not None
        self.cluster.set_conditions("nodeclaims", claim.metadata, [Condition("Drifted", "True")])

    def edit(self, name: str, **fields: Any) -> None:
        """A user edits a class: its generation moves on."""
        before = self.nodeclass(name)
        about = msgspec.structs.replace(before.metadata, generation=before.metadata.generation + 1)
        self.cluster.put("ec2nodeclasses", msgspec.structs.replace(before, metadata=about, **fields))
