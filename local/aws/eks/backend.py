"""EKS as far as the control plane beside this process needs it: clusters, access entries, Pod Identity.

`EksBackend` holds the facts and has one plain method per call; the API fronts and the CloudFormation types use
it alike. Its errors are AwsError with EKS's codes.
"""

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from moto.iam.models import iam_backends

from local.aws.calls.request import AwsError
from local.aws.ec2 import network
from local.aws.emulator import Emulator
from local.aws.strictness import Rule
from local.aws.sts.callers import find_role

ENTRY_TYPES = ("STANDARD", "EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "EC2", "HYBRID_LINUX", "HYPERPOD_LINUX")
NODE_TYPES = ("EC2_LINUX", "EC2_WINDOWS", "FARGATE_LINUX", "HYBRID_LINUX", "HYPERPOD_LINUX")
NODE_USERNAME = "system:node:{{EC2PrivateDNSName}}"


@dataclass
class AccessEntry:
    """Who may log in, and as whom. `policies` maps a policy's ARN to (its scope, time of association).

    `principal_id` is the unique id of the role or user that it was made for. Nobody is let in before `effective_at`,
    and no policy counts before its time in `policies_effective_at` (both by the clock of strictness).
    """

    cluster: str
    principal: str
    type: str
    username: str
    groups: tuple[str, ...]
    arn: str
    tags: dict[str, str] = field(default_factory=dict)
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    modified: datetime = field(default_factory=lambda: datetime.now(UTC))
    policies: dict[str, tuple[dict[str, Any], datetime]] = field(default_factory=dict)
    principal_id: str = ""
    effective_at: float = 0.0
    policies_effective_at: dict[str, float] = field(default_factory=dict)


@dataclass
class PodIdentityAssociation:
    """The role of one service account; pods get nothing by it before `effective_at` (clock of strictness)."""

    cluster: str
    namespace: str
    service_account: str
    role_arn: str
    id: str
    arn: str
    tags: dict[str, str] = field(default_factory=dict)
    created: datetime = field(default_factory=lambda: datetime.now(UTC))
    effective_at: float = 0.0


# https://docs.aws.amazon.com/eks/latest/userguide/setting-up-access-entries.html
_MODE_CHANGES = {("CONFIG_MAP", "API_AND_CONFIG_MAP"), ("API_AND_CONFIG_MAP", "API")}


class EksBackend:
    """Clusters of the account with their access entries and Pod Identity associations.

    `on_registration` is called with the name of each new cluster and what its registration says.
    """

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._lock = threading.RLock()
        self.on_registration: list[Callable[[str, Mapping[str, Any]], None]] = []
        self._clusters: dict[str, dict[str, Any]] = {}
        self._entries: dict[tuple[str, str], AccessEntry] = {}
        self._identities: dict[tuple[str, str], PodIdentityAssociation] = {}

    def register_cluster(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Make a running control plane known; needs name, endpoint, certificateAuthority (base64), version."""
        name = str(body["name"])
        place = network.cluster_network(self._emulator, name)
        with self._lock:
            self._clusters[name] = {
                "name": name,
                "arn": self._arn(f"cluster/{name}"),
                "createdAt": datetime.now(UTC),
                "version": str(body.get("version", "1.35")),
                "endpoint": body["endpoint"],
                "roleArn": f"arn:aws:iam::{self._emulator.account}:role/{name}-cluster",
                "status": "ACTIVE",
                "certificateAuthority": {"data": body["certificateAuthority"]},
                "platformVersion": "eks.1",
                "kubernetesNetworkConfig": {
                    "serviceIpv4Cidr": body.get("serviceIpv4Cidr", "10.100.0.0/16"),
                    "ipFamily": "ipv4",
                },
                "resourcesVpcConfig": {
                    "vpcId": body.get("vpcId") or place.vpc_id,
                    "subnetIds": list(body.get("subnetIds") or place.subnet_ids),
                    "securityGroupIds": [],
                    "clusterSecurityGroupId": place.cluster_security_group_id,
                    "endpointPublicAccess": bool(body.get("endpointPublicAccess", True)),
                    "endpointPrivateAccess": True,
                    "publicAccessCidrs": ["0.0.0.0/0"],
                },
                "accessConfig": {
                    "authenticationMode": body.get("authenticationMode", "API"),
                    "bootstrapClusterCreatorAdminPermissions": False,
                },
                "tags": dict(body.get("tags") or {}),
            }
        for react in self.on_registration:
            react(name, body)
        return self._clusters[name]

    def cluster(self, name: str) -> dict[str, Any]:
        with self._lock:
            if name not in self._clusters:
                raise AwsError("ResourceNotFoundException", f"No cluster found for name: {name}.")
            return self._clusters[name]

    def set_authentication_mode(self, name: str, mode: str) -> None:
        """Raises AwsError where EKS would not go there: from CONFIG_MAP to both, then to API, and never back."""
        access = self.cluster(name)["accessConfig"]
        if (access["authenticationMode"], mode) not in _MODE_CHANGES:
            raise AwsError(
                "InvalidParameterException",
                f"Unsupported authentication mode update from {access['authenticationMode']} to {mode}",
            )
        access["authenticationMode"] = mode

    def _check_mode(self, name: str) -> None:
        """Every call about access entries is refused while the cluster knows none."""
        if self.cluster(name)["accessConfig"]["authenticationMode"] == "CONFIG_MAP":
            raise AwsError(
                "InvalidRequestException",
                "The cluster's authentication mode must be set to one of [API, API_AND_CONFIG_MAP] to perform this"
                " operation.",
            )

    def cluster_names(self) -> list[str]:
        return sorted(self._clusters)

    # Access entries

    def create_access_entry(
        self,
        cluster: str,
        principal: str,
        *,
        type: str = "STANDARD",
        username: str | None = None,
        groups: Sequence[str] = (),
        tags: Mapping[str, str] | None = None,
    ) -> AccessEntry:
        """Add an entry; the default username of a role carries its session name."""
        self._check_mode(cluster)
        _check_entry(type, groups, username)
        principal_id = self.principal_id(principal)
        if not principal_id and self._emulator.strictness.holds(Rule.ACCESS_ENTRY_PRINCIPALS):
            raise AwsError("InvalidParameterException", "The specified principalArn is invalid: invalid principal.")
        with self._lock:
            if (cluster, principal) in self._entries:
                raise AwsError(
                    "ResourceInUseException",
                    "The specified access entry resource is already in use on this cluster.",
                )
            entry = AccessEntry(
                cluster=cluster,
                principal=principal,
                type=type,
                username=username or self._default_username(type, principal),
                groups=tuple(groups) if type == "STANDARD" else ("system:nodes",),
                arn=self._entry_arn(cluster, principal),
                tags=dict(tags or {}),
                principal_id=principal_id,
                effective_at=self._effective_at(f"{cluster} {principal}"),
            )
            self._entries[cluster, principal] = entry
            return entry

    def update_access_entry(
        self, cluster: str, principal: str, *, groups: Sequence[str] | None = None, username: str | None = None
    ) -> AccessEntry:
        entry = self.access_entry(cluster, principal)
        _check_entry(entry.type, groups or (), username)
        with self._lock:
            entry.groups = entry.groups if groups is None else tuple(groups)
            entry.username = username or entry.username
            entry.modified = datetime.now(UTC)
        return entry

    def access_entry(self, cluster: str, principal: str) -> AccessEntry:
        self._check_mode(cluster)
        with self._lock:
            if (cluster, principal) not in self._entries:
                raise AwsError(
                    "ResourceNotFoundException",
                    f"The specified principalArn could not be found. You can view your available access entries"
                    f" with 'list-access-entries'. ({principal})",
                )
            return self._entries[cluster, principal]

    def access_entries(self, cluster: str, policy_arn: str | None = None) -> list[AccessEntry]:
        """Entries of a cluster by principal; only those with `policy_arn` if it is given."""
        self._check_mode(cluster)
        with self._lock:
            access_entries = [entry for key, entry in sorted(self._entries.items()) if key[0] == cluster]
        return [entry for entry in access_entries if policy_arn is None or policy_arn in entry.policies]

    def entry_tags(self, arn: str) -> dict[str, str]:
        """The tags of the entry of that ARN, to be read or changed; of nothing when there is no such entry."""
        return next((entry.tags for entry in self._entries.values() if entry.arn == arn), {})

    def delete_access_entry(self, cluster: str, principal: str) -> None:
        entry = self.access_entry(cluster, principal)
        with self._lock:
            self._entries.pop((entry.cluster, entry.principal), None)

    def associate_access_policy(
        self, cluster: str, principal: str, policy_arn: str, scope: Mapping[str, Any]
    ) -> AccessEntry:
        """Attach one of EKS's access policies; again with another scope replaces the scope."""
        entry = self.access_entry(cluster, principal)
        if ":cluster-access-policy/" not in policy_arn:
            raise AwsError("InvalidParameterException", f"The policyArn is not valid: {policy_arn}")
        if entry.type != "STANDARD":
            raise AwsError("InvalidRequestException", f"Access policies are not supported for type {entry.type}")
        with self._lock:
            if entry.policies.get(policy_arn, ({}, None))[0] != dict(scope):
                entry.policies_effective_at[policy_arn] = self._effective_at(f"{cluster} {principal} {policy_arn}")
            entry.policies[policy_arn] = (dict(scope), datetime.now(UTC))
        return entry

    def disassociate_access_policy(self, cluster: str, principal: str, policy_arn: str) -> None:
        entry = self.access_entry(cluster, principal)
        with self._lock:
            if entry.policies.pop(policy_arn, None) is None:
                raise AwsError("ResourceNotFoundException", f"The policy {policy_arn} is not associated.")

    def principal_id(self, arn: str) -> str:
        """The unique id of the role or user that has this ARN now; "" when there is none."""
        if ":role/" in arn:
            role = find_role(self._emulator, arn)
            return str(role.id) if role is not None else ""
        users = iam_backends[self._emulator.account]["aws"].users.values()
        return next((str(user.id) for user in users if user.arn == arn), "")

    def _effective_at(self, about: str) -> float:
        strictness = self._emulator.strictness
        return strictness.now() + strictness.seconds(Rule.ACCESS_ENTRY_PROPAGATION, about)

    # Pod Identity

    def create_association(
        self,
        cluster: str,
        namespace: str,
        service_account: str,
        role_arn: str,
        tags: Mapping[str, str] | None = None,
    ) -> PodIdentityAssociation:
        self.cluster(cluster)
        with self._lock:
            if self.find_association(cluster, namespace, service_account) is not None:
                raise AwsError(
                    "ResourceInUseException",
                    f"Association already exists: {cluster}, {namespace}, {service_account}",
                )
            association_id = f"a-{uuid.uuid4().hex[:17]}"
            arn = self._arn(f"podidentityassociation/{cluster}/{association_id}")
            identity = PodIdentityAssociation(
                cluster, namespace, service_account, role_arn, association_id, arn, dict(tags or {})
            )
            seconds = self._emulator.strictness.seconds(Rule.POD_IDENTITY_PROPAGATION, arn)
            identity.effective_at = self._emulator.strictness.now() + seconds
            self._identities[cluster, association_id] = identity
            return identity

    def association(self, cluster: str, association_id: str) -> PodIdentityAssociation:
        self.cluster(cluster)
        with self._lock:
            if (cluster, association_id) not in self._identities:
                raise AwsError("ResourceNotFoundException", f"No association with id {association_id}")
            return self._identities[cluster, association_id]

    def find_association(self, cluster: str, namespace: str, service_account: str) -> PodIdentityAssociation | None:
        with self._lock:
            for identity in self._identities.values():
                if (identity.cluster, identity.namespace, identity.service_account) == (
                    cluster,
                    namespace,
                    service_account,
                ):
                    return identity
        return None

    def associations(self, cluster: str) -> list[PodIdentityAssociation]:
        self.cluster(cluster)
        with self._lock:
            return [identity for key, identity in sorted(self._identities.items()) if key[0] == cluster]

    def update_association(self, cluster: str, association_id: str, role_arn: str) -> PodIdentityAssociation:
        identity = self.association(cluster, association_id)
        identity.role_arn = role_arn
        return identity

    def delete_association(self, cluster: str, association_id: str) -> PodIdentityAssociation:
        identity = self.association(cluster, association_id)
        with self._lock:
            self._identities.pop((cluster, association_id), None)
        return identity

    def _arn(self, rest: str) -> str:
        return f"arn:aws:eks:{self._emulator.region}:{self._emulator.account}:{rest}"

    def _entry_arn(self, cluster: str, principal: str) -> str:
        kind, _, name = principal.rsplit(":", 1)[-1].partition("/")
        return self._arn(f"access-entry/{cluster}/{kind}/{self._emulator.account}/{name}/{uuid.uuid4()}")

    def _default_username(self, type: str, principal: str) -> str:
        if type in NODE_TYPES:
            return NODE_USERNAME
        if ":role/" not in principal:
            return principal
        role = principal.rsplit("/", 1)[-1]
        return f"arn:aws:sts::{self._emulator.account}:assumed-role/{role}/{{{{SessionName}}}}"


def _check_entry(type: str, groups: Sequence[str], username: str | None) -> None:
    if type not in ENTRY_TYPES:
        raise AwsError("InvalidParameterException", f"The type {type} is not valid.")
    if type != "STANDARD" and (groups or username):
        raise AwsError(
            "InvalidParameterException", f"Access entries of type {type} have no groups or username of their own."
        )
    for group in groups:
        if group.startswith(("system:", "eks:", "aws:", "amazon:", "iam:")):
            raise AwsError(
                "InvalidParameterException",
                f"The kubernetes group name {group} is invalid, it cannot start with {group.partition(':')[0]}:",
            )
    if username and username.startswith(("system:", "eks:", "aws:", "amazon:", "iam:")):
        raise AwsError("InvalidParameterException", f"The username {username} is invalid.")
