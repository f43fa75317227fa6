"""What a cluster's two roles are for: one function for each thing they must be able to do, through our own adapters."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aws_cdk as cdk

from infra.config import Cluster
from infra.grants import Grant
from infra.permissions import act_grants, read_grants
from local.aws.in_process import InProcessAws, run_in_process
from local.aws.strictness import WITHOUT_DELAYS
from spotwright.adapters.aws.ec2.instances import Ec2
from spotwright.adapters.aws.ec2.region import Ec2Region
from spotwright.adapters.aws.ec2.selection import Selection
from spotwright.adapters.aws.eks.cluster_facts import describe_cluster
from spotwright.adapters.aws.iam import InstanceProfiles
from spotwright.adapters.aws.zonal_shifts import ZonalShifts
from spotwright.aws.launch import capacity_reservations
from spotwright.aws.launch.capacity_reservations import ReservationTarget
from spotwright.aws.launch.dry_run import create_fleet_dry_run, run_instances_dry_runs
from spotwright.aws.launch.fleet_plan import FleetPlan, Override
from spotwright.aws.launch.template import LaunchTemplateRequest, tag_specifications
from spotwright.model import labels
from spotwright.model.ec2.fleet import FleetResult
from spotwright.model.karpenter.nodeclass import CapacityReservationSelectorTerm, PlacementGroupSelector, SelectorTerm

REGION = "ap-northeast-2"
ACCOUNT = "123456789012"
CLUSTER = "dev-eks-cluster"
NODE_ROLE = f"KarpenterNodeRole-{CLUSTER}"
FOREIGN_ROLE = "dev-eks-node-group-role"
TAGS = {
    labels.cluster_tag(CLUSTER): "owned",
    labels.CLUSTER_NAME_TAG: CLUSTER,
    labels.NODEPOOL: "default",
    labels.EC2NODECLASS: "default",
}
PROFILE_TAGS = TAGS | {labels.REGION: REGION}
PATH = f"/karpenter/{REGION}/{CLUSTER}/uid-1/"
ALIAS = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard/recommended/image_id"


@dataclass
class RightsAccount:
    """An account with a cluster, and credentials of its two roles. ``administrator``: who made what is there."""

    aws: InProcessAws
    credentials: dict[str, dict[str, Any]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=lambda: iter(range(1, 1000)))

    def client(self, service: str, role: str = "") -> Any:
        return self.aws.client(service, self.credentials[role]) if role else self.aws.client(service)

    def ec2(self, role: str = "") -> Ec2:
        return Ec2(self.client("ec2", role), cluster=CLUSTER)

    @property
    def image(self) -> str:
        found = self.client("ssm").get_parameters(Names=[ALIAS])["Parameters"]
        return str(found[0]["Value"])

    @property
    def subnet(self) -> Mapping[str, Any]:
        chosen = [{"Name": "tag:karpenter.sh/discovery", "Values": [CLUSTER]}]
        found: Mapping[str, Any] = self.client("ec2").describe_subnets(Filters=chosen)["Subnets"][0]
        return found

    @property
    def security_group_id(self) -> str:
        chosen = [{"Name": "tag:karpenter.sh/discovery", "Values": [CLUSTER]}]
        return str(self.client("ec2").describe_security_groups(Filters=chosen)["SecurityGroups"][0]["GroupId"])

    def create_reservation(self) -> str:
        """A capacity reservation of the administrator's for one instance of the type that fleets here ask for."""
        made = self.client("ec2").create_capacity_reservation(
            InstanceType="m5.large", InstancePlatform="Linux/UNIX", InstanceCount=1,
            AvailabilityZone=self.subnet["AvailabilityZone"], InstanceMatchCriteria="targeted",
        )  # fmt: skip
        return str(made["CapacityReservation"]["CapacityReservationId"])

    def create_placement_group(self) -> str:
        """A placement group of the administrator's."""
        name = f"group-{next(self.numbers)}"
        return str(
            self.client("ec2").create_placement_group(GroupName=name, Strategy="spread")["PlacementGroup"]["GroupId"]
        )

    def create_profile(self, role: str = NODE_ROLE) -> str:
        """An instance profile of the administrator's that runs as ``role``."""
        name = f"profile-{next(self.numbers)}"
        iam = self.client("iam")
        iam.create_instance_profile(InstanceProfileName=name)
        iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=role)
        return name


def create_template(
    account: RightsAccount,
    by: Ec2,
    *,
    profile: str,
    name: str = "",
    tags: Mapping[str, str] = TAGS,
    reservation: str = "",
    group: str = "",
) -> tuple[str, str]:
    """(id, version) of a template as a launch would make it."""
    into = ReservationTarget(reservation) if reservation else None
    data = capacity_reservations.launch_template_fields(into) | {
        "Placement": {"GroupId": group} if group else {},
        "ImageId": account.image,
        "IamInstanceProfile": {"Name": profile},
        "NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [account.security_group_id]}],
        "TagSpecifications": tag_specifications(["network-interface", "spot-instances-request"], tags),
    }
    return by.ensure_launch_template(name or f"spotwright/{CLUSTER}/{next(account.numbers)}", data, tags)


def create_fleet(
    account: RightsAccount, by: Ec2, made: tuple[str, str], *, tags: Mapping[str, str] = TAGS, kind: str = "spot"
) -> FleetResult:
    """One instance, spot or on-demand."""
    launch = f"launch-{next(account.numbers)}"
    override = {
        "InstanceType": "m5.large", "SubnetId": account.subnet["SubnetId"], "ImageId": account.image,
        "AvailabilityZone": account.subnet["AvailabilityZone"],
    }  # fmt: skip
    return by.create_fleet(
        {
            "Type": "instant",
            "ClientToken": launch,
            "LaunchTemplateConfigs": [
                {
                    "LaunchTemplateSpecification": {"LaunchTemplateId": made[0], "Version": made[1]},
                    "Overrides": [override],
                }
            ],
            "TargetCapacitySpecification": {"TotalTargetCapacity": 1, "DefaultTargetCapacityType": kind},
            "TagSpecifications": tag_specifications(
                ("fleet", "instance", "volume"), dict(tags) | {labels.LAUNCH_TAG: launch}
            ),
        }
    )


def launch_instance(account: RightsAccount, *, tags: Mapping[str, str] = TAGS) -> str:
    """The id of an instance that the administrator launched."""
    by = account.ec2()
    result = create_fleet(
        account, by, create_template(account, by, profile=account.create_profile(), tags=tags), tags=tags
    )
    assert result.instances, result.errors
    return result.instances[0].id


# The scenarios, each under the role that does it in a deployment.


def know_the_cluster(account: RightsAccount) -> None:
    for role in ("read", "act"):
        assert describe_cluster(account.client("eks", role), CLUSTER).name == CLUSTER


def see_instances(account: RightsAccount) -> None:
    for role in ("read", "act"):
        account.ec2(role).instances_of_cluster()


def see_the_health_of_instances(account: RightsAccount) -> None:
    for role in ("read", "act"):
        assert account.ec2(role).unhealthy_instances() == ()


def resolve_a_class(account: RightsAccount) -> None:
    selection = Selection(account.client("ec2", "act"), account.client("ssm", "act"))
    terms = (SelectorTerm(tags={"karpenter.sh/discovery": CLUSTER}),)
    assert selection.subnets(terms)
    assert selection.security_groups(terms)
    assert selection.images([selection.parameters([ALIAS])[ALIAS]], ())
    selection.capacity_reservations((CapacityReservationSelectorTerm(tags={"team": "a"}),))
    selection.placement_group(PlacementGroupSelector(name="nobody"))


def refresh_the_catalog(account: RightsAccount) -> None:
    market = Ec2Region(account.client("ec2", "act"), account.client("pricing", "act"), region=REGION)
    region_facts = market.read(datetime.now(UTC))
    assert region_facts.types
    assert not [note for note in region_facts.notes if "not authorized" in note], region_facts.notes


def follow_zonal_shifts(account: RightsAccount) -> None:
    shifts = ZonalShifts(account.client("arc-zonal-shift", "act"), f"arn:aws:eks:{REGION}:{ACCOUNT}:cluster/{CLUSTER}")
    assert shifts.shifted_zone_ids(datetime.now(UTC)) == frozenset()


def launch(account: RightsAccount) -> None:
    by = account.ec2("act")
    made = create_template(account, by, profile=account.create_profile())
    dry_run_launch(account, by, made)
    result = create_fleet(account, by, made)
    assert result.instances, result.errors
    for made in (
        create_template(account, by, profile=account.create_profile(), reservation=account.create_reservation()),
        create_template(account, by, profile=account.create_profile(), group=account.create_placement_group()),
    ):
        result = create_fleet(account, by, made, kind="on-demand")
        assert result.instances, result.errors


def dry_run_launch(account: RightsAccount, by: Ec2, made: tuple[str, str], *, tags: Mapping[str, str] = TAGS) -> None:
    """As a class is validated: nothing starts, but every right of a launch is asked for."""
    override = Override(
        "t", "m5.large", account.subnet["AvailabilityZone"], account.subnet["SubnetId"], account.image, 0
    )
    data = {"NetworkInterfaces": [{"DeviceIndex": 0, "Groups": [account.security_group_id]}]}
    plan = FleetPlan("on-demand", (LaunchTemplateRequest("t", data, {}),), (override,), dict(tags))
    by.dry_run("CreateFleet", create_fleet_dry_run(plan, made))
    for request in run_instances_dry_runs(plan, made, [account.subnet["SubnetId"]]):
        by.dry_run("RunInstances", request)


def change_a_template(account: RightsAccount) -> None:
    by, name = account.ec2("act"), f"spotwright/{CLUSTER}/{next(account.numbers)}"
    first = create_template(account, by, profile=account.create_profile(), name=name)
    assert create_template(account, by, profile=account.create_profile(), name=name)[0] == first[0]


def name_an_instance(account: RightsAccount) -> None:
    named = {"Name": "ip-10-0-0-1", labels.NODECLAIM: "default-abcde", labels.CLUSTER_NAME_TAG: CLUSTER}
    account.ec2("act").tag(launch_instance(account), named)


def terminate(account: RightsAccount) -> None:
    account.ec2("act").terminate([launch_instance(account)])


def collect_templates(account: RightsAccount) -> None:
    create_template(account, account.ec2(), profile=account.create_profile())
    by = account.ec2("act")
    for template in by.launch_templates():
        by.delete_launch_template(template.id)


def keep_a_profile(account: RightsAccount) -> None:
    profiles = InstanceProfiles(account.client("iam", "act"))
    name = f"{CLUSTER}_{next(account.numbers)}"
    profiles.ensure(name=name, path=PATH, role=NODE_ROLE, tags=PROFILE_TAGS)
    assert profiles.role_of(name) == NODE_ROLE


def collect_profiles(account: RightsAccount) -> None:
    name = f"{CLUSTER}_{next(account.numbers)}"
    InstanceProfiles(account.client("iam")).ensure(name=name, path=PATH, role=NODE_ROLE, tags=PROFILE_TAGS)
    profiles = InstanceProfiles(account.client("iam", "act"))
    assert name in profiles.names_under(PATH)
    profiles.delete(name)


SCENARIOS: Mapping[str, Callable[[RightsAccount], None]] = {
    one.__name__.replace("_", " "): one
    for one in (
        know_the_cluster, see_instances, see_the_health_of_instances, resolve_a_class, refresh_the_catalog,
        follow_zonal_shifts,
        launch, change_a_template,
        name_an_instance, terminate, collect_templates, keep_a_profile, collect_profiles,
    )
}  # fmt: skip


def grants() -> dict[str, tuple[Grant, ...]]:
    """The statements of the two roles, for this account, region and cluster."""
    stack = cdk.Stack(cdk.App(), "rights", env=cdk.Environment(account=ACCOUNT, region=REGION))
    cluster = Cluster(CLUSTER, (NODE_ROLE,), "forwarder:1")
    reading = tuple(map(plain_grant, read_grants(stack, cluster)))
    return {"read": reading, "act": (*reading, *map(plain_grant, act_grants(stack, cluster)))}


def plain_grant(grant: Grant) -> Grant:
    partition = str(cdk.Aws.PARTITION)
    resources = tuple(resource.replace(partition, "aws") for resource in grant.resources)
    conditions = grant.conditions and json.loads(json.dumps(grant.conditions).replace(partition, "aws"))
    return Grant(grant.sid, grant.actions, resources, conditions, grant.wildcard_reason, grant.needed_by)


def policy_document(*statements: Grant) -> dict[str, Any]:
    """An IAM policy of these statements."""
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Sid": grant.sid, "Effect": "Allow", "Action": list(grant.actions), "Resource": list(grant.resources),
                "Condition": {operator: dict(tests) for operator, tests in grant.conditions.items()},
            }
            for grant in statements
        ],
    }  # fmt: skip


def create_role(account: RightsAccount, role: str, policy: Mapping[str, Any]) -> str:
    """Its name, after the account has credentials of a new role with this policy."""
    trust = {"Effect": "Allow", "Principal": {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}, "Action": "sts:AssumeRole"}
    iam, sts = account.client("iam"), account.client("sts")
    trusted = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    arn = iam.create_role(RoleName=role, AssumeRolePolicyDocument=trusted)["Role"]["Arn"]
    iam.put_role_policy(RoleName=role, PolicyName=role, PolicyDocument=json.dumps(policy))
    account.credentials[role] = dict(sts.assume_role(RoleArn=arn, RoleSessionName="rights")["Credentials"])
    return role


@contextmanager
def account_with_roles(directory: Path) -> Iterator[RightsAccount]:
    """An account in which a cluster and its two roles exist."""
    with run_in_process(directory, region=REGION, cluster=CLUSTER, lenient=WITHOUT_DELAYS) as aws:
        aws.request_limits.configure({"enabled": False})
        account = RightsAccount(aws)
        for role, statements in grants().items():
            create_role(account, role, policy_document(*statements))
        _cluster(account)
        yield account


def _cluster(account: RightsAccount) -> None:
    """EKS knows the cluster."""
    body = {
        "name": CLUSTER, "endpoint": "https://127.0.0.1:6443", "certificateAuthority": "Y2E=", "version": "1.35",
        "serviceIpv4Cidr": "10.100.0.0/16",
    }  # fmt: skip
    (register,) = (
        route for method, path, route in account.aws.emulator.routes if path[-1] == "clusters" and method == "POST"
    )
    register(body, {})
