"""Log lines, by the function that writes them. Messages are Karpenter's where Karpenter logs the same.

The names of fields are nouns; those of Karpenter's log fields are kept in snake_case (``provider-id``: provider_id).
"""

from typing import Final

from spotwright.telemetry.rows import Level, LogLine

# A table: a row is read as a whole.
# fmt: off
_DEBUG, _INFO, _WARNING, _ERROR = Level.DEBUG, Level.INFO, Level.WARNING, Level.ERROR

# Every function with a queue

REJECTED_MESSAGE: Final = LogLine(
    _ERROR, "rejected queue message", ("message_id", "error"),
    when="A message in the function's queue is not one that Spotwright sends.",
    remedy="Look for who else may send to the queue; after its retries the message is in the dead-letter queue.",
)
WORK_FAILED: Final = LogLine(
    _ERROR, "work on cluster failed, its messages return to the queue", ("cluster", "code"), traceback=True,
    when="The API server, EC2 or DynamoDB did not answer, or refused. The work is repeated.",
    remedy="If it lasts, the error code and the traceback say which call fails. `Unauthorized` and `Forbidden` are the"
    " API server's: `spotwright preflight` names the access entry that is missing, and"
    " `spotwright manifests | kubectl apply -f -` brings RBAC back.",
)

CREDENTIALS_EXPIRED: Final = LogLine(
    _WARNING, "the credentials of this process have expired, it ends", ("code",),
    when="AWS refused the function's own credentials as expired, which Lambda gives a process when it starts. The next"
    " process has new ones, and the messages return to the queue.",
    remedy="Nothing, unless it is frequent: then report it.",
)
CLUSTER_NOT_DESCRIBED: Final = LogLine(
    _WARNING, "EKS does not describe the cluster, what it said before is used", ("cluster", "code", "error"),
    when="eks:DescribeCluster failed, which is called every ten minutes. A process that called it before goes on with"
    " that answer, one that is new with the one that the catalog function kept; without it, it can do nothing.",
    remedy="If it lasts, the error says whether the function's role lacks the right or EKS does not answer.",
)

# provision

COMPUTED_NODECLAIMS: Final = LogLine(
    _INFO, "computed new nodeclaim(s) to fit pod(s)", ("cluster", "decision", "summary", "nodeclaims", "nodes"),
    when="A decision about new nodes was committed; `nodes` says for each node why it is the cheapest choice.",
)
COULD_NOT_SCHEDULE_POD: Final = LogLine(
    _INFO, "could not schedule pod", ("cluster", "pod", "reasons"),
    when="A plan finds no place for the pod; the pod has the event FailedScheduling.",
)
HELD_BACK_NODES: Final = LogLine(
    _WARNING, "new nodes are held back by a ceiling of launches",
    ("cluster", "nodepool", "nodes", "setting", "until", "reason"),
    when="The cluster launched as much as the setting allows; the nodes are planned again at the time `until`.",
    remedy="Find out what makes so many pods or nodes; raise the setting if it is meant.",
)
POSTPONED_PODS: Final = LogLine(
    _WARNING, "time ran out, remaining pods are planned in the next invocation", ("cluster", "pods"),
    when="More pods are pending than can be planned before Lambda ends the invocation; `pods` is the number postponed.",
    remedy="Nothing; if it is frequent, lower WORK_UNITS or give the function more memory.",
)

READ_CLUSTER_STATE: Final = LogLine(
    _INFO, "read cluster state", ("cluster", "epoch", "sequence", "seconds"),
    when="A planner read the cluster state that the forwarder shipped, `seconds` after it was taken.",
)
LISTED_CLUSTER: Final = LogLine(
    _INFO, "listed cluster", ("cluster", "reason", "details"),
    when="A planner listed the cluster for itself: there is no cluster state that it may use; `reason` is Absent (none"
    " was shipped), NotFresh (no state and no heartbeat for 30 s), OutOfContact (a watch was silent for 150 s), Behind"
    " (it lacks objects that are known), NegativeSize (a pod in it requests less than nothing), NoAnswer (S3 or"
    " DynamoDB), RemovesNodes (by it static NodePools have too many), NearLimits (it shows less of a NodePool than its"
    " NodeClaims come to without those that go, and a launch could exceed the NodePool's limits), PodsWait (pods have"
    " waited for three minutes; once in ten minutes; or by it pods of nodes that EC2 takes back get no node), or what"
    " is wrong with the state.",
    remedy="Nothing in a small cluster. In a large one, look whether the forwarder runs and what it logs.",
)

LEFT_PLAN: Final = LogLine(
    _INFO, "left a plan for later", ("cluster", "reason"),
    when="A plan for pods would list the whole cluster, and the last plan that did failed, less than four times as long"
    " ago as it took (two minutes at most).",
    remedy="Look why the API server does not answer in time, and why the forwarder's state is not used, as"
    " `listed cluster` says: with it nothing is listed.",
)
LEFT_EVALUATION: Final = LogLine(
    _INFO, "left an evaluation of disruption for later", ("cluster", "reason"),
    when="There is no cluster state that an evaluation may use, so that it would list the whole cluster, and pods are"
    " planned for just then, or the last such evaluation ended less than twenty times as long ago as it took (five"
    " minutes at most), or began less than five minutes ago and was cut off. Or the cluster was listed as recently to"
    " disrupt the same nodes, of which nothing has changed since, and they stayed; or that list failed, whichever nodes"
    " it was for.",
    remedy="Look whether the forwarder runs and what it logs: with its state nothing is listed but before a commit. Why"
    " that is not used, `listed cluster` says. Why nodes stayed, `evaluated disruption` and events on them say.",
)

# lifecycle: launching

CREATED_NODECLAIM: Final = LogLine(
    _INFO, "created nodeclaim", ("nodepool", "nodeclaim", "requests"),
    when="A NodeClaim of a committed decision was created.",
)
LAUNCHED_NODECLAIM: Final = LogLine(
    _INFO, "launched nodeclaim",
    ("nodeclaim", "provider_id", "instance_type", "zone", "capacity_type", "seconds"),
    when="A NodeClaim has its instance; `seconds` since the decision.",
)
REGISTERED_NODECLAIM: Final = LogLine(
    _INFO, "registered nodeclaim", ("nodeclaim", "provider_id", "node", "seconds"),
    when="The NodeClaim's node joined the cluster; `seconds` since the launch.",
)
INITIALIZED_NODECLAIM: Final = LogLine(
    _INFO, "initialized nodeclaim", ("nodeclaim", "provider_id", "node", "seconds"),
    when="The NodeClaim's node is ready for ordinary pods; `seconds` since the launch.",
)
FAILED_LAUNCHING_NODECLAIM: Final = LogLine(
    _ERROR, "failed launching nodeclaim", ("nodeclaims", "reason", "error"),
    when="CreateFleet gave the NodeClaims no instance, or nothing could be asked of EC2 for them.",
    remedy="The error says why; insufficient capacity passes by itself, a permission or an EC2NodeClass does not.",
)
REFUSED_OFFERINGS: Final = LogLine(
    _WARNING, "CreateFleet refused offerings", ("launch", "reason", "code", "zone", "capacity_type", "offerings"),
    when="CreateFleet launched nothing from some offerings for a known reason, mostly missing capacity. They are not"
    " used for a while.",
    remedy="Nothing; if it is frequent, allow more instance types or zones. With the reason VCPULimitExceeded or"
    " SpotQuotaExceeded a quota of the account is used up: `spotwright preflight` names it, and how to ask for more.",
)
UNKNOWN_FLEET_ERROR: Final = LogLine(
    _WARNING, "CreateFleet returned an unknown error",
    ("launch", "reason", "code", "zone", "capacity_type", "offerings"),
    when="CreateFleet refused offerings with an error code that is not known here.",
    remedy="Look the code up in EC2's documentation and report it as an issue of Spotwright.",
)
ABANDONED_LAUNCH: Final = LogLine(
    _INFO, "abandoned launch", ("launch", "reason"),
    when="A committed launch is not carried out: its NodePool was deleted or the decision is too old. Its pods are"
    " planned again.",
)
DROPPED_NODECLAIMS: Final = LogLine(
    _WARNING, "dropped nodeclaims from launch", ("launch", "nodeclaims", "reason"),
    when="Some NodeClaims of a committed launch were not created: NodeClaims of somebody else have their names, or the"
    " decision is too old. The launch goes on without them; their pods are planned again.",
    remedy="Nothing; if it is frequent, look for who else creates NodeClaims in the cluster.",
)
DROPPED_DECISION: Final = LogLine(
    _ERROR, "dropped unreadable decision", ("decision", "error"),
    when="The stored body of a committed decision is missing or cannot be decoded. Its pods are planned again.",
    remedy="Look for who deletes from or writes to the bucket.",
)
SET_ASIDE_ROW: Final = LogLine(
    _ERROR, "state table refused row, set aside", ("row", "code", "error"),
    when="A launch, a nomination or a disruption of a committed decision cannot be stored, for example because it is"
    " larger than DynamoDB's 400 KB. Later decisions go on; its pods are planned again a minute later.",
    remedy="Use fewer or shorter values in the requirements of the NodePool that has the event LaunchNotStored, or in"
    " the node affinity of its pods. If there is no such event, report the error as an issue of Spotwright.",
)
TERMINATED_SURPLUS_INSTANCE: Final = LogLine(
    _INFO, "terminated surplus instance", ("instance", "reason"),
    when="A launch left an instance that no NodeClaim uses, and EC2 was told to terminate it.",
)

# lifecycle: nominations

NOMINATED_PODS: Final = LogLine(
    _INFO, "nominated pods", ("nodeclaim", "node", "pods"),
    when="The node is Ready, and `pods` pods were told by status.nominatedNodeName that it is planned for them.",
)
FAILED_NOMINATING_PODS: Final = LogLine(
    _WARNING, "failed to nominate pods", ("nodeclaim", "code", "error"),
    when="The API server or DynamoDB did not answer; kube-scheduler places the pods as it likes.",
    remedy="Nothing, unless it lasts.",
)
NOMINATION_ENDED: Final = LogLine(
    _INFO, "nomination ended", ("nodeclaim", "planned", "bound"),
    when="All pods planned for a new node are bound, or their time is up: `bound` of `planned` run on the node.",
)
PODS_DISPLACED: Final = LogLine(
    _INFO, "pods found no room on the node that they were planned for", ("nodeclaim", "node", "pods"),
    when="kube-scheduler gave their place to other pods: they are planned again at once.",
)

# lifecycle: NodeClaims

MARKING_CONSOLIDATABLE: Final = LogLine(
    _DEBUG, "marking consolidatable", ("nodeclaim",),
    when="No pod came to or left the node for consolidateAfter.",
)
MARKING_DRIFTED: Final = LogLine(
    _DEBUG, "marking drifted", ("nodeclaim", "reason", "details"),
    when="The NodeClaim is not what its NodePool and EC2NodeClass ask for.",
)
REMOVING_DRIFTED: Final = LogLine(
    _DEBUG, "removing drifted status condition, not drifted", ("nodeclaim",),
    when="The NodeClaim is again what its NodePool and EC2NodeClass ask for.",
)
LEFT_RESERVATION: Final = LogLine(
    _INFO, "nodeclaim is no longer in its capacity reservation", ("nodeclaim",),
    when="The capacity reservation ended or released the instance, which runs on as on-demand.",
)
DELETING_EXPIRED_NODECLAIM: Final = LogLine(
    _INFO, "deleting expired nodeclaim", ("nodeclaim", "details"),
    when="The NodeClaim is older than its expireAfter.",
)
DELETING_UNHEALTHY_NODE: Final = LogLine(
    _INFO, "deleting unhealthy node", ("node", "nodeclaim", "nodepool", "condition", "status", "details"),
    when="EC2 calls the instance impaired, or (feature gate NodeRepair) a condition of the Node is unhealthy, for"
    " longer than is tolerated.",
)
INSTANCE_HAS_EVENT: Final = LogLine(
    _INFO, "EC2 has scheduled an event for instance", ("instance", "node", "code", "not_before"),
    when="A poll found the event; the NodeClaim is deleted as if the message of AWS Health about it had arrived.",
)
EVENT_POSTPONED: Final = LogLine(
    _INFO, "EC2 has postponed the event of instance", ("instance", "nodeclaim", "not_before"),
    when="An hour before the time that a notice names, EC2's status of the instance names a later one, which counts.",
)
NOTICE_NOT_CONFIRMED: Final = LogLine(
    _WARNING, "interruption notice is not confirmed by EC2, nothing is removed",
    ("kind", "instance", "nodeclaim", "details"),
    when="A message says that an instance stopped or terminated, or should have been taken back a minute ago or longer,"
    " but EC2 shows it running, does not find it, or does not answer; or the event that EC2 had scheduled is not in"
    " its status any more. The notice ends; `details` says what EC2 answered.",
    remedy="None, if the instance was started again, or EC2 called the event off. Otherwise look for messages that"
    " wait for hours in a queue.",
)
NODE_REPAIR_BLOCKED: Final = LogLine(
    _WARNING, "node repair is blocked", ("nodepool", "nodes", "reason"),
    when="Nodes are to be repaired, but more than a fifth of their NodePool's are unhealthy; `nodes` is the number of"
    " those that wait.",
    remedy="Look for what the unhealthy nodes have in common.",
)
GARBAGE_COLLECTING_NODECLAIM: Final = LogLine(
    _INFO, "garbage collecting nodeclaim with no cloudprovider representation", ("nodeclaim", "details"),
    when="The NodeClaim's instance stopped or is gone, and no message from EC2 about it arrived. Claims are compared"
    " with instances every two minutes; `details` says what EC2 answered for the instance's id.",
    remedy="Find out in CloudTrail who stops or terminates instances, and in the dead letter queues why the message"
    " did not arrive.",
)
TERMINATING_DUE_TO_TIMEOUT: Final = LogLine(
    _INFO, "terminating due to timeout", ("nodeclaim", "details"),
    when="The NodeClaim was not launched within 5 minutes, or not registered within 15.",
)
DELETING_NODECLAIM: Final = LogLine(
    _INFO, "deleting nodeclaim", ("nodeclaim", "nodepool", "reason", "details"),
    when="Spotwright deletes a NodeClaim; `reason` is that of Karpenter's metric karpenter_nodeclaims_disrupted_total.",
)
DELETING_NODECLAIM_OF_NODE: Final = LogLine(
    _INFO, "deleting nodeclaim, its node was deleted", ("nodeclaim", "node"),
    when="Somebody deleted the Node object.",
)
TAINTED_NODE: Final = LogLine(
    _INFO, "tainted node", ("node", "taint"),
    when="A node that is about to be disrupted or drained takes no further pods.",
)
POD_STOPPED_EARLY: Final = LogLine(
    _WARNING, "pod has less time to stop than it needs", ("pod", "node", "needed_seconds", "seconds"),
    when="EC2 takes the pod's instance, or the NodeClaim's terminationGracePeriod ends, before the pod's"
    " terminationGracePeriodSeconds (`needed_seconds`) have passed; it has `seconds`.",
    remedy="Where EC2's two minutes are too short for a pod, keep it off spot nodes.",
)
DELETED_NODE: Final = LogLine(
    _INFO, "deleted node", ("node",),
    when="The node's instance is terminated, and the Node object is deleted.",
)
DELETED_NODECLAIM: Final = LogLine(
    _INFO, "deleted nodeclaim", ("nodeclaim", "provider_id"),
    when="The NodeClaim's instance is terminated, and its finalizer was removed.",
)
TERMINATION_REFUSED: Final = LogLine(
    _ERROR, "EC2 refused to terminate instance", ("instance", "code", "error"),
    when="TerminateInstances was refused for one instance, for example because of termination protection. It is tried"
    " again every minute.",
    remedy="The error says what to change.",
)

# lifecycle: disruption

DISRUPTING_NODES: Final = LogLine(
    _INFO, "disrupting node(s)", ("command_id", "reason", "nodeclaims", "replacements"),
    when="A committed disruption begins: its nodes are tainted.",
)
NODE_NOT_EMPTY: Final = LogLine(
    _INFO, "keeping node, a pod started on it", ("nodeclaim", "node"),
    when="A node that was to be removed as empty received a pod before it was tainted.",
)
COMMAND_SUCCEEDED: Final = LogLine(
    _INFO, "command succeeded", ("command_id",),
    when="The replacements of a disruption are there, and its NodeClaims are deleted.",
)
FAILED_TO_DISRUPT: Final = LogLine(
    _WARNING, "failed to disrupt node(s)", ("command_id", "reason"),
    when="A disruption was taken back: a replacement was lost or not initialized in time, disruption was paused, or the"
    " node or a pod on it was protected (karpenter.sh/do-not-disrupt) since the decision.",
    remedy="Nothing; disruption is evaluated again. If it lasts, look at the launches of the replacements.",
)
DECIDED_ON_INTERRUPTION: Final = LogLine(
    _INFO, "planned replacement of interrupted node(s)", ("decision", "summary", "nodeclaims"),
    when="EC2 announced that it takes instances back, and the decision about their pods was committed; `nodeclaims` is"
    " the number of their NodeClaims.",
)

# lifecycle: retries

CHANGED_CONCURRENTLY: Final = LogLine(
    _INFO, "object was changed concurrently, will retry", ("kind", "object", "conflict"),
    when="Somebody else, or another invocation, wrote or deleted the object at the same time.",
)
STEP_FAILED: Final = LogLine(
    _WARNING, "step failed, will retry", ("kind", "object", "code", "error"),
    when="The API server, EC2 or DynamoDB did not answer, or refused, in a step for the named object.",
    remedy="If it lasts, the error code says which call fails and why.",
)
DOORBELL_LEFT_OUT: Final = LogLine(
    _WARNING, "doorbell left out, a schedule does its work", ("doorbell", "code", "error"),
    when="DynamoDB or SQS did not answer, or refused, when NodePools were to be counted or disruption evaluated soon.",
    remedy="Nothing, unless it lasts: then the error says which call fails and why.",
)
DOORBELL_FAILED: Final = LogLine(
    _WARNING, "failed to handle doorbell, will retry", ("kind", "key", "code", "error"),
    when="The work that a doorbell asks for failed; its message returns to the queue, those beside it do not. After"
    " five attempts it is in the dead-letter queue; the sweep rings for the object again as long as work is left.",
    remedy="If it lasts, `kind` and `key` name the object, and the error says which call fails, or what is wrong"
    " with the object.",
)
POSTPONED_DOORBELLS: Final = LogLine(
    _WARNING, "time ran out, remaining doorbells are handled in the next invocation", ("doorbells",),
    when="The steps of a batch take longer than an invocation has; `doorbells` is the number of those that were sent"
    " again.",
    remedy="Nothing; if it is frequent, see whether the API server takes long to answer, or give the function more"
    " memory.",
)
CALL_THROTTLED: Final = LogLine(
    _WARNING, "EC2 throttled call", ("call", "error"),
    when="EC2 answered with a request limit. All clusters of the account slow the call down.",
    remedy="Nothing; if it is frequent, ask AWS for a higher limit or look for who else calls EC2 in the account.",
)
CALL_UNANSWERED: Final = LogLine(
    _WARNING, "EC2 did not answer call", ("call", "code", "error"),
    when="EC2 gave no definite answer. The call is repeated; a launch under the same client token.",
    remedy="Nothing, unless it lasts.",
)

# disrupt, sweep, catalog, interrupt

EVALUATED_DISRUPTION: Final = LogLine(
    _INFO, "evaluated disruption",
    ("cluster", "doorbell", "obstacle", "breaker_open", "reason", "proposed", "committed", "emptiness", "details"),
    when="Disruption was evaluated, or a proposal was validated; `obstacle` says why nothing may be disrupted at all,"
    " `details` what a consolidation is worth, or why nodes stay.",
)
FOUND_OTHER_PROVISIONER: Final = LogLine(
    _WARNING, "another provisioner runs in the cluster", ("cluster", "provisioner"),
    when="Karpenter, or EKS Auto Mode, began to run in a cluster that Spotwright is installed in.",
    remedy="Stop one of the two; until then nothing is launched for pods and nothing disrupted by choice.",
)
OTHER_PROVISIONER_GONE: Final = LogLine(
    _INFO, "the other provisioner has gone", ("cluster", "provisioner"),
    when="It does not run any more: launches and disruption go on, and its NodeClaims are taken over.",
)
SWEPT: Final = LogLine(
    _INFO, "swept cluster for missed work", ("cluster", "doorbell", "result"),
    when="A sweep (`poll` or `full`) compared what there is with what there should be, and sent a"
    " doorbell for each difference.",
)
CATALOG_UPDATED: Final = LogLine(
    _INFO, "updated instance catalog", ("cluster", "doorbell", "catalog", "ready", "not_ready", "notes"),
    when="Instance types, prices or EC2NodeClasses changed, and a new catalog was stored.",
)
CATALOG_UNCHANGED: Final = LogLine(
    _INFO, "instance catalog is up to date", ("cluster", "doorbell", "catalog", "ready", "not_ready", "notes"),
    when="Instance types, prices and EC2NodeClasses are as they were.",
)
NODECLASS_FAILED: Final = LogLine(
    _ERROR, "failed to resolve ec2nodeclass", ("cluster", "nodeclass", "error"),
    when="AWS or the API server did not answer, or refused, while the EC2NodeClass was resolved. It is tried again.",
    remedy="The error names the call; the function catalog may lack a permission.",
)
INSTANCES_NOT_LOOKED_UP: Final = LogLine(
    _WARNING, "instances could not be looked up, every cluster of the cell is told", ("instances", "code", "error"),
    when="EC2 did not say at once whose the instances of a batch of notices are. No notice is lost.",
    remedy="If it lasts, the error says what EC2 answered.",
)
RECORDED_NOTICE: Final = LogLine(
    _INFO, "recorded interruption notice", ("kind", "instance_ids", "deadline", "code"),
    when="EventBridge delivered a message about instances: a spot interruption, a state change, a scheduled change;"
    " `code` is the event type code of AWS Health.",
)
IGNORED_CHANGE: Final = LogLine(
    _INFO, "ignored scheduled change", ("event", "code", "reason", "count", "entities"),
    when="A message of AWS Health says that a scheduled change is over, or it concerns no instance; nothing begins for"
    " these entities, of which at most 20 are named.",
)
UNREADABLE_CHANGE: Final = LogLine(
    _WARNING, "scheduled change cannot be read", ("event", "code", "reason", "count", "entities"),
    when="A message of AWS Health names a time, a status or an entity in a way that is not documented; nothing begins"
    " for these entities, of which at most 20 are named.",
    remedy="Nothing at once: what EC2 has scheduled is read from the status of instances every minute. Please report"
    " the message.",
)
FAILED_RECORDING_NOTICE: Final = LogLine(
    _ERROR, "failed to record interruption notice", ("message_id", "code", "error"),
    when="The message is malformed, or DynamoDB or SQS did not answer; it returns to the queue.",
    remedy="If it lasts, the error code says which call fails and why.",
)

# Shared offering health

MEMORY_TABLE_UNUSABLE: Final = LogLine(
    _ERROR, "memoryTable cannot be used, offering health is kept in this deployment's own table",
    ("table", "code", "error"),
    when="The table that `memoryTable` names does not exist, may not be used, or is not a table of Spotwright.",
    remedy="Correct `memoryTable` in cdk.json, or the permissions on the table.",
)

# install

PREFLIGHT: Final = LogLine(
    _INFO, "looked at cluster before anything is made in it", ("cluster", "checks"),
    when="A deployment made or changed a cluster; `checks` has a sentence for each check. A problem fails the"
    " deployment.",
    remedy="`spotwright preflight` looks at more, and at any time.",
)
INSTALLED: Final = LogLine(
    _INFO, "installed manifests", ("cluster", "applied"),
    when="CRDs, RBAC, flow control and the forwarder were applied to the cluster.",
)
FORWARDER_ADMITTED_EARLY: Final = LogLine(
    _INFO, "forwarder's pod has no AWS credentials", ("cluster", "pod"),
    when="The pod was admitted before its Pod Identity association took effect. It was deleted, so that another takes"
    " its place.",
)
FORWARDER_LEFT_WITHOUT_CREDENTIALS: Final = LogLine(
    _ERROR, "forwarder's pods get no AWS credentials", ("cluster", "waited_seconds"),
    when="The installation is done, but no new pod of the forwarder was given credentials: functions poll.",
    remedy="Look whether the Pod Identity association of kube-system/spotwright-forwarder exists"
    " (`aws eks list-pod-identity-associations --cluster-name NAME`), then `kubectl rollout restart deployment"
    " spotwright-forwarder --namespace kube-system`.",
)
REMOVED: Final = LogLine(
    _INFO, "removed manifests", ("cluster", "deleted", "kept", "abandoned", "entries_deleted", "entries_kept"),
    when="RBAC, flow control and the forwarder were removed from the cluster; `abandoned` says why the rest stays, if"
    " it does. `entries_kept` are node roles whose access entry stays, because NodeClaims exist.",
)
NODES_LEFT: Final = LogLine(
    _WARNING, "stack is not deleted yet: NodeClaims are left", ("cluster", "reason"),
    when="The stack was to be deleted, or the cluster to leave it, while NodeClaims are there that nobody would look"
    " after. CloudFormation shows `reason`. The next deletion, or deployment, within a day goes through.",
    remedy="`spotwright uninstall --drain --cluster NAME`, or `--hand-back`, and delete or deploy again.",
)
NODES_LEFT_UNKNOWN: Final = LogLine(
    _WARNING, "cannot look for NodeClaims that are left", ("cluster", "error"),
    when="The stack is deleted, or the cluster leaves it, and the cluster did not answer within half a minute, or"
    " CloudFormation did not say whether the update is rolled back; it goes on.",
    remedy="Look for instances with the tag `eks:eks-cluster-name`.",
)
REQUEST_FAILED: Final = LogLine(
    _ERROR, "custom resource request failed", (), traceback=True,
    when="A request of CloudFormation failed; the stack says so too.",
    remedy="The traceback says why; deploy again.",
)

# forwarder

FORWARDER_STARTED: Final = LogLine(
    _INFO, "started forwarder", ("cluster", "metrics"),
    when="The forwarder watches the cluster; `metrics` is the address of its page /metrics.",
)
FORWARDER_STOPPED: Final = LogLine(
    _INFO, "stopped forwarder", (),
    when="The forwarder was told to stop and has sent what was left.",
)
FORWARDER_MISCONFIGURED: Final = LogLine(
    _ERROR, "cannot start forwarder", ("error",),
    when="An environment variable or the service account of the forwarder is missing or wrong.",
    remedy="Deploy again; the forwarder's Deployment is written by the function install.",
)
FORWARDER_WITHOUT_CREDENTIALS: Final = LogLine(
    _ERROR, "forwarder has no AWS credentials", ("cluster",),
    when="The forwarder's pod was admitted before its Pod Identity association took effect, or there is none: such a"
    " pod never gets credentials. It is not ready; functions poll.",
    remedy="`kubectl rollout restart deployment spotwright-forwarder --namespace kube-system`; if it stays, deploy"
    " again.",
)
FORWARDER_OUTDATED: Final = LogLine(
    _WARNING, "forwarder's Deployment is older than its image", ("cluster", "missing"),
    when="`missing` names an environment variable that this version of the forwarder was not given. Without a bucket it"
    " ships no cluster state: it rings for what changes, and functions list the API server.",
    remedy="Deploy again; the forwarder's Deployment is written by the function install.",
)
WATCHER_ENDED: Final = LogLine(
    _ERROR, "watcher ended unexpectedly", ("kind",), traceback=True,
    when="An error that is not handled ended a watch; the process ends, and its pod restarts.",
    remedy="Report the traceback as an issue of Spotwright.",
)
WATCH_FAILED: Final = LogLine(
    _WARNING, "watch failed, will retry", ("kind", "error"),
    when="The API server ended a list or watch with an error.",
    remedy="Nothing, unless it lasts.",
)
WATCH_SILENT: Final = LogLine(
    _DEBUG, "watch said nothing, opens another", ("kind", "details"),
    when="Nothing came of a watch for longer than the API server's bookmarks are apart. A kind of which there is"
    " nothing yet is listed again.",
)
SENT_DOORBELLS: Final = LogLine(
    _INFO, "sent doorbells", ("doorbells",),
    when="The forwarder told the functions through SQS where to look.",
)
DOORBELLS_NOT_SENT: Final = LogLine(
    _WARNING, "failed to send doorbells, will retry", ("queue", "error"),
    when="SQS did not answer, or refused.",
    remedy="If it lasts, check the forwarder's role and its route to SQS.",
)
DOORBELL_REFUSED: Final = LogLine(
    _WARNING, "SQS refused doorbell, will retry", ("queue", "error"),
    when="SQS accepted a batch, but not this message of it.",
    remedy="Nothing, unless it lasts.",
)
HEARTBEAT_FAILED: Final = LogLine(
    _WARNING, "failed to write heartbeat", ("error",),
    when="DynamoDB did not answer, or refused. Without heartbeats the sweep polls the cluster every five seconds.",
    remedy="If it lasts, check the forwarder's role and its route to DynamoDB.",
)
CLUSTER_STATE_NOT_WRITTEN: Final = LogLine(
    _WARNING, "S3 or DynamoDB did not take the cluster state, will retry", ("error",),
    when="S3 or DynamoDB did not answer, or refused. Without it planners list the cluster for themselves.",
    remedy="If it lasts, check the forwarder's role and its route to S3 and DynamoDB.",
)
CLUSTER_STATE_FAILED: Final = LogLine(
    _ERROR, "writing the cluster state ended with an unexpected error, will retry", (), traceback=True,
    when="An error that is not handled. Doorbells are sent without it, and planners list the cluster for themselves.",
    remedy="Report the traceback as an issue of Spotwright.",
)
CLUSTER_STATE_TAKEN_OVER: Final = LogLine(
    _WARNING, "wrote cluster state in place of another forwarder", ("epoch", "before"),
    when="The head in the table was of a forwarder with the later epoch `before`, which has written no heartbeat for 25"
    " seconds: it is gone, crashes again and again, or its clock was wrong. This one goes on under `epoch`.",
    remedy="Nothing, unless it comes again; then look at the pods of kube-system/spotwright-forwarder and at the clocks"
    " of their nodes.",
)
CLUSTER_STATE_LATE: Final = LogLine(
    _WARNING, "sent doorbell for pods without cluster state", ("seconds",),
    when="The cluster state was not written within a second; another doorbell follows when it is.",
    remedy="Nothing, unless it lasts; then check how quickly S3 and DynamoDB answer.",
)
CLUSTER_STATE_WRITTEN: Final = LogLine(
    _DEBUG, "wrote cluster state", ("sequence", "full_bytes", "changes_bytes"),
    when="The cluster has changed; planners read it instead of listing.",
)
METRICS_ADDRESS_UNAVAILABLE: Final = LogLine(
    _WARNING, "metrics address is unavailable, serving metrics on a free local port", ("address", "error"),
    when="The address for metrics and probes is taken or belongs to another machine.",
    remedy="Free the port, or set another one; in a pod the probes fail until then.",
)
