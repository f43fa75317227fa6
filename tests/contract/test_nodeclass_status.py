"""Classes that people wrote, on a real API server with our definitions, resolved against the local AWS."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml

from local.stack import Stack
from spotwright.adapters.aws import pricing
from spotwright.adapters.aws.ec2.instances import Ec2
from spotwright.adapters.aws.ec2.region import Ec2Region
from spotwright.adapters.aws.ec2.selection import Selection
from spotwright.adapters.aws.eks.cluster_facts import describe_cluster
from spotwright.adapters.aws.iam import InstanceProfiles
from spotwright.adapters.aws.s3.account_prices import AccountPrices
from spotwright.adapters.kubernetes.cluster import KubernetesCluster
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.aws.instance_types import catalog_codec
from spotwright.aws.instance_types.capacity import Overheads
from spotwright.composition.catalog_clients import CatalogClients
from spotwright.model import labels
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.kubernetes.meta import find_condition
from spotwright.simulation.clock import Clock
from spotwright.simulation.effects import Effects
from spotwright.simulation.state import FakeBlobs, FakeDoorbells, FakeState
from spotwright.workflows.catalog.workflow import CatalogResult, resolve_nodeclasses

PUBLISHED = Path(__file__).parents[2] / "examples"
# What takes the time of a class's first status: facts and prices of the whole region.
MARKET = {"DescribeInstanceTypes", "DescribeInstanceTypeOfferings", "DescribeSpotPriceHistory", "GetProducts"}


class World:
    """A cluster of the local stack and the ports by which the catalog function reaches it."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        effects = Effects(Clock())
        self.state, self.blobs = FakeState(stack.cluster, effects), FakeBlobs(stack.cluster, effects)
        self.doorbells = FakeDoorbells(Clock(), effects)
        self.ec2 = Ec2(self._client("ec2"), cluster=stack.cluster)
        self.profiles = InstanceProfiles(self._client("iam"))
        self.ports = CatalogClients(
            cluster=self._cluster(),
            state=self.state,
            blobs=self.blobs,
            doorbells=self.doorbells,
            region_source=Ec2Region(
                self._client("ec2"),
                self._client("pricing", pricing.endpoint_region(stack.region) or ""),
                region=stack.region,
            ),
            selectors=Selection(self._client("ec2"), self._client("ssm")),
            instance_profiles=self.profiles,
            launch_templates=self.ec2,
            facts=describe_cluster(self._client("eks"), stack.cluster),
            region=stack.region,
            node_roles=("dev-eks-node-group-role", f"KarpenterNodeRole-{stack.cluster}"),
            overheads=Overheads(),
            reserved_capacity=True,
            account_prices=AccountPrices(self.blobs, cluster=stack.cluster),
            dry_runs=self.ec2,
        )

    def _client(self, service: str, region: str = "") -> Any:
        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=self.stack.aws_endpoint,
            region_name=region or self.stack.region,
            aws_access_key_id="local-admin",
            aws_secret_access_key="local-admin",
        )

    def _cluster(self) -> KubernetesCluster:
        account = ("-n", "default")
        self.stack.kubectl("create", "serviceaccount", "catalog", *account)
        binding = ("--clusterrole=cluster-admin", "--serviceaccount=default:catalog")
        self.stack.kubectl("create", "clusterrolebinding", "catalog", *binding)
        token = self.stack.kubectl("create", "token", "catalog", *account).stdout.strip()
        config = json.loads(self.stack.kubectl("config", "view", "--raw", "-o", "json").stdout)
        server = config["clusters"][0]["cluster"]
        authority = server["certificate-authority-data"]
        return KubernetesCluster(
            self.stack.cluster,
            Transport(endpoint=server["server"], certificate_authority=authority, token=lambda: token),
        )

    def apply(self, obj: Any) -> None:
        self.stack.kubectl("apply", "-f", "-", input=json.dumps(obj))

    def run(self, *names: str) -> CatalogResult:
        return resolve_nodeclasses(self.ports, names, now=datetime.now(UTC))

    def nodeclass(self, name: str) -> EC2NodeClass:
        return next(nodeclass for nodeclass in self.ports.cluster.nodeclasses() if nodeclass.name == name)

    def said(self, name: str, kind: str) -> tuple[str, str, str]:
        condition = find_condition(self.nodeclass(name).conditions, kind)
        assert condition is not None, kind
        return condition.status, condition.reason, condition.message


@pytest.fixture(scope="module")
def world(stack: Stack) -> World:
    return World(stack)


def published(file: str, name: str, **fields: Any) -> dict[str, Any]:
    """The class of a published file, under a name of its own."""
    text = (PUBLISHED / file).read_text()
    for variable, value in {
        "CLUSTER_NAME": "dev-eks-cluster", "EKS_CLUSTER_NAME": "dev-eks-cluster", "ALIAS_VERSION": "v20260811",
        "KARPENTER_NODE_ROLE": "KarpenterNodeRole-dev-eks-cluster",
    }.items():  # fmt: skip
        text = text.replace("${" + variable + "}", value)
    yaml_object = next(document for document in yaml.safe_load_all(text) if document["kind"] == "EC2NodeClass")
    spec: dict[str, Any] = yaml_object["spec"] | fields
    manifest: dict[str, Any] = yaml_object | {"metadata": {"name": name}, "spec": spec}
    return manifest


@pytest.mark.parametrize("file", ["spot-t3a.yaml", "scale-up-cmr.yaml", "t4g-seoul.yaml"])
def test_a_published_class_is_ready_within_seconds(world: World, file: str) -> None:
    name = file.removesuffix(".yaml")
    world.apply(published(file, name))
    world.run(name)
    assert world.said(name, "Ready") == ("True", "Ready", "")
    nodeclass = world.nodeclass(name)
    assert len(nodeclass.subnets) == 3
    assert nodeclass.security_groups
    assert len(nodeclass.amis) == 5
    assert world.profiles.role_of(nodeclass.resolved_instance_profile) in world.ports.node_roles
    assert nodeclass.metadata.finalizers == (labels.EC2NODECLASS_FINALIZER,)
    types = catalog_codec.decode(world.blobs.get(world.state.catalog_key())).instance_types(name)
    assert len(types) > 700
    assert "True" in world.stack.kubectl("get", "ec2nc", name).stdout


def test_a_status_asks_for_the_market_only_once(world: World) -> None:
    world.apply(published("spot-t3a.yaml", "first"))
    world.run()
    world.apply(published("spot-t3a.yaml", "quick"))
    before = world.stack.control("GET", "/_local/calls?since=0")["next"]
    world.run("quick")
    calls = world.stack.control("GET", f"/_local/calls?since={before}")["calls"]
    actions = {call.get("action") for call in calls}
    assert "DescribeSubnets" in actions
    assert not actions & MARKET
    assert world.said("quick", "Ready")[0] == "True"


def test_a_class_is_resolved_anew_when_it_changes(world: World) -> None:
    world.apply(published("spot-t3a.yaml", "moving"))
    world.run("moving")
    before = world.nodeclass("moving").metadata.annotations[labels.EC2NODECLASS_HASH]
    world.apply(published("spot-t3a.yaml", "moving", tags={"Name": "other"}))
    world.run("moving")
    nodeclass = world.nodeclass("moving")
    assert nodeclass.metadata.annotations[labels.EC2NODECLASS_HASH] != before
    ready = find_condition(nodeclass.conditions, "Ready")
    assert ready is not None
    assert ready.observed_generation == nodeclass.metadata.generation == 2


@pytest.mark.parametrize(("family", "images"), [("Bottlerocket", 5), ("Windows2022", 1), ("Windows2025", 1)])
def test_a_class_of_another_family_is_ready_and_has_types(world: World, family: str, images: int) -> None:
    name = family.lower()
    terms = [{"alias": f"{name}@latest"}]
    world.apply(published("spot-t3a.yaml", name, amiFamily=family, amiSelectorTerms=terms, kubelet={"maxPods": 30}))
    world.run(name)
    assert world.said(name, "Ready") == ("True", "Ready", "")
    assert len(world.nodeclass(name).amis) == images
    types = {
        instance_type.name: instance_type
        for instance_type in catalog_codec.decode(world.blobs.get(world.state.catalog_key())).instance_types(name)
    }
    assert any(offering.available for offering in types["m5.large"].offerings)
    assert any(offering.available for offering in types["m6g.large"].offerings) == (images == 5)


def test_a_class_shows_its_reservations_and_its_placement_group(world: World) -> None:
    client: Any = world._client("ec2")
    reservation = client.create_capacity_reservation(
        InstanceType="m5.large", InstancePlatform="Linux/UNIX", AvailabilityZone=f"{world.stack.region}a",
        InstanceCount=2, InstanceMatchCriteria="targeted",
    )["CapacityReservation"]  # fmt: skip
    client.create_placement_group(GroupName="spread-out", Strategy="spread")
    reserved = [{"id": reservation["CapacityReservationId"]}]
    world.apply(
        published(
            "spot-t3a.yaml", "reserving", capacityReservationSelectorTerms=reserved,
            placementGroupSelector={"name": "spread-out"},
            networkInterfaces=[{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}],
            connectionTracking={"udpTimeout": 45}, ipPrefixCount=1, cpuOptions={"nestedVirtualization": "disabled"},
        )
    )  # fmt: skip
    world.run("reserving")
    assert world.said("reserving", "Ready") == ("True", "Ready", "")
    nodeclass = world.nodeclass("reserving")
    assert [(reservation.id, reservation.state) for reservation in nodeclass.capacity_reservations] == [
        (reservation["CapacityReservationId"], "active")
    ]
    assert nodeclass.placement_group is not None
    assert (nodeclass.placement_group.name, nodeclass.placement_group.strategy) == ("spread-out", "spread")
    world.apply(published("spot-t3a.yaml", "reserving"))
    client.cancel_capacity_reservation(CapacityReservationId=reservation["CapacityReservationId"])
    world.run("reserving")
    assert (world.nodeclass("reserving").capacity_reservations, world.nodeclass("reserving").placement_group) == (
        (), None,
    )  # fmt: skip


REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("role", {"role": "karpenterNodeRole-dev-eks-cluster"}, "InstanceProfileReady", "RoleNotAllowed"),
    ("subnets", {"subnetSelectorTerms": [{"tags": {"no": "such"}}]}, "SubnetsReady", "SubnetsNotFound"),
    ("groups", {"securityGroupSelectorTerms": [{"name": "nobody"}]}, "SecurityGroupsReady", "SecurityGroupsNotFound"),
    ("version", {"amiSelectorTerms": [{"alias": "al2023@v19990101"}]}, "AMIsReady", "AMINotFound"),
    ("group", {"placementGroupSelector": {"name": "nobody"}}, "PlacementGroupReady", "PlacementGroupNotFound"),
    ("kubelet", {"kubelet": {"maxPods": "vcpus * 10"}}, "ValidationSucceeded", "KubeletExpressionsDisabled"),
]


@pytest.mark.parametrize(("name", "fields", "kind", "reason"), REFUSED, ids=[event[0] for event in REFUSED])
def test_a_class_that_cannot_be_used_says_why(
    world: World, name: str, fields: dict[str, Any], kind: str, reason: str
) -> None:
    world.apply(published("spot-t3a.yaml", name, **fields))
    world.run(name)
    status, actual, message = world.said(name, kind)
    assert (status, actual) == ("False", reason)
    assert message
    assert world.said(name, "Ready")[0] == "False"
    events = world.stack.kubectl("get", "events", "-A", "-o", "json").stdout
    assert any(
        event["reason"] == reason and event["involvedObject"]["name"] == name for event in json.loads(events)["items"]
    )


def test_subnets_of_another_vpc_are_refused(world: World) -> None:
    client: Any = world._client("ec2")
    vpc = client.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    zone = f"{world.stack.region}a"
    subnet = client.create_subnet(VpcId=vpc, CidrBlock="10.9.0.0/24", AvailabilityZone=zone)["Subnet"]["SubnetId"]
    world.apply(published("spot-t3a.yaml", "foreign", subnetSelectorTerms=[{"id": subnet}]))
    world.run("foreign")
    status, reason, message = world.said("foreign", "SubnetsReady")
    assert (status, reason) == ("False", "SubnetsNotInClusterVPC")
    assert subnet in message
    assert vpc in message


def test_a_field_that_means_nothing_is_said_and_stops_nothing(world: World) -> None:
    obj = published("spot-t3a.yaml", "unknown")
    obj["spec"]["subnetSelector"] = {"a": "b"}
    world.stack.kubectl("apply", "--validate=warn", "-f", "-", input=json.dumps(obj))
    world.run("unknown")
    status, _, message = world.said("unknown", "FieldsRecognized")
    assert status == "False"
    assert "spec.subnetSelector" in message
    assert world.said("unknown", "Ready")[0] == "True"


def test_a_deleted_class_goes_with_what_was_made_for_it(world: World) -> None:
    world.apply(published("spot-t3a.yaml", "leaving"))
    world.run("leaving")
    profile = world.nodeclass("leaving").resolved_instance_profile
    world.ec2.ensure_launch_template(
        "spotwright/leaving", {"ImageId": "ami-1"}, {"eks:eks-cluster-name": world.stack.cluster,
                                                       "karpenter.k8s.aws/ec2nodeclass": "leaving"},
    )  # fmt: skip
    world.stack.kubectl("delete", "ec2nodeclass", "leaving", "--wait=false")
    world.run("leaving")
    _until(lambda: all(nodeclass.name != "leaving" for nodeclass in world.ports.cluster.nodeclasses()))
    assert world.profiles.role_of(profile) is None
    assert world.ec2.launch_templates("leaving") == ()
    assert catalog_codec.decode(world.blobs.get(world.state.catalog_key())).instance_types("leaving") == ()


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)
