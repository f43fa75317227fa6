"""CloudFormation's custom resources: the look before, the installation in a cluster, and a bucket's contents.

Every request is answered exactly once: by the work, or by a timer shortly before Lambda ends the invocation.
"""

import hashlib
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from aws_lambda_powertools import Logger

from spotwright import manifests
from spotwright.adapters.aws import clients, node_roles, stack_status
from spotwright.adapters.aws.custom_resource import CustomResourceResponder, CustomResourceResult
from spotwright.adapters.aws.eks import readiness
from spotwright.adapters.aws.eks.access_entries import NodeAccessEntries
from spotwright.adapters.aws.eks.access_entry import TemporaryAccessEntry
from spotwright.adapters.aws.s3.bucket_contents import empty_bucket
from spotwright.errors import ApiError, InvalidRequest
from spotwright.log_metrics import write_library_lines
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.install.node_access import NodeRole
from spotwright.workflows.install.nodes_left import explain_deletion, explain_removal, find_nodes_left
from spotwright.workflows.install.preflight.checks import Status, run_checks
from spotwright.workflows.install.preflight.facts import ClusterDescription, Facts, NotAsked, Target
from spotwright.workflows.install.workflow import Installation, install, remove
from spotwright.workflows.ports.installation import AdminAccessPort, NodeAccessPort

# Reserved for closing the temporary access and for the answer; LAST_SECONDS before the end the timer answers.
RESERVE_SECONDS = 60.0
LAST_SECONDS = 15.0
# A cluster that does not answer is abandoned sooner when its stack is deleted.
REMOVAL_SECONDS = 90.0
# What is left is looked for no longer than this: a cluster that does not answer holds up no deletion.
NODES_LEFT_SECONDS = 30.0
# What the preflight may not see after this long is not looked at: new permissions take effect sooner.
PREFLIGHT_SECONDS = 60.0
PREFLIGHT_PAUSE_SECONDS = 3.0
# What the function may look at with its own rights; the command `spotwright preflight` looks at more.
PREFLIGHT_CHECKS = (
    *("cluster", "version", "authentication-mode", "provisioner", "endpoint", "node-roles", "pod-identity"),
)

logger = Logger()
write_library_lines(logger, "spotwright.install")


class Deadline:
    """``seconds`` from now."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def remaining_seconds(self) -> float:
        return self._end - time.monotonic()

    def pause(self, seconds: float) -> None:
        time.sleep(random.uniform(0.75, 1.25) * seconds)


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: Any) -> None:
    answer = CustomResourceResponder(event)
    remaining = context.get_remaining_time_in_millis() / 1000
    late = CustomResourceResult(
        _physical_id(event), failed=True, reason="ran out of time; see the log of the function install"
    )
    timer = threading.Timer(max(1.0, remaining - LAST_SECONDS), answer.respond, [late])
    timer.daemon = True
    timer.start()
    try:
        outcome = _serve(event, remaining - RESERVE_SECONDS)
    except Exception as error:  # noqa: BLE001 a stack that gets no answer waits for an hour
        log_line(logger, log_lines.REQUEST_FAILED)
        reason = str(error) if isinstance(error, ApiError) else f"{type(error).__name__}: {error}"
        outcome = CustomResourceResult(_physical_id(event), failed=True, reason=reason)
    timer.cancel()
    answer.respond(outcome)


def _serve(event: Mapping[str, Any], seconds: float) -> CustomResourceResult:
    match event["ResourceType"], event["RequestType"]:
        case "Custom::SpotwrightInstall", "Create" | "Update":
            return _install(event, Deadline(seconds))
        case "Custom::SpotwrightInstall", "Delete":
            return _remove(event, Deadline(min(seconds, REMOVAL_SECONDS)))
        case "Custom::SpotwrightClusters", "Create" | "Delete":
            return CustomResourceResult(_physical_id(event))
        case "Custom::SpotwrightClusters", "Update":
            return _say_what_leaving_clusters_have(event, seconds)
        case "Custom::SpotwrightNodesLeft", "Create" | "Update":
            return CustomResourceResult(_physical_id(event))
        case "Custom::SpotwrightNodesLeft", "Delete":
            return _say_what_is_left(event, Deadline(min(seconds, NODES_LEFT_SECONDS)))
        case "Custom::SpotwrightPreflight", "Create" | "Update":
            return _preflight(event, Deadline(min(seconds, PREFLIGHT_SECONDS)))
        case "Custom::SpotwrightPreflight", "Delete":
            return CustomResourceResult(_physical_id(event))
        case "Custom::SpotwrightBucketContents", "Create" | "Update":
            return CustomResourceResult(_physical_id(event))
        case "Custom::SpotwrightBucketContents", "Delete":
            return _empty(event, Deadline(seconds).remaining_seconds)
        case request:
            raise ValueError(f"not a request that this function knows: {request}")


def _preflight(event: Mapping[str, Any], deadline: Deadline) -> CustomResourceResult:
    """Fails with every problem of a cluster before anything is made in it."""
    target = _target(event["ResourceProperties"])
    facts = _facts(target)
    while _is_incomplete(facts) and deadline.remaining_seconds() > PREFLIGHT_PAUSE_SECONDS:
        deadline.pause(PREFLIGHT_PAUSE_SECONDS)
        facts = _facts(target)
    checks = run_checks(target, facts, PREFLIGHT_CHECKS)
    log_line(
        logger, log_lines.PREFLIGHT,
        cluster=target.name, checks={check.name: f"{check.status}: {check.message}" for check in checks},
    )  # fmt: skip
    problems = [check.message for check in checks if check.status is Status.PROBLEM]
    reason = f"cluster {target.name} is not ready for Spotwright: {'; '.join(problems)}" if problems else ""
    return CustomResourceResult(_physical_id(event), failed=bool(problems), reason=reason)


def _target(properties: Mapping[str, Any]) -> Target:
    return Target(
        name=properties["Cluster"],
        region=clients.eks().meta.region_name,
        node_roles=tuple(properties.get("NodeRoles", ())),
        windows_node_roles=tuple(properties.get("WindowsNodeRoles", ())),
        vpc_id=properties.get("VpcId", ""),
        skipped_checks=tuple(properties.get("SkipChecks", ())),
    )


def _facts(target: Target) -> Facts:
    eks, iam = clients.eks(), clients.iam()
    cluster = readiness.describe(eks, target.name)
    if not isinstance(cluster, ClusterDescription):
        others = readiness.cluster_names(eks) if cluster is None else ()
        return Facts(cluster=cluster, other_clusters=others)
    # What a skipped check would look at may be what does not answer here.
    named = () if "node-roles" in target.skipped_checks else target.node_roles
    addons = {} if "pod-identity" in target.skipped_checks else readiness.addons(eks, target.name)
    return Facts(cluster=cluster, roles={name: node_roles.role(iam, name) for name in named}, addons=addons)


def _is_incomplete(facts: Facts) -> bool:
    """Something was not answered, perhaps since the function's rights are new."""
    asked = (facts.cluster, *(() if facts.cluster is None else (facts.addons, *facts.roles.values())))
    return any(isinstance(fact, NotAsked) for fact in asked)


def _install(event: Mapping[str, Any], deadline: Deadline) -> CustomResourceResult:
    _check_update(event)
    applied = install(
        _access(event, event["ResourceProperties"]["Cluster"]), _nodes(event), _installation(event), deadline
    )
    log_line(logger, log_lines.INSTALLED, cluster=event["ResourceProperties"]["Cluster"], applied=applied)
    return CustomResourceResult(_physical_id(event), data={"Applied": str(len(applied))})


def _remove(event: Mapping[str, Any], deadline: Deadline) -> CustomResourceResult:
    """Never fails because of the cluster: a stack can always be deleted."""
    if not {"Cluster", "RoleArn"} <= event["ResourceProperties"].keys():
        return CustomResourceResult(_physical_id(event), reason="the request was never valid, so nothing was installed")
    removal = remove(
        _access(event, event["ResourceProperties"]["Cluster"]), _nodes(event), _installation(event), deadline
    )
    log_line(
        logger, log_lines.REMOVED,
        cluster=event["ResourceProperties"]["Cluster"],
        deleted=removal.deleted, kept=removal.kept, abandoned=removal.gave_up,
        entries_deleted=removal.entries.deleted, entries_kept=removal.entries.kept,
    )  # fmt: skip
    return CustomResourceResult(_physical_id(event), reason=removal.gave_up)


def _say_what_is_left(event: Mapping[str, Any], deadline: Deadline) -> CustomResourceResult:
    """Fails once while NodeClaims are there."""
    properties = event["ResourceProperties"]
    cluster, cell = properties["Cluster"], properties["Cell"]
    claims = _nodes_left(event, cluster, deadline)
    return _said(event, [cluster], explain_deletion(cell, cluster, claims) if claims else "")


def _say_what_leaving_clusters_have(event: Mapping[str, Any], seconds: float) -> CustomResourceResult:
    """Fails an update once while NodeClaims are in clusters that leave the stack, and never the update's roll-back."""
    properties = event["ResourceProperties"]
    leaving = sorted({*event["OldResourceProperties"]["Clusters"]} - {*properties["Clusters"]})
    if not leaving or not _is_updating(event, leaving):
        return CustomResourceResult(_physical_id(event))
    each = min(seconds / len(leaving), NODES_LEFT_SECONDS)
    found = {cluster: _nodes_left(event, cluster, Deadline(each)) for cluster in leaving}
    left = {cluster: claims for cluster, claims in found.items() if claims}
    return _said(event, list(left), explain_removal(properties["Cell"], left) if left else "")


def _is_updating(event: Mapping[str, Any], leaving: Sequence[str]) -> bool:
    """False where CloudFormation does not answer, since a roll-back that fails has to be continued by hand."""
    try:
        return stack_status.is_updating(clients.client("cloudformation"), event["StackId"])
    except ApiError as failure:
        for cluster in leaving:
            log_line(logger, log_lines.NODES_LEFT_UNKNOWN, cluster=cluster, error=str(failure))
        return False


def _nodes_left(event: Mapping[str, Any], cluster: str, deadline: Deadline) -> Sequence[str]:
    """NodeClaims that are left to nobody, none where the cluster does not answer."""
    (forwarder,) = manifests.forwarder("", {})
    access = _access(event, cluster)
    cell, request = event["ResourceProperties"]["Cell"], event["RequestId"]
    try:
        return find_nodes_left(access, cell, forwarder, deadline, request=request, now=datetime.now(UTC))
    except ApiError as failure:
        log_line(logger, log_lines.NODES_LEFT_UNKNOWN, cluster=cluster, error=str(failure))
        return ()


def _said(event: Mapping[str, Any], clusters: Sequence[str], reason: str) -> CustomResourceResult:
    for cluster in clusters if reason else ():
        log_line(logger, log_lines.NODES_LEFT, cluster=cluster, reason=reason)
    return CustomResourceResult(_physical_id(event), failed=bool(reason), reason=reason)


def _check_update(event: Mapping[str, Any]) -> None:
    """Refuse an update after which CloudFormation would delete the nodes' access entries. Raises InvalidRequest.

    Stacks of earlier versions held these entries as resources. CloudFormation deletes what left a template after
    everything else was updated, so that nothing here could make them again.
    """
    properties, old = event["ResourceProperties"], event.get("OldResourceProperties", {})
    if event["RequestType"] != "Update" or "NodeRoles" not in properties or "NodeRoles" in old:
        return
    if old.get("NodeEntries") != "retained":
        raise InvalidRequest(
            f"cluster {properties['Cluster']}: the stack holds the access entries of the node roles, and this update"
            " would delete them: running nodes would lose the cluster. Set retainNodeEntries to true in cdk.json,"
            " deploy, take it out again, and deploy once more."
        )


def _empty(event: Mapping[str, Any], remaining_seconds: Callable[[], float]) -> CustomResourceResult:
    bucket = event["ResourceProperties"]["Bucket"]
    if empty_bucket(clients.client("s3"), bucket, remaining_seconds):
        return CustomResourceResult(_physical_id(event))
    return CustomResourceResult(
        _physical_id(event), failed=True, reason=f"{bucket} is not empty yet: delete the stack again"
    )


def _installation(event: Mapping[str, Any]) -> Installation:
    properties = event["ResourceProperties"]
    image, environment = properties.get("ForwarderImage", ""), properties.get("ForwarderEnvironment", {})
    forwarder = manifests.forwarder(image, environment, properties.get("ForwarderArchitecture", ""))
    requester = f"{event['StackId']}/{event['LogicalResourceId']}"
    return Installation(
        definitions=manifests.definitions(),
        parts=[*manifests.rbac(), *manifests.flow_control(), *forwarder],
        installer=hashlib.sha256(requester.encode()).hexdigest()[:12],
        node_roles=_node_roles(properties),
        skipped_checks=tuple(properties.get("SkipChecks", ())),
    )


def _node_roles(properties: Mapping[str, Any]) -> tuple[NodeRole, ...] | None:
    """The roles whose access entries are kept here; None while the stack holds them."""
    roles = properties.get("NodeRoles")
    return None if roles is None else tuple(NodeRole(arn=role["Arn"], type=role["Type"]) for role in roles)


def _access(event: Mapping[str, Any], cluster: str) -> AdminAccessPort:
    role_arn = event["ResourceProperties"]["RoleArn"]
    return TemporaryAccessEntry(clients.eks(), clients.sts(), cluster=cluster, role_arn=role_arn)


def _nodes(event: Mapping[str, Any]) -> NodeAccessPort:
    return NodeAccessEntries(clients.eks(), cluster=event["ResourceProperties"]["Cluster"])


_OF_STACK = {
    "Custom::SpotwrightBucketContents": "spotwright-bucket-contents",
    "Custom::SpotwrightClusters": "spotwright-clusters",
}
_KINDS = {"Custom::SpotwrightPreflight": "preflight", "Custom::SpotwrightNodesLeft": "nodes-left"}


def _physical_id(event: Mapping[str, Any]) -> str:
    """Constant per cluster, or per resource of the stack; a Delete is answered with the id it names."""
    if event.get("RequestType") == "Delete":
        return str(event["PhysicalResourceId"])
    if found := _OF_STACK.get(event.get("ResourceType", "")):
        return found
    kind = _KINDS.get(event.get("ResourceType", ""), "install")
    return f"spotwright-{kind}-{event.get('ResourceProperties', {}).get('Cluster', 'invalid')}"
