"""Kubernetes Events: which object gets which, and when. Reasons and messages are Karpenter's where Karpenter has them.

Source: Karpenter v1.14 ``pkg/events/reason.go``, each controller's ``events.go`` (deduplication timeouts included), and
the events of ``awslabs/operatorpkg/status``.
"""

from datetime import timedelta
from typing import Final

from spotwright.telemetry.rows import EventRow, EventType

# A table: a row is read as a whole.
# fmt: off
_NORMAL, _WARNING = EventType.NORMAL, EventType.WARNING
_NODE: Final = ("nodeclaims", "nodes")

# Pods

NOMINATED: Final = EventRow(
    "Nominated", _NORMAL, ("pods",), "Pod should schedule on: {target}",
    when="A plan places the pod on an existing node or on a NodeClaim that will be launched.",
)
FAILED_SCHEDULING: Final = EventRow(
    "FailedScheduling", _WARNING, ("pods",), "Failed to schedule pod, {reasons}",
    when="A plan finds no place for the pod: no node has room and no NodePool allows a node that it fits on.",
    remedy="The message says what each NodePool lacks: change the pod, the NodePool, or its limits.",
    repeat_after=timedelta(minutes=5),
)
EVICTED: Final = EventRow(
    "Evicted", _NORMAL, ("pods",), "Evicted pod: {reason}",
    when="The pod's node is drained and the pod was evicted.",
)
DISRUPTED: Final = EventRow(
    "Disrupted", _NORMAL, ("pods",),
    "Deleting the pod to accommodate the terminationTime {deadline} of the node. The pod was granted {seconds} seconds"
    " of grace-period. This bypasses the PDB of the pod and the do-not-disrupt annotation.",
    when="The NodeClaim's terminationGracePeriod ends, so that the pod is deleted whatever its disruption budget.",
)

# NodePools

NO_COMPATIBLE_INSTANCE_TYPES: Final = EventRow(
    "NoCompatibleInstanceTypes", _WARNING, ("nodepools",), "{reason}",
    when="No instance type that is offered satisfies the NodePool's requirements, so that it can launch nothing.",
    remedy="Widen the NodePool's requirements.",
    repeat_after=timedelta(minutes=1),
)
LAUNCHES_HELD_BACK: Final = EventRow(
    "LaunchesHeldBack", _WARNING, ("nodepools",), "{nodes} held back: {reason}",
    when="The cluster launched as much as MAX_LAUNCHES_PER_MINUTE, MAX_NODES_PER_HOUR or MAX_DOLLARS_PER_HOUR allow.",
    remedy="Find out what makes so many pods or nodes; raise the setting if it is meant.",
    repeat_after=timedelta(minutes=5),
)
LAUNCH_NOT_STORED: Final = EventRow(
    "LaunchNotStored", _WARNING, ("nodepools",),
    "{nodes} cannot be launched: the state table takes 400 KB for a launch and refused this one of {kilobytes} KB",
    when="NodePool and pods ask for thousands of long values, which a NodeClaim names. Its pods are planned again a"
    " minute later, and wait as long as nothing is changed.",
    remedy="Use fewer or shorter values in spec.template.spec.requirements, or in the node affinity of the pods.",
    repeat_after=timedelta(minutes=5),
)
BLOCKED_BY_BUDGET: Final = EventRow(
    "DisruptionBlocked", _NORMAL, ("nodepools",),
    "No allowed disruptions for disruption reason {reason} due to blocking budget",
    when="The NodePool has nodes, and its budgets allow none of them to be disrupted now for this reason.",
)
BLOCKED_BY_BREAKER: Final = EventRow(
    "DisruptionBlocked", _NORMAL, ("nodepools",),
    "Disruption is stopped until {until}: {reason}; `spotwright resume` ends the stop",
    when="More nodes were disrupted in ten minutes than BREAKER_PERCENT allows, and disruption has stopped itself.",
)
OTHER_PROVISIONER: Final = EventRow(
    "OtherProvisioner", _WARNING, ("nodepools",),
    "{name} manages the NodePools, too: Spotwright launches nothing for pods, disrupts nothing by choice, and leaves"
    " NodeClaims alone that it did not launch",
    when="Karpenter, or EKS Auto Mode, was found running in the cluster.",
    remedy="Stop one of the two: scale Karpenter's Deployment to 0, or `spotwright uninstall --hand-back`.",
    repeat_after=timedelta(minutes=10),
)
DRIFT_ROLLOUT_STOPPED: Final = EventRow(
    "DriftRolloutStopped", _WARNING, ("nodepools",), "{message}",
    when="A replacement of a drifted node was not Initialized in time, or pods on a new node do not become Ready: no"
    " further drifted node of the NodePool is replaced.",
    remedy="Look at the NodeClaim or the pod that the message names, and correct it, the NodePool or the EC2NodeClass;"
    " `spotwright resume` tries again at once.",
    repeat_after=timedelta(minutes=15),
)
ZONAL_SHIFT_ACTIVE: Final = EventRow(
    "ZonalShiftActive", _WARNING, ("nodepools",),
    "The cluster's traffic is shifted away from zone {zone}: no node is launched in it",
    when="A zonal shift or zonal autoshift of the cluster began (setting ENABLE_ZONAL_SHIFT).",
    remedy="Nothing; launches in the zone resume when the shift ends or is cancelled.",
)
ZONAL_SHIFT_CLEARED: Final = EventRow(
    "ZonalShiftCleared", _NORMAL, ("nodepools",),
    "The shift of traffic away from zone {zone} has ended: nodes are launched in it again",
    when="A zonal shift of the cluster ended.",
)

# EC2NodeClasses

WAITING_ON_NODECLAIM_TERMINATION: Final = EventRow(
    "WaitingOnNodeClaimTermination", _NORMAL, ("ec2nodeclasses",),
    "Waiting on NodeClaim termination for {nodeclaims}",
    when="The EC2NodeClass is being deleted and NodeClaims still use it.",
)

# Conditions

CONDITION_TRANSITIONED: Final = EventRow(
    "{type}", _NORMAL, ("nodeclaims", "nodepools", "nodeoverlays"),
    "Status condition transitioned, Type: {type}, Status: {before} -> {status}, Reason: {reason}{details}",
    when="The status of one of the object's conditions changed; the event's reason is the condition's type.",
)
CONDITION_FALSE: Final = EventRow(
    "{reason}", _WARNING, ("nodepools", "nodeoverlays", "ec2nodeclasses"), "{message}",
    when="A condition of the object turned False because of what its spec says, or because of what AWS says of it; "
    "reason and message are the condition's.",
    remedy="Correct the field that the message names; for a message about AWS, the resource or the permission.",
)

# NodeClaims and nodes

INSUFFICIENT_CAPACITY: Final = EventRow(
    "InsufficientCapacityError", _WARNING, ("nodeclaims",), "NodeClaim {nodeclaim} event: {reason}",
    when="EC2 has no capacity for any offering that the NodeClaim may use. Its pods are planned again.",
    remedy="If it lasts, allow more instance types, zones or capacity types; where the message names a quota, ask AWS"
    " for more with its command.",
)
UNREGISTERED_TAINT_MISSING: Final = EventRow(
    "UnregisteredTaintMissing", _NORMAL, _NODE,
    "Missing karpenter.sh/unregistered taint which prevents registration related race conditions on Karpenter-managed"
    " nodes",
    when="A node joined without the taint karpenter.sh/unregistered; a custom userData or AMI does not set it.",
)
UNREADABLE: Final = EventRow(
    "Unreadable", _WARNING, _NODE, "Planning ignores this object: {reason}",
    when="A field of the node or NodeClaim has a value that cannot be parsed, so that plans do not count it.",
    remedy="Correct the field that the message names.",
)
DUPLICATE_NODECLAIMS: Final = EventRow(
    "DuplicateNodeClaims", _WARNING, _NODE,
    "NodeClaims {names} have the same instance: it and its Node are kept until one of them is deleted",
    when="Two NodeClaims have the same provider id. Neither is deleted with its Node, and the instance stays while one"
    " of them exists.",
    remedy="Delete all but one of the NodeClaims; the instance runs on.",
)
DUPLICATE_NODES: Final = EventRow(
    "DuplicateNodes", _WARNING, ("nodes",),
    "Nodes {names} have the same instance; a kubelet that registered under another name leaves the old Node behind",
    when="Two Nodes have the same provider id. They are not disrupted, and go when their instance is terminated. "
    "The NodeClaim is registered with the one that has the private DNS name of the instance.",
    remedy="Delete the NodeClaim, or the Node that it names: the pods of both are evicted before the instance goes.",
)
DISRUPTION_BLOCKED: Final = EventRow(
    "DisruptionBlocked", _NORMAL, _NODE, "{reason}",
    when="Something keeps the node from being disrupted: the message says what, for example a pod's annotation.",
)
INVALID_DO_NOT_DISRUPT_ANNOTATION: Final = EventRow(
    "InvalidDoNotDisruptAnnotation", _WARNING, ("pods",),
    'karpenter.sh/do-not-disrupt "{value}" is ignored: allowed are "true" and a positive duration such as "30m"',
    when="The value of the pod's annotation is neither, so that the pod keeps its node from no disruption. Of a"
    " controller's pods one is told.",
    repeat_after=timedelta(minutes=15),
    remedy="Correct the annotation in the pod's template, or remove it.",
)
DO_NOT_DISRUPT_UNTIL: Final = EventRow(
    "DoNotDisruptUntil", _NORMAL, ("pods",), "The karpenter.sh/do-not-disrupt grace period will elapse at {until}",
    when="The pod's annotation is a duration, and keeps the pod's node from disruption until then.",
    # Kubernetes forgets an Event after an hour.
    repeat_after=timedelta(hours=1),
)
DO_NOT_DISRUPT_GRACE_PERIOD_ELAPSED: Final = EventRow(
    "DoNotDisruptGracePeriodElapsed", _NORMAL, ("pods",),
    "The karpenter.sh/do-not-disrupt grace period has elapsed: the annotation keeps the pod's node no longer",
    when="The duration that the pod's annotation says has passed since the pod's start, within the last 15 minutes.",
    repeat_after=timedelta(minutes=15),
)
UNCONSOLIDATABLE: Final = EventRow(
    "Unconsolidatable", _NORMAL, _NODE, 'NodePool "{nodepool}" has consolidation disabled',
    when="The node's NodePool has consolidateAfter: Never.",
    repeat_after=timedelta(minutes=15),
)
CANNOT_CONSOLIDATE: Final = EventRow(
    "Unconsolidatable", _NORMAL, _NODE, "{reason}",
    when="Removing or replacing the node would not be cheaper, would not be worth its evictions, or is not allowed: the"
    " message says why.",
    repeat_after=timedelta(minutes=15),
)
CONSOLIDATION_CANDIDATE: Final = EventRow(
    "ConsolidationCandidate", _NORMAL, ("nodeclaims",), "Consolidation candidate: {move} (savings: {savings})",
    when="It was proposed to remove or replace the node for its price. Fifteen seconds later it is judged again:"
    " ConsolidationApproved or ConsolidationRejected follows.",
)
CONSOLIDATION_REJECTED: Final = EventRow(
    "ConsolidationRejected", _NORMAL, ("nodeclaims",),
    "Consolidation rejected: {move}, reason: {reason} (savings: {savings})",
    when="What was proposed is not allowed or not worth it any more, or could not be judged in time: the message says"
    " why. The node is kept.",
)
CONSOLIDATION_APPROVED: Final = EventRow(
    "ConsolidationApproved", _NORMAL, ("nodeclaims",), "{move}",
    when="The node is removed or replaced because that is cheaper: the message says by what, how much it saves, and"
    " what its evictions count as.",
)
DISRUPTION_LAUNCHING: Final = EventRow(
    "DisruptionLaunching", _NORMAL, ("nodeclaims",), "Launching NodeClaim: {reason}",
    when="The NodeClaim was created to take the pods of nodes that are disrupted for the reason that the message"
    " names.",
)
DISRUPTION_WAITING_READINESS: Final = EventRow(
    "DisruptionWaitingReadiness", _NORMAL, ("nodeclaims",), "Waiting on readiness to continue disruption",
    when="Nodes that are disrupted wait until this NodeClaim, which takes their pods, is Initialized.",
)
DISRUPTION_TERMINATING: Final = EventRow(
    "DisruptionTerminating", _NORMAL, _NODE, "Disrupting {kind}: {reason}",
    when="The node is deleted now because of the disruption that the message names.",
)
DELETING_NODECLAIM: Final = EventRow(
    "Deleting", _NORMAL, ("nodeclaims",), "Deleting the NodeClaim: {details}",
    when="The NodeClaim is deleted without a disruption: it expired, did not launch or register in time, or its Node or"
    " its class is gone.",
)
TERMINATION_GRACE_PERIOD_EXPIRING: Final = EventRow(
    "TerminationGracePeriodExpiring", _WARNING, ("nodeclaims",), "All pods will be deleted by {deadline}",
    when="A NodeClaim with a terminationGracePeriod is being deleted.",
    remedy="Nothing; pods that refuse eviction until then are deleted.",
)
INVALID_TERMINATION_TIMESTAMP: Final = EventRow(
    "InvalidTerminationTimestamp", _WARNING, ("nodeclaims",),
    "Annotation {annotation} is {value}, which is not a time such as 2026-01-01T12:00:00Z: the NodeClaim's"
    " terminationGracePeriod counts instead",
    when="A NodeClaim is being deleted, and its annotation for the end of the termination is not a time.",
    remedy="Write a time with its zone, or remove the annotation.",
)
FAILED_DRAINING: Final = EventRow(
    "FailedDraining", _WARNING, ("nodes",), "Failed to drain node, {reason}",
    when="Pods are still on a node that is being drained, or a PodDisruptionBudget forbids an eviction.",
    remedy="If it lasts, look at the named pods, their PodDisruptionBudgets and karpenter.sh/do-not-disrupt.",
)
POD_STOPPED_EARLY: Final = EventRow(
    "PodStoppedEarly", _WARNING, ("nodeclaims",),
    "Pod {pod} needs {needed} seconds to stop and has {seconds}: its node goes at {deadline}",
    when="EC2 takes the instance, or the NodeClaim's terminationGracePeriod ends, before the pod's"
    " terminationGracePeriodSeconds have passed. The pod is told to stop at once.",
    remedy="Where EC2's two minutes are too short for a pod, keep it off spot nodes; or lengthen the NodePool's"
    " terminationGracePeriod.",
)
AWAITING_VOLUME_DETACHMENT: Final = EventRow(
    "AwaitingVolumeDetachment", _NORMAL, ("nodes",), "Awaiting deletion of VolumeAttachments bound to node: {volumes}",
    when="The node is drained, and its instance is terminated only when these volumes are detached.",
)
FINALIZED: Final = EventRow(
    "Finalized", _NORMAL, ("nodeclaims",), "Finalized {finalizer}",
    when="The NodeClaim's instance is terminated, and the NodeClaim is gone.",
)

FAILED_CONSISTENCY_CHECK: Final = EventRow(
    "FailedConsistencyCheck", _WARNING, ("nodeclaims",), "{details}",
    when="The node has less than nine tenths of a resource that its NodeClaim was launched for.",
    remedy="If it is frequent, compare the AMI and the user data with the instance type; the node is kept.",
    repeat_after=timedelta(minutes=10),
)
UNHEALTHY: Final = EventRow(
    "Unhealthy", _WARNING, _NODE, "The node is replaced: {details}",
    when="EC2 calls the instance impaired, or (feature gate NodeRepair) a condition of the Node is unhealthy, for"
    " longer than is tolerated. The NodeClaim is deleted, and its pods without regard to PodDisruptionBudgets.",
    remedy="Nothing; if it happens to many nodes, look for what their instance types or AMI have in common.",
)
VOLUMES_IMPAIRED: Final = EventRow(
    "AttachedEbsImpaired", _WARNING, ("nodes",),
    "EC2 reports volumes of instance {instance} as impaired since {since}: the node is kept, they may be a pod's",
    when="EC2's status check of attached volumes fails for longer than two minutes.",
    remedy="Look at the instance's volumes; if it is the node's own, delete the NodeClaim.",
    repeat_after=timedelta(minutes=15),
)
NODE_REPAIR_BLOCKED: Final = EventRow(
    "NodeRepairBlocked", _WARNING, ("nodes", "nodepools"), "{reason}",
    when="A Node is to be repaired, but so many nodes of its NodePool, or of the cluster if it has none, are unhealthy"
    " that something else than the nodes must be at fault.",
    remedy="Look for what the unhealthy nodes have in common; they are repaired when fewer are unhealthy.",
    repeat_after=timedelta(minutes=15),
)

# Interruptions

SPOT_INTERRUPTED: Final = EventRow(
    "SpotInterrupted", _WARNING, _NODE, "Spot interruption warning was triggered",
    when="EC2 announced that it takes the spot instance back in two minutes.",
    remedy="Nothing; a replacement is launched before the pods are evicted.",
)
SPOT_REBALANCE_RECOMMENDATION: Final = EventRow(
    "SpotRebalanceRecommendation", _NORMAL, _NODE, "Spot rebalance recommendation was triggered",
    when="EC2 says that a spot interruption has become likely. Whether the node is replaced before it comes is what the"
    " NodePool's annotation spotwright.dev/rebalance-recommendation says.",
)
REBALANCE_APPROVED: Final = EventRow(
    "RebalanceApproved", _NORMAL, ("nodeclaims",), "{replacement}",
    when="The node is replaced before EC2 takes its spot instance back, as the NodePool's annotation"
    " spotwright.dev/rebalance-recommendation says: the message says with what.",
)
CAPACITY_RESERVATION_INTERRUPTED: Final = EventRow(
    "CapacityReservationInstanceInterrupted", _WARNING, _NODE,
    "Capacity reservation interruption warning was triggered",
    when="EC2 announced that it takes back an instance of an interruptible capacity reservation.",
    remedy="Nothing; a replacement is launched before the pods are evicted.",
)
INSTANCE_STOPPING: Final = EventRow(
    "InstanceStopping", _WARNING, _NODE, "Instance is stopping",
    when="EC2 reports that the instance is stopping or stopped, and nobody here asked for it.",
    remedy="Find out in CloudTrail who stops instances; the NodeClaim is deleted and its pods are planned again.",
)
INSTANCE_TERMINATING: Final = EventRow(
    "InstanceTerminating", _WARNING, _NODE, "Instance is terminating",
    when="EC2 reports that the instance is terminating or terminated, and nobody here asked for it.",
    remedy="Find out in CloudTrail who terminates instances; the NodeClaim is deleted and its pods are planned again.",
)
INSTANCE_UNHEALTHY: Final = EventRow(
    "InstanceUnhealthy", _WARNING, _NODE, "An unhealthy warning was triggered for the instance",
    when="AWS Health announced a scheduled change that affects the instance, or EC2's status of the instance shows it.",
    remedy="Nothing; the node is replaced as its NodePool's budgets allow, and drained an hour before the change.",
)
TERMINATING_ON_INTERRUPTION: Final = EventRow(
    "TerminatingOnInterruption", _WARNING, _NODE, "Interruption triggered termination for the NodeClaim",
    when="The NodeClaim is deleted because EC2 stops or takes back its instance.",
    remedy="Nothing; its pods are planned again.",
)
# fmt: on

# Reasons of events and types of conditions in the order of a NodeClaim's life. Times have whole seconds, and within a
# second kubectl shows what stands first: with these, what comes first.
_BEGINNING: Final = (
    "DisruptionLaunching", "Launched", "DisruptionWaitingReadiness", "UnregisteredTaintMissing", "Registered",
    "Initialized", "Ready", "ConsistentStateFound", "Consolidatable", "Nominated",
)  # fmt: skip
_END: Final = (
    "DisruptionReason", "DisruptionTerminating", "Deleting", "TerminationGracePeriodExpiring", "PodStoppedEarly",
    "Drained", "VolumesDetached", "InstanceTerminating", "Finalized",
)  # fmt: skip


def place_in_life(reason: str) -> int:
    """Lower numbers are earlier in the life of a NodeClaim; what may happen at any time is in the middle."""
    if reason in _BEGINNING:
        return _BEGINNING.index(reason)
    return len(_BEGINNING) + (1 + _END.index(reason) if reason in _END else 0)
