"""Whether a cluster and its account are ready: a sentence for each check, with the next step."""

import difflib
import re
from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec

from spotwright.settings import PROVISIONER
from spotwright.workflows.install.preflight.account import (
    check_boundary,
    check_concurrency,
    check_key,
    check_node_roles,
    check_spot_role,
)
from spotwright.workflows.install.preflight.facts import (
    AccessEntry,
    Addon,
    ClusterDescription,
    Facts,
    NotAsked,
    Role,
    Target,
)
from spotwright.workflows.install.preflight.network import check_endpoint, check_network
from spotwright.workflows.install.preflight.vcpu_quotas import check_vcpu_quotas
from spotwright.workflows.install.preflight.verdict import Caution, NotChecked, Problem, Verdict, Works

# The FlowSchema that is installed is of an API that Kubernetes has since.
OLDEST_VERSION: Final = (1, 29)
# What the tests run on, and what those that ask an API server were seen to pass on (`make test-kubernetes`).
TRIED_VERSIONS: Final = ((1, 31), (1, 35), (1, 36))
_POD_IDENTITY: Final = "eks-pod-identity-agent"
_KUBE_PROXY: Final = "kube-proxy"
_ADDONS: Final = ("vpc-cni", _KUBE_PROXY, "coredns")
_VOLUMES: Final = "aws-ebs-csi-driver"
_OLDEST_KUBE_PROXY: Final = 3
# https://docs.aws.amazon.com/eks/latest/APIReference/API_Addon.html
_BROKEN: Final = frozenset({"CREATE_FAILED", "DEGRADED"})
# How EKS says that Deployments of an add-on wait, as they do while the cluster has no node.
_TOO_FEW_REPLICAS: Final = "InsufficientNumberOfReplicas"
# What the add-on's DaemonSet or Deployment is called in kube-system, where it is another name.
_WORKLOADS: Final = {"vpc-cni": "aws-node"}
_CLUSTER_UNKNOWN: Final = NotChecked("the cluster is not known")


class Status(StrEnum):
    """How a check ended."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"
    NOT_CHECKED = "could not be checked"


class Check(msgspec.Struct, frozen=True):
    """One line of a preflight. ``message``: what holds, or what is wrong and what to do about it."""

    name: str
    status: Status
    message: str


def run_checks(target: Target, facts: Facts, names: tuple[str, ...] | None = None) -> tuple[Check, ...]:
    """The checks in the order in which to mend what they find; only those of ``names`` where they are given.

    A check that the cluster's ``skipChecks`` names is left out.
    """
    chosen = [name for name in CHECKS if (names is None or name in names) and name not in target.skipped_checks]
    return tuple(_line(name, CHECKS[name](target, facts)) for name in chosen)


def _line(name: str, verdict: Verdict) -> Check:
    match verdict:
        case Works(message):
            return Check(name, Status.OK, message)
        case Caution(message):
            return Check(name, Status.WARNING, message)
        case Problem(message):
            return Check(name, Status.PROBLEM, message)
        case NotChecked(reason):
            return Check(name, Status.NOT_CHECKED, reason)


def _of_cluster(check: Callable[[Target, Facts, ClusterDescription], Verdict]) -> Callable[[Target, Facts], Verdict]:
    """A check that needs to know the cluster."""

    def run(target: Target, facts: Facts) -> Verdict:
        if facts.cluster is None or isinstance(facts.cluster, NotAsked):
            return _CLUSTER_UNKNOWN
        return check(target, facts, facts.cluster)

    return run


def _check_exists(target: Target, facts: Facts) -> Verdict:
    match facts.cluster:
        case NotAsked(reason):
            return NotChecked(reason)
        case None:
            return Problem(_missing(target, facts))
        case ClusterDescription(status="ACTIVE"):
            return Works(f"{target.name} in {target.region} is ACTIVE")
        case ClusterDescription(status=status):
            return Problem(
                f"{target.name} has status {status}: wait until it is ACTIVE (aws eks wait cluster-active"
                f" --name {target.name})"
            )


def _missing(target: Target, facts: Facts) -> str:
    others = () if isinstance(facts.other_clusters, NotAsked) else facts.other_clusters
    near = difflib.get_close_matches(target.name, others, n=1)
    listed = f"the clusters there are {', '.join(sorted(others)[:10])}" if others else "it has none that may be listed"
    advice = f"did you mean {near[0]}?" if near else f"{listed}; is it in another region (AWS_REGION)?"
    return f"EKS has no cluster {target.name} in {target.region}: {advice}"


def _check_version(_target: Target, _facts: Facts, cluster: ClusterDescription) -> Verdict:
    try:
        version = tuple(int(part) for part in cluster.version.split("."))
    except ValueError:
        return NotChecked(f"EKS gives the Kubernetes version as {cluster.version}, which is no number")
    if version < OLDEST_VERSION:
        return Problem(
            f"Kubernetes {cluster.version} is older than {_dotted(OLDEST_VERSION)}, which is the oldest that"
            " Spotwright runs on: update the cluster first"
        )
    if version not in TRIED_VERSIONS:
        *older, newest = map(_dotted, TRIED_VERSIONS)
        tried = f"{', '.join(older)} and {newest}"
        return Works(f"Kubernetes {cluster.version}; the tests were run on {tried}, not on this version")
    return Works(f"Kubernetes {cluster.version}")


def _check_authentication(target: Target, _facts: Facts, cluster: ClusterDescription) -> Verdict:
    mode = cluster.authentication_mode
    if mode in ("API", "API_AND_CONFIG_MAP"):
        return Works(f"authentication mode {mode}")
    return Problem(
        f"authentication mode {mode or 'CONFIG_MAP'} knows no access entries: aws eks update-cluster-config --name"
        f" {target.name} --access-config authenticationMode=API_AND_CONFIG_MAP (aws-auth goes on to count)"
    )


def _check_entries(target: Target, facts: Facts, _cluster: ClusterDescription) -> Verdict:
    """Node roles' entries that are missing are made by the deployment; those of its own roles once only."""
    if refused := _refused_roles(target, facts):
        return Problem(refused)
    wrong = [
        f"{role} has an access entry of type {found.type}, its nodes need {wanted}"
        for role in target.node_roles
        for wanted in ["EC2_WINDOWS" if role in target.windows_node_roles else "EC2_LINUX"]
        if isinstance(found := facts.entries.get(role), AccessEntry) and found.type != wanted
    ]
    unknown = [found.reason for found in facts.entries.values() if isinstance(found, NotAsked)]
    if stale := [role for role in target.node_roles if _is_of_former_role(facts, role)]:
        return Problem(
            f"the access entry of {', '.join(stale)} is older than the role: it was for a role of that name which was"
            " deleted, and lets no node of the present one in: aws eks delete-access-entry --cluster-name"
            f" {target.name} --principal-arn ROLE_ARN, then cdk deploy makes it anew"
        )
    if wrong:
        return Problem(
            f"{'; '.join(wrong)}: name another role in nodeRoles, or delete the entry if nobody needs it (aws"
            f" eks delete-access-entry --cluster-name {target.name} --principal-arn ROLE_ARN)"
        )
    if unknown or not facts.entries:
        return NotChecked(unknown[0] if unknown else "the access entries are not known")
    missing = [role for role, found in facts.entries.items() if found is None]
    if missing:
        return Works(f"cdk deploy makes the entries that are missing: {', '.join(missing)}")
    return Works("every node role has one")


def _refused_roles(target: Target, facts: Facts) -> str:
    """Roles of the deployed stack whose entries somebody deleted or changed, which CloudFormation does not see."""
    if isinstance(facts.function_entries, NotAsked):
        return ""
    said = []
    for entry in facts.function_entries:
        verb = "create" if entry.groups is None else "update"
        if entry.groups is not None and entry.needed_group in entry.groups:
            continue
        what = "has no access entry any more" if entry.groups is None else f"lacks the group {entry.needed_group}"
        groups = " ".join([*(entry.groups or ()), entry.needed_group])
        said.append(
            f"role {entry.principal} of the deployed functions {what}, and the API server refuses it: aws eks"
            f" {verb}-access-entry --cluster-name {target.name} --principal-arn {entry.principal} --kubernetes-groups"
            f" {groups}"
        )
    return "; ".join(said)


def _is_of_former_role(facts: Facts, name: str) -> bool:
    """An entry ends with its role, whoever takes the role's name later.

    https://docs.aws.amazon.com/eks/latest/userguide/creating-access-entries.html
    """
    entry, role = facts.entries.get(name), facts.roles.get(name)
    return (
        isinstance(entry, AccessEntry)
        and isinstance(role, Role)
        and entry.created_at is not None
        and role.created_at is not None
        and entry.created_at < role.created_at
    )


def _check_pod_identity(target: Target, facts: Facts, cluster: ClusterDescription) -> Verdict:
    if cluster.is_auto_mode:
        return Works("EKS Auto Mode has the Pod Identity agent built in")
    if isinstance(facts.addons, NotAsked):
        return NotChecked(facts.addons.reason)
    if said := _trouble_of(target, facts.addons, _POD_IDENTITY):
        return Problem(f"{said}; until it works the forwarder has no credentials")
    if _POD_IDENTITY in facts.addons or _runs(facts, _POD_IDENTITY):
        return Works(f"{_POD_IDENTITY} is installed")
    return Problem(
        f"add-on {_POD_IDENTITY} is not installed, without which the forwarder has no credentials: aws eks create-addon"
        f" --cluster-name {target.name} --addon-name {_POD_IDENTITY}"
    )


def _check_addons(target: Target, facts: Facts, cluster: ClusterDescription) -> Verdict:
    if cluster.is_auto_mode:
        return Works("EKS Auto Mode has them built in")
    if isinstance(facts.addons, NotAsked):
        return NotChecked(facts.addons.reason)
    installed = facts.addons
    troubles = [_trouble_of(target, installed, name) for name in (*_ADDONS, _VOLUMES)]
    if said := "; ".join(filter(None, [*troubles, _kube_proxy_skew(target, installed, cluster)])):
        return Problem(said)
    if facts.unserved_volume and not isinstance(facts.unserved_volume, NotAsked):
        return Problem(
            f"PersistentVolumeClaim {facts.unserved_volume} is of EBS, and no driver for it is installed, without which"
            f" its pods wait for ever: aws eks create-addon --cluster-name {target.name} --addon-name {_VOLUMES}"
        )
    missing = [name for name in _ADDONS if name not in installed and not _runs(facts, _WORKLOADS.get(name, name))]
    if not missing:
        return Works(f"{', '.join(_ADDONS)} are installed")
    if isinstance(facts.workloads, NotAsked):
        return NotChecked(
            f"{', '.join(missing)}: no add-on of EKS; whether they run otherwise is not known"
            f" ({facts.workloads.reason})"
        )
    return Problem(
        f"{', '.join(missing)} neither installed as add-ons nor found in kube-system, without which no node"
        f" becomes Ready: aws eks create-addon --cluster-name {target.name} --addon-name"
        f" {missing[0]}"
    )


def _trouble_of(target: Target, installed: Mapping[str, Addon], name: str) -> str:
    """Why an add-on that is installed does not work, with the next step; "" = it does, or waits for nodes alone."""
    addon = installed.get(name, Addon())
    issues = {code: message for code, message in addon.issues.items() if code != _TOO_FEW_REPLICAS}
    waits = addon.status == "DEGRADED" and addon.issues and not issues
    if addon.status not in _BROKEN or waits:
        return ""
    reasons = f" ({'; '.join(f'{code}: {message}' for code, message in issues.items())})" if issues else ""
    return (
        f"add-on {name} is {addon.status}{reasons}: mend what EKS names, then aws eks update-addon --cluster-name"
        f" {target.name} --addon-name {name} --resolve-conflicts OVERWRITE"
    )


def _kube_proxy_skew(target: Target, installed: Mapping[str, Addon], cluster: ClusterDescription) -> str:
    """kube-proxy is no newer than the API server, and at most three minor versions older.

    https://kubernetes.io/releases/version-skew-policy/#kube-proxy
    """
    found = re.match(r"v(\d+)\.(\d+)\.", installed.get(_KUBE_PROXY, Addon()).version)
    known = re.fullmatch(r"(\d+)\.(\d+)", cluster.version)
    if not found or not known or 0 <= int(known[2]) - int(found[2]) <= _OLDEST_KUBE_PROXY:
        return ""
    return (
        f"add-on {_KUBE_PROXY} {installed[_KUBE_PROXY].version} does not fit Kubernetes {cluster.version}, which takes"
        f" its own version and {_OLDEST_KUBE_PROXY} older ones: aws eks update-addon --cluster-name {target.name}"
        f" --addon-name {_KUBE_PROXY} --addon-version VERSION (aws eks describe-addon-versions --addon-name"
        f" {_KUBE_PROXY} --kubernetes-version {cluster.version})"
    )


def _runs(facts: Facts, name: str) -> bool:
    return not isinstance(facts.workloads, NotAsked) and name in facts.workloads.system


def _check_provisioner(target: Target, facts: Facts, cluster: ClusterDescription) -> Verdict:
    if cluster.is_auto_mode:
        return Problem(
            f"EKS Auto Mode manages the NodePools of {target.name}, and two that do would launch for the same pods:"
            " turn it off (aws eks update-cluster-config with computeConfig, storageConfig and kubernetesNetworkConfig"
            " disabled), or leave this cluster to it"
        )
    if isinstance(facts.workloads, NotAsked):
        return NotChecked(facts.workloads.reason)
    if facts.workloads.karpenter:
        return Problem(running_karpenter(facts.workloads.karpenter))
    if facts.workloads.autoscaler:
        return Works(
            f"no other provisioner runs; Deployment {facts.workloads.autoscaler[0]} (cluster autoscaler) may"
            " add nodes of its groups for the same pods"
        )
    return Works("no other provisioner runs")


def running_karpenter(deployments: tuple[str, ...]) -> str:
    """The refusal where Karpenter runs, with the command that stops it."""
    namespace, _, name = deployments[0].partition("/")
    return (
        f"Deployment {deployments[0]} runs Karpenter, and two that manage NodePools would launch for the same pods:"
        f" kubectl scale deployment {name} --namespace {namespace} --replicas=0, then deploy again; its nodes stay, and"
        " Spotwright takes them over"
    )


def _check_cell(target: Target, facts: Facts, _cluster: ClusterDescription) -> Verdict:
    if isinstance(facts.workloads, NotAsked):
        return NotChecked(facts.workloads.reason)
    cell = facts.workloads.cell
    if cell and cell != target.cell:
        return Problem(served_by_another_cell(target.name, cell))
    return Works("this cell serves the cluster already" if cell else "no cell serves the cluster yet")


def served_by_another_cell(cluster: str, cell: str) -> str:
    """The refusal where another cell's forwarder is, which rings for functions that launch for the same pods."""
    return (
        f"cluster {cluster} is served by cell {cell}, and two cells would launch for the same pods: take it out of that"
        f" cell's cdk.json and deploy that, or destroy the stack Spotwright-{cell}, then deploy again; where that stack"
        " is gone: kubectl delete deployment spotwright-forwarder --namespace kube-system"
    )


def _check_image(target: Target, facts: Facts) -> Verdict:
    image = target.forwarder_image
    if not image:
        return _check_builder(target, facts)
    registry = image.partition("/")[0]
    if "/" not in image or not (set(".:") & set(registry) or registry == "localhost"):
        domain = "amazonaws.com.cn" if target.region.startswith("cn-") else "amazonaws.com"
        return Problem(
            f"forwarderImage {image} names no registry, so that nodes would ask docker.io: make forwarder-image"
            f" IMAGE=ACCOUNT.dkr.ecr.{target.region}.{domain}/spotwright-forwarder:TAG, and name that in cdk.json"
        )
    if facts.has_image is False:
        return Problem(
            f"forwarderImage {image}: its registry has no such image, and the forwarder would never start: make"
            f" forwarder-image IMAGE={image.partition('@')[0]}, or correct the name in cdk.json"
        )
    return Works(f"{image} {'is there' if facts.has_image is True else 'names its registry'}")


def _check_builder(target: Target, facts: Facts) -> Verdict:
    if isinstance(facts.image_builder, NotAsked):
        return NotChecked(facts.image_builder.reason)
    if facts.image_builder and facts.image_builder_failure:
        return Problem(
            f"cdk deploy builds the forwarder's image with {facts.image_builder}, which does not work here"
            f" ({facts.image_builder_failure}): start it, or name an image in cdk.json that was pushed from elsewhere"
            " (make forwarder-image)"
        )
    if facts.image_builder:
        return Works(f"cdk deploy builds it for {target.forwarder_architecture} nodes with {facts.image_builder}")
    return Problem(
        f"cdk deploy builds the forwarder's image where cdk.json names no forwarderImage for {target.name}, and what it"
        " builds with is not on this machine: install docker, or finch and set CDK_DOCKER=finch, or name an image"
        " that was pushed from elsewhere (make forwarder-image)"
    )


def _dotted(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


#: Name, as skipChecks and the output have it, to check; in the order in which to mend what they find.
CHECKS: Final[Mapping[str, Callable[[Target, Facts], Verdict]]] = {
    "cluster": _check_exists,
    "version": _of_cluster(_check_version),
    "authentication-mode": _of_cluster(_check_authentication),
    PROVISIONER: _of_cluster(_check_provisioner),
    "cell": _of_cluster(_check_cell),
    "endpoint": _of_cluster(check_endpoint),
    "network": _of_cluster(check_network),
    "node-roles": check_node_roles,
    "access-entries": _of_cluster(_check_entries),
    "pod-identity": _of_cluster(_check_pod_identity),
    "add-ons": _of_cluster(_check_addons),
    "forwarder-image": _check_image,
    "concurrency": check_concurrency,
    "vcpu-quotas": check_vcpu_quotas,
    "spot-role": check_spot_role,
    "permissions-boundary": check_boundary,
    "kms-key": check_key,
}
