"""CloudWatch metrics, in the dashboard's order, and those of the forwarder's page for Prometheus."""

from typing import Final

from spotwright.telemetry import log_lines as lines
from spotwright.telemetry.rows import Alarm, Graph, Line, Metric, PrometheusMetric, Unit

# A table: a row is read as a whole.
# fmt: off
_COUNT, _SECONDS = Unit.COUNT, Unit.SECONDS
_QUEUE_FUNCTIONS: Final = ("catalog", "disrupt", "lifecycle", "provision", "sweep")

# Pods

PODS_PENDING: Final = Metric(
    "PodsPending", _COUNT, ("sweep",), "Pods that wait for a place, at each sweep.",
    line=Line(Graph.PODS, "Maximum"),
)
OLDEST_PENDING_POD_SECONDS: Final = Metric(
    "OldestPendingPodSeconds", _SECONDS, ("sweep",), "Age of the oldest of these pods; no value without such pods.",
    alarm=Alarm(
        "PodsPendingLong", 5,
        "{subject}: a pod waits for a place for more than a quarter of an hour.",
        "See why: spotwright plan --cluster {subject}; its events say the same: kubectl describe pod.",
        threshold=900, statistic="Maximum",
    ),
)
PODS_UNSCHEDULABLE: Final = Metric(
    "PodsUnschedulable", _COUNT, ("provision",), "Pods for which the newest plan found no place.",
    line=Line(Graph.PODS, "Maximum"),
)
NODES_DECIDED: Final = Metric(
    "NodesDecided", _COUNT, ("provision",), "New nodes in the newest plan.",
    line=Line(Graph.PODS, "Maximum"),
)
PODS_PLANNED: Final = Metric(
    "PodsPlanned", _COUNT, ("lifecycle",), "Pods that were planned for a new node, when the nomination ends.",
    counted=(lines.NOMINATION_ENDED,), counted_field="planned", line=Line(Graph.PODS, "Sum", right_axis=True),
)
PODS_LANDED_AS_PLANNED: Final = Metric(
    "PodsLandedAsPlanned", _COUNT, ("lifecycle",), "Those of them that were bound to that node.",
    counted=(lines.NOMINATION_ENDED,), counted_field="bound", line=Line(Graph.PODS, "Sum", right_axis=True),
)

# Nodes

NODES_SPOT: Final = Metric(
    "NodesSpot", _COUNT, ("sweep",), "NodeClaims with spot capacity, once a minute.",
    line=Line(Graph.NODES, "Maximum"),
)
NODES_ON_DEMAND: Final = Metric(
    "NodesOnDemand", _COUNT, ("sweep",), "NodeClaims with on-demand capacity, once a minute.",
    line=Line(Graph.NODES, "Maximum"),
)
NODES_RESERVED: Final = Metric(
    "NodesReserved", _COUNT, ("sweep",), "NodeClaims in capacity reservations, once a minute.",
    line=Line(Graph.NODES, "Maximum"),
)
COST_PER_HOUR: Final = Metric(
    "CostPerHour", Unit.NONE, ("sweep",), "Price of all NodeClaims in US dollars per hour, by the present prices.",
    line=Line(Graph.NODES, "Maximum", right_axis=True),
)
NODECLAIMS: Final = Metric(
    "NodeClaims", _COUNT, ("sweep",), "NodeClaims, at each sweep.",
    alarm=Alarm(
        "SweepMissing", 15,
        "{subject}: no sweep ended for a quarter of an hour. What lost messages were about is not made up for, and no"
        " other figure of the cluster can be trusted.",
        "Look at the log group of the function sweep, and whether its schedule is enabled.",
        period_minutes=5, statistic="SampleCount", is_missed=True,
    ),
)

# Latency

EVENT_TO_DECISION_SECONDS: Final = Metric(
    "EventToDecisionSeconds", _SECONDS, ("provision",), "From a decision's newest pod to the decision's snapshot.",
    line=Line(Graph.LATENCY, "p90"),
)
DECISION_TO_FLEET_SECONDS: Final = Metric(
    "DecisionToFleetSeconds", _SECONDS, ("lifecycle",), "From the snapshot of a decision to the NodeClaim's instance.",
    counted=(lines.LAUNCHED_NODECLAIM,), counted_field="seconds", line=Line(Graph.LATENCY, "p90"),
)
FLEET_TO_READY_SECONDS: Final = Metric(
    "FleetToReadySeconds", _SECONDS, ("lifecycle",),
    "From the NodeClaim's instance to its node being initialized, up to 10 s after it may take pods while pods wait.",
    counted=(lines.INITIALIZED_NODECLAIM,), counted_field="seconds", line=Line(Graph.LATENCY, "p90"),
)

# Launches

NODECLAIMS_LAUNCHED: Final = Metric(
    "NodeClaimsLaunched", _COUNT, ("lifecycle",), "NodeClaims that got their instance.",
    counted=(lines.LAUNCHED_NODECLAIM,), line=Line(Graph.CHANGES, "Sum"),
)
NODECLAIMS_REGISTERED: Final = Metric(
    "NodeClaimsRegistered", _COUNT, ("lifecycle",), "NodeClaims whose node joined.",
    counted=(lines.REGISTERED_NODECLAIM,),
)
NODECLAIMS_INITIALIZED: Final = Metric(
    "NodeClaimsInitialized", _COUNT, ("lifecycle",), "NodeClaims whose node became ready for ordinary pods.",
    counted=(lines.INITIALIZED_NODECLAIM,), line=Line(Graph.CHANGES, "Sum"),
)
NODECLAIM_LAUNCHES_FAILED: Final = Metric(
    "NodeClaimLaunchesFailed", _COUNT, ("lifecycle",), "Launches that gave NodeClaims no instance.",
    counted=(lines.FAILED_LAUNCHING_NODECLAIM,), line=Line(Graph.CHANGES, "Sum"),
)
OFFERINGS_REFUSED: Final = Metric(
    "OfferingsRefused", _COUNT, ("lifecycle",), "Groups of offerings that CreateFleet refused for the same reason.",
    counted=(lines.REFUSED_OFFERINGS,), line=Line(Graph.CHANGES, "Sum"),
)
UNKNOWN_LAUNCH_ERRORS: Final = Metric(
    "UnknownLaunchErrors", _COUNT, ("lifecycle",), "Errors of CreateFleet that are not known here.",
    counted=(lines.UNKNOWN_FLEET_ERROR,),
)
SURPLUS_INSTANCES_TERMINATED: Final = Metric(
    "SurplusInstancesTerminated", _COUNT, ("lifecycle",), "Instances of launches that no NodeClaim uses.",
    counted=(lines.TERMINATED_SURPLUS_INSTANCE,),
)

# EC2NodeClasses and the catalog

CLASSES_READY: Final = Metric("ClassesReady", _COUNT, ("catalog",), "EC2NodeClasses that are ready.")
CLASSES_NOT_READY: Final = Metric(
    "ClassesNotReady", _COUNT, ("catalog",), "EC2NodeClasses that are not ready; their conditions say why.",
    line=Line(Graph.CHANGES, "Maximum"),
    alarm=Alarm(
        "ClassesNotReady", 15,
        "{subject}: an EC2NodeClass is not Ready for a quarter of an hour. Its NodePools launch nothing.",
        "kubectl describe ec2nodeclasses: the conditions name what is missing.",
        period_minutes=5, statistic="Maximum",
    ),
)
CLASS_RESOLUTION_FAILED: Final = Metric(
    "ClassResolutionFailed", _COUNT, ("catalog",), "EC2NodeClasses about which AWS or the API server did not answer.",
    line=Line(Graph.CHANGES, "Maximum"),
)
FACTS_NOT_REFRESHED: Final = Metric(
    "FactsNotRefreshed", _COUNT, ("catalog",), "Parts of the catalog that stay old because AWS did not answer.",
    line=Line(Graph.CHANGES, "Maximum"),
)

NODEPOOLS_NOT_READY: Final = Metric(
    "NodePoolsNotReady", _COUNT, ("sweep",), "NodePools that are not ready, once a minute; no value when all are.",
    alarm=Alarm(
        "NodePoolsNotReady", 15,
        "{subject}: a NodePool is not Ready for a quarter of an hour. It launches nothing.",
        "kubectl describe nodepools: the conditions say why.",
        statistic="Maximum",
    ),
)

# Interruption and disruption

NOTICES: Final = Metric("Notices", _COUNT, ("interrupt",), "EventBridge messages about instances.")
CHANGES_IGNORED: Final = Metric(
    "ChangesIgnored", _COUNT, ("interrupt",),
    "Messages of AWS Health about changes that are over, or that concern no instance, by reason.",
)
CHANGES_UNREADABLE: Final = Metric(
    "ChangesUnreadable", _COUNT, ("interrupt",),
    "Messages of AWS Health whose time, status or entities are not as documented, by reason.",
)
INTERRUPTIONS: Final = Metric(
    "Interruptions", _COUNT, ("lifecycle",), "Interruptions for which a replacement was planned.",
    counted=(lines.DECIDED_ON_INTERRUPTION,), counted_field="nodeclaims",
    line=Line(Graph.CHANGES, "Sum", right_axis=True),
)
DISRUPTIONS: Final = Metric(
    "Disruptions", _COUNT, ("lifecycle",), "Disruptions that began.",
    counted=(lines.DISRUPTING_NODES,), line=Line(Graph.CHANGES, "Sum", right_axis=True),
)
DISRUPTIONS_FAILED: Final = Metric(
    "DisruptionsFailed", _COUNT, ("lifecycle",), "Disruptions that were taken back.",
    counted=(lines.FAILED_TO_DISRUPT,),
)
NODES_TERMINATED: Final = Metric(
    "NodesTerminated", _COUNT, ("lifecycle",), "NodeClaims that are gone, for whatever reason.",
    counted=(lines.DELETED_NODECLAIM,), line=Line(Graph.CHANGES, "Sum", right_axis=True),
)
NODES_REPAIRED: Final = Metric(
    "NodesRepaired", _COUNT, ("lifecycle",), "Unhealthy nodes that are replaced.",
    counted=(lines.DELETING_UNHEALTHY_NODE,), line=Line(Graph.CHANGES, "Sum", right_axis=True),
)
INSTANCES_SYSTEM_IMPAIRED: Final = Metric(
    "InstancesSystemImpaired", _COUNT, ("sweep",), "Instances whose host EC2 calls impaired, once a minute.",
)
INSTANCES_INSTANCE_IMPAIRED: Final = Metric(
    "InstancesInstanceImpaired", _COUNT, ("sweep",), "Instances that EC2 calls impaired themselves, once a minute.",
)
INSTANCES_EBS_IMPAIRED: Final = Metric(
    "InstancesEbsImpaired", _COUNT, ("sweep",), "Instances with volumes that EC2 calls impaired, once a minute.",
)
INSTANCES_WITH_EVENT: Final = Metric(
    "InstancesWithEvent", _COUNT, ("sweep",), "Instances for which EC2 has scheduled an event, once a minute.",
)
NODE_REPAIRS_BLOCKED: Final = Metric(
    "NodeRepairsBlocked", _COUNT, ("lifecycle",), "Unhealthy nodes that wait because too many of their pool are.",
    counted=(lines.NODE_REPAIR_BLOCKED,), counted_field="nodes",
    alarm=Alarm(
        "NodeRepairBlocked", 15,
        "{subject}: unhealthy nodes are not replaced for a quarter of an hour, since more than a fifth of their"
        " NodePool is unhealthy: something else than the nodes must be at fault. Their pods stay where they are.",
        "See what they have in common: kubectl get events -A --field-selector reason=NodeRepairBlocked.",
        period_minutes=5,
    ),
)
NODES_PROPOSED: Final = Metric("NodesProposed", _COUNT, ("disrupt",), "Nodes that a disruption was proposed for.")
NODES_DISRUPTED: Final = Metric("NodesDisrupted", _COUNT, ("disrupt",), "Nodes that a disruption was committed for.")
DISRUPTION_HELD_BACK: Final = Metric(
    "DisruptionHeldBack", _COUNT, ("disrupt",), "1 when nothing may be disrupted at all; the log line says why.",
)
DISRUPTION_BREAKER_OPEN: Final = Metric(
    "DisruptionBreakerOpen", _COUNT, ("disrupt",), "1 while disruption has stopped itself.",
    alarm=Alarm(
        "DisruptionBreakerOpen", 1,
        "{subject}: more nodes were disrupted in ten minutes than BREAKER_PERCENT allows, and disruption stopped"
        " itself; an event on the NodePools says until when. Nodes stay that nobody needs; pods are not affected.",
        "Find out why so many nodes were empty, then: spotwright resume --cluster {subject}.",
    ),
)

# Trouble

WORK_FAILED: Final = Metric(
    "WorkFailed", _COUNT, (*_QUEUE_FUNCTIONS, "interrupt"), "Failures that return messages to the queue.",
    alarm=Alarm(
        "WorkFailed", 10,
        "{subject}: work fails and is repeated: the API server, EC2 or DynamoDB does not answer, or refuses. Pods may"
        " wait for nodes; nothing is deleted.",
        "Look for the log line \"work on cluster failed\": its code names the call.",
        period_minutes=5,
    ),
)
STEPS_FAILED: Final = Metric(
    "StepsFailed", _COUNT, ("lifecycle",), "Failed steps of launches, NodeClaims, notices and commands.",
    counted=(lines.STEP_FAILED, lines.TERMINATION_REFUSED),
    alarm=Alarm(
        "StepsFailed", 10,
        "{subject}: steps of launches or NodeClaims fail and are repeated: EC2 or the API server refuses or does not"
        " answer. Nodes may come late, or stay too long.",
        "Look for the log line \"step failed\": it names the object and the error.",
        period_minutes=5,
    ),
)
LAUNCHES_HELD_BACK: Final = Metric(
    "LaunchesHeldBack", _COUNT, ("provision",), "New nodes that a ceiling of launches holds back, in the newest plan.",
    alarm=Alarm(
        "LaunchesHeldBack", 1,
        "{subject} launched as much as MAX_LAUNCHES_PER_MINUTE, MAX_NODES_PER_HOUR or MAX_DOLLARS_PER_HOUR allow;"
        " nothing more is launched for now. Events on NodePools and pods say why and until when.",
        "See what makes so many pods: spotwright plan --cluster {subject}. If it is meant, raise the setting, deploy.",
    ),
)
DECISIONS_SET_ASIDE: Final = Metric(
    "DecisionsSetAside", _COUNT, ("lifecycle",), "Committed decisions, or rows of them, that cannot be acted on.",
    counted=(lines.DROPPED_DECISION, lines.SET_ASIDE_ROW),
    alarm=Alarm(
        "DecisionsSetAside", 1,
        "{subject}: a committed decision cannot be acted on: its body is missing, or the state table refuses a row of"
        " it. It is planned again, and later decisions go on.",
        "Look for the log lines \"dropped unreadable decision\" and \"state table refused row\".",
    ),
)
CLUSTER_LISTS: Final = Metric(
    "ClusterLists", _COUNT, ("disrupt", "lifecycle", "provision"),
    "Times that a planner listed the cluster for itself, because it had no cluster state to use.",
    counted=(lines.LISTED_CLUSTER,),
)
CLUSTER_STATE_AGE_SECONDS: Final = Metric(
    "ClusterStateAgeSeconds", _SECONDS, ("disrupt", "lifecycle", "provision"),
    "From the time a cluster state was taken to the plan that reads it.",
    counted=(lines.READ_CLUSTER_STATE,), counted_field="seconds",
)
OTHER_PROVISIONERS: Final = Metric(
    "OtherProvisioners", _COUNT, ("sweep",),
    "1, once a minute, while Karpenter or EKS Auto Mode runs in the cluster as well; else no value.",
    alarm=Alarm(
        "OtherProvisioner", 2,
        "{subject}: Karpenter or EKS Auto Mode runs in the cluster as well. Spotwright launches nothing for pods and"
        " disrupts nothing by choice until one of the two has gone; NodeClaims that it did not launch are left alone.",
        "kubectl get events --field-selector reason=OtherProvisioner -A names it. Stop it, or: spotwright uninstall"
        " --hand-back --cluster {subject}.",
        statistic="Maximum",
    ),
)
FORWARDER_SILENT: Final = Metric(
    "ForwarderSilent", _COUNT, ("sweep",),
    "1, once a minute, while nodes are Ready that may run the forwarder, and it writes no heartbeat; else no value.",
    alarm=Alarm(
        "ForwarderSilent", 10,
        "{subject}: nodes are Ready, but the forwarder writes no heartbeat for ten minutes. The functions poll instead:"
        " pods wait up to five seconds longer, and planners list the cluster for themselves.",
        "kubectl -n kube-system describe deployment spotwright-forwarder, and its logs.",
        statistic="Maximum",
    ),
)
CALLS_THROTTLED: Final = Metric(
    "CallsThrottled", _COUNT, ("lifecycle",), "Calls that EC2 throttled.",
    counted=(lines.CALL_THROTTLED,),
    alarm=Alarm(
        "CallsThrottled", 15,
        "{subject}: EC2 throttles calls for a quarter of an hour. All clusters of the account slow down, and nodes"
        " come late.",
        "Look in CloudTrail for who else calls EC2 in the account and region, or ask AWS for a higher limit.",
        period_minutes=5,
    ),
)
ORPHANS_REFUSED: Final = Metric(
    "OrphansRefused", _COUNT, ("sweep",), "1 when too many instances look orphaned at once for any to be terminated.",
    alarm=Alarm(
        "OrphansRefused", 15,
        "{subject}: too many instances carry the cluster's tags without a NodeClaim; none is terminated until you have"
        " looked, and they cost money.",
        "See which, then let them go or keep them: spotwright orphans --cluster {subject}.",
        period_minutes=15, statistic="Maximum",
    ),
)

# The forwarder's page /metrics; the first ones under Karpenter's names

NODES_ALLOCATABLE: Final = PrometheusMetric(
    "karpenter_nodes_allocatable", "gauge", "Resources that pods may use, by node.",
)
NODES_POD_REQUESTS: Final = PrometheusMetric(
    "karpenter_nodes_total_pod_requests", "gauge", "Requests of pods that belong to no DaemonSet, by node.",
)
NODES_DAEMON_REQUESTS: Final = PrometheusMetric(
    "karpenter_nodes_total_daemon_requests", "gauge", "Requests of DaemonSet pods, by node.",
)
NODES_SYSTEM_OVERHEAD: Final = PrometheusMetric(
    "karpenter_nodes_system_overhead", "gauge", "Capacity less allocatable, by node.",
)
PODS_STATE: Final = PrometheusMetric("karpenter_pods_state", "gauge", "1 for each pod, with its phase and its node.")
CLUSTER_NODE_COUNT: Final = PrometheusMetric("karpenter_cluster_state_node_count", "gauge", "Nodes of the cluster.")
CLUSTER_SYNCED: Final = PrometheusMetric(
    "karpenter_cluster_state_synced", "gauge", "1 while every watch of the forwarder is up to date.",
)
WATCH_SILENT_SECONDS: Final = PrometheusMetric(
    "spotwright_forwarder_silent_seconds", "gauge", "Seconds since a kind's watch last heard from the API server.",
)
FORWARDER_DOORBELLS: Final = PrometheusMetric(
    "spotwright_forwarder_doorbells", "counter", "Doorbells sent, by queue.",
)
FORWARDER_FAILED_DOORBELLS: Final = PrometheusMetric(
    "spotwright_forwarder_failed_doorbells", "counter", "Doorbells that SQS did not accept at the first attempt.",
)
FORWARDER_HEARTBEATS: Final = PrometheusMetric(
    "spotwright_forwarder_heartbeats", "counter", "Heartbeats written to DynamoDB.",
)
FORWARDER_STATE_BYTES: Final = PrometheusMetric(
    "spotwright_forwarder_cluster_state_bytes", "gauge",
    "Size of the newest cluster state: the body with all objects, and the changes since.",
)
FORWARDER_STATE_AGE_SECONDS: Final = PrometheusMetric(
    "spotwright_forwarder_cluster_state_age_seconds", "gauge",
    "Seconds since the newest cluster state was taken; 0 while nothing has changed since.",
)
FORWARDER_STATE_FAILURES: Final = PrometheusMetric(
    "spotwright_forwarder_cluster_state_failures", "counter",
    "Attempts to write a cluster state or its body with all objects that failed.",
)
FORWARDER_STATE_LATE: Final = PrometheusMetric(
    "spotwright_forwarder_cluster_state_late", "counter",
    "Doorbells for pods that were sent before the cluster state showed the pods.",
)
