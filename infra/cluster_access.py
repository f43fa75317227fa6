"""One cluster of the cell: who may see it, who may act on it, and who its nodes and forwarder are."""

from aws_cdk import CustomResource, RemovalPolicy, Stack
from aws_cdk import aws_eks as eks
from aws_cdk import aws_iam as iam
from constructs import Construct

from infra.config import Cluster, Config
from infra.functions import Function
from infra.grants import Grant, grant
from infra.permissions import act_grants, node_role_arns, read_grants

_FORWARDER_NAMESPACE = "kube-system"
_FORWARDER_SERVICE_ACCOUNT = "spotwright-forwarder"

#: EKS adds these tags to the session of a pod; the trust policy can therefore name the pod's identity.
#: https://docs.aws.amazon.com/eks/latest/userguide/pod-id-role.html
_FORWARDER_SESSION = {
    "StringEquals": {
        "aws:RequestTag/kubernetes-namespace": _FORWARDER_NAMESPACE,
        "aws:RequestTag/kubernetes-service-account": _FORWARDER_SERVICE_ACCOUNT,
    }
}


class ClusterAccess(Construct):
    """The roles *read* and *act* with their Kubernetes groups, the forwarder's identity, who the nodes are.

    `readers` and `actors` are the functions that may assume the one and the other role; nobody else may. Nothing is
    made in the cluster before it was `looked_at`.
    """

    def __init__(
        self,
        scope: Construct,
        cluster: Cluster,
        config: Config,
        *,
        readers: tuple[Function, ...],
        actors: tuple[Function, ...],
        forwarder: tuple[Grant, ...],
        looked_at: CustomResource,
    ) -> None:
        super().__init__(scope, f"Cluster-{cluster.name}")
        self.cluster = cluster
        self._config = config
        stack = Stack.of(self)
        reading, acting = read_grants(stack, cluster), act_grants(stack, cluster)
        self.read = self._assumed("read", readers, reading)
        self.act = self._assumed("act", actors, (*reading, *acting))
        self.forwarder = self._forwarder_role(forwarder)
        #: What must exist before the forwarder starts and the functions log in.
        self.identities = (
            self._entry("ReadEntry", self.read.role_arn, groups=["spotwright:read"]),
            self._entry("ActEntry", self.act.role_arn, groups=["spotwright:act"]),
            *(self._retained_entries() if config.retain_node_entries else ()),
            self._forwarder_identity(),
        )
        for identity in self.identities:
            identity.node.add_dependency(looked_at)

    @property
    def environment(self) -> dict[str, object]:
        """What a function is told of this cluster."""
        roles = {"readRoleArn": self.read.role_arn, "actRoleArn": self.act.role_arn}
        return {**roles, **self.cluster.environment}

    def _assumed(self, name: str, functions: tuple[Function, ...], grants: tuple[Grant, ...]) -> iam.Role:
        role = iam.Role(
            self,
            name.capitalize(),
            assumed_by=iam.CompositePrincipal(*(iam.ArnPrincipal(function.role.role_arn) for function in functions)),
            path=self._config.role_path,
            description=f"Spotwright {self._config.cell}: {name} on cluster {self.cluster.name}",
        )
        grant(role, *grants)
        return role

    def _entry(self, id: str, principal: str, *, groups: list[str]) -> eks.CfnAccessEntry:
        return eks.CfnAccessEntry(
            self,
            id,
            cluster_name=self.cluster.name,
            principal_arn=principal,
            type="STANDARD",
            kubernetes_groups=groups,
        )

    @property
    def node_entries(self) -> dict[str, object]:
        """What the function `install` is told of the access entries of nodes."""
        if self._config.retain_node_entries:
            return {"NodeEntries": "retained"}
        return {"NodeRoles": [{"Arn": arn, "Type": type} for arn, type in self._admitted().values()]}

    def _admitted(self) -> dict[str, tuple[str, str]]:
        """Role names to ARN and type of entry: without an entry of its system's type a node's kubelet is not let in."""
        arns = dict(zip(self.cluster.node_roles, node_role_arns(Stack.of(self), self.cluster), strict=True))
        return {
            name: (arn, "EC2_WINDOWS" if name in self.cluster.windows_node_roles else "EC2_LINUX")
            for name, arn in arns.items()
            if name not in self.cluster.node_roles_with_access_entry
        }

    def _retained_entries(self) -> list[eks.CfnAccessEntry]:
        """The entries as stacks of earlier versions held them, so that they stay when they leave the template."""
        entries = [
            eks.CfnAccessEntry(self, f"Node-{name}", cluster_name=self.cluster.name, principal_arn=arn, type=type)
            for name, (arn, type) in self._admitted().items()
        ]
        for entry in entries:
            entry.apply_removal_policy(RemovalPolicy.RETAIN)
        return entries

    def _forwarder_role(self, grants: tuple[Grant, ...]) -> iam.Role:
        pods = iam.ServicePrincipal("pods.eks.amazonaws.com", conditions=_FORWARDER_SESSION)
        role = iam.Role(
            self,
            "Forwarder",
            assumed_by=iam.SessionTagsPrincipal(pods),
            path=self._config.role_path,
            description=f"Spotwright {self._config.cell}: the forwarder in cluster {self.cluster.name}",
        )
        grant(role, *grants)
        return role

    def _forwarder_identity(self) -> eks.CfnPodIdentityAssociation:
        return eks.CfnPodIdentityAssociation(
            self,
            "ForwarderIdentity",
            cluster_name=self.cluster.name,
            namespace=_FORWARDER_NAMESPACE,
            service_account=_FORWARDER_SERVICE_ACCOUNT,
            role_arn=self.forwarder.role_arn,
        )
