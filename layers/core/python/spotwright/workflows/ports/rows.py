"""The rows of the state table, one cluster's: what functions share. Written under optimistic locks."""

from datetime import datetime
from typing import Final

import msgspec

from spotwright.model.snapshot import LaunchedInMinute

# Phases of notices that ``disrupt`` acts on: a rebalance recommendation, and a change that EC2 has scheduled.
RECOMMENDED: Final = "recommended"
SCHEDULED: Final = "scheduled"
# Of the end of an instance that is being terminated for its NodeClaim: EC2 has said nothing of it yet.
EXPECTED: Final = "expected"
# A row in one of these is history.
FINAL_PHASES: Final = frozenset({"done", "failed", "aborted"})


# Why nodes are launched: for pods. What is launched for a disruption has its reason.
PROVISIONED: Final = "provisioned"


class LaunchRow(msgspec.Struct, frozen=True):
    """A launch: nodes that are equal but for their pods, one CreateFleet call; authority until its claims have a
    providerID.

    ``claims``: names in order; ``uids``: name → uid once created, so that a deleted claim is never re-created.
    ``request``: the exact serialised CreateFleet request, "" until it was made. ``instances``: claim → instance id.
    ``phase``: planned → claimed → launched → done | failed. ``due``: epoch milliseconds, 0 = no timer. ``node``: the
    NewNode it realises, as JSON of scheduling.plan.NewNode; ``requests``: of claims that request something else, by
    name; ``commands``: of claims that commands wait for, the ids of these; ``reason``: of their disruptions.
    ``version``: optimistic lock. ``failure``: "<code>: <message>" of why claims got no instance, or of why there is
    no request yet, "" = none; ``insufficient_capacity``: it was for capacity. ``offerings_closed``: offerings were
    marked empty for it: the next plan is another one. ``templates_recreated``: its templates were gone when EC2
    looked, and were made again once. ``not_before``: before that nothing is tried again, whoever rings;
    ``requested_at``: when ``request`` was last sent or about to be, 0 = EC2 refused it for the number of its
    instances; both epoch milliseconds. ``placement_group``: the placement group it starts in, with the partition if
    it asks for one; ``reservations``: ``<type>/<zone>`` → the capacity reservation it is taken out of;
    ``nodeclass_hash``: of the class that ``request`` was made of.
    """

    id: str
    cluster: str
    decision: str
    claims: tuple[str, ...]
    node: str
    requests: dict[str, dict[str, int]] = {}
    commands: dict[str, tuple[str, ...]] = {}
    phase: str = "planned"
    uids: dict[str, str] = {}
    token: str = ""
    attempt: int = 0
    request: str = ""
    reservations: dict[str, str] = {}
    placement_group: str = msgspec.field(default="", name="group")
    nodeclass_hash: str = msgspec.field(default="", name="class_hash")
    instances: dict[str, str] = {}
    replaces: tuple[str, ...] = ()
    reason: str = PROVISIONED
    failure: str = ""
    insufficient_capacity: bool = msgspec.field(default=False, name="insufficient")
    offerings_closed: bool = msgspec.field(default=False, name="marked")
    templates_recreated: bool = msgspec.field(default=False, name="remade")
    not_before: int = 0
    requested_at: int = msgspec.field(default=0, name="asked")
    created: int = 0
    due: int = 0
    version: int = 0
    schema: int = 1


class ProposedMove(msgspec.Struct, frozen=True):
    """What a consolidation was proposed for. ``candidates``: NodeClaim names; ``move``: what becomes of them."""

    candidates: tuple[str, ...]
    move: str
    saving_picousd_per_hour: int = msgspec.field(name="saving")


class CommandRow(msgspec.Struct, frozen=True):
    """A disruption under way. ``candidates``: NodeClaim names; ``replacements``: claim names that must be
    Initialized before candidates go. ``phase``: proposed → planned → waiting → done | aborted (an interruption
    starts at planned). ``deadline``: epoch milliseconds; then a ``forced`` command goes on without its replacements,
    any other is aborted. ``initialized_replacements``: replacements that were Initialized once. ``own_replacements``:
    how many replacements, the first ones, the command's own decision makes; a claim of the name that another made is
    none. ``awaited_replacements``: those of which an Event says that they are waited for. ``rollout``, ``evictions``:
    see Disruption. ``failed``: epoch milliseconds at which it was given up because its replacements were not
    Initialized in time, 0 = it was not. ``moves``: of a consolidation, as long as it is proposed. ``digest``: of what
    was known of the candidates when they were proposed."""

    id: str
    cluster: str
    decision: str
    reason: str
    candidates: tuple[str, ...]
    candidate_uids: dict[str, str] = {}
    replacements: tuple[str, ...] = ()
    initialized_replacements: tuple[str, ...] = msgspec.field(default=(), name="initialized")
    own_replacements: int = 0
    awaited_replacements: tuple[str, ...] = msgspec.field(default=(), name="awaited")
    forced: bool = False
    rollout: str = ""
    evictions: int = 0
    failed: int = 0
    moves: tuple[ProposedMove, ...] = ()
    digest: str = ""
    phase: str = "planned"
    deadline: int = 0
    created: int = 0
    due: int = 0
    version: int = 0
    schema: int = 1


class NoticeRow(msgspec.Struct, frozen=True):
    """A warning about one instance. ``deadline``/``due``: epoch milliseconds, 0 = none.

    ``phase``: new → replacing → done; of a rebalance recommendation: new → recommended → done; of a change that EC2 has
    scheduled: new → scheduled → done; of an end that Spotwright itself brings about: expected → done. ``claim``: the
    NodeClaim for which something was done about the notice, or about the row's ``warning``; "" = nothing yet.
    ``command``: the id of the command that replaces it, "" = none. ``attempt``: how many replacements failed before.
    ``ended``: the instance has stopped or terminated; before, it was about to. ``events``: ids of EventBridge's events
    that became this row, the newest last, after some of those that it replaced; none of them is acted on again.
    ``warning``: of an instance's end, the kind of what EC2 had announced with the row's ``deadline``, "" = nothing: a
    spot interruption, a recommendation …; ``command`` and ``attempt`` say what was done about it by then.
    """

    instance_id: str
    cluster: str
    kind: str
    claim: str = ""
    deadline: int = 0
    phase: str = "new"
    command: str = msgspec.field(default="", name="replacement")
    attempt: int = 0
    ended: bool = False
    events: tuple[str, ...] = ()
    warning: str = ""
    created: int = 0
    due: int = 0
    version: int = 0
    schema: int = 1


class NominationRow(msgspec.Struct, frozen=True):
    """Pods that were planned for a claim, until they run there. ``pods``: key → uid; ``node``: "" until it is Ready.

    ``launch``: of the claim; a claim of the name that another launch made is not meant; "" = not recorded.
    ``moving_pods``: pods that run on a node on its way out and were planned for the claim, key → uid: until they are
    gone from there, and at most as long as a nomination lasts, their room is taken.
    ``phase``: promised → nominated (status.nominatedNodeName is written) → done | failed. ``due``: the deadline, epoch
    milliseconds; from then on, and in the last two phases, its pods count as not nominated.
    """

    claim: str
    cluster: str
    pods: dict[str, str]
    node: str = ""
    phase: str = "promised"
    created: int = 0
    due: int = 0
    launch: str = ""
    moving_pods: dict[str, str] = msgspec.field(default_factory=dict, name="moving")
    version: int = 0
    schema: int = 1


class CommitPause(msgspec.Struct, frozen=True):
    """The cluster was listed for nodes that were to be disrupted for this reason. ``digest``: of what was known of
    them; for the same it is not listed again before ``until``, epoch milliseconds. "" = that failed, or has not ended:
    it is listed for none.
    """

    reason: str
    digest: str
    until: int


class ClusterRow(msgspec.Struct, frozen=True):
    """The commit point. ``head`` and ``pending_decisions`` are S3 keys of decision bodies; ``pending_decisions``:
    committed decisions that lifecycle has not turned into rows yet, oldest first. ``planner_until``: epoch milliseconds
    until which an invocation of ``provision`` is at work, 0 = none; others leave their requests to it.
    ``evaluations_pause_until``: epoch milliseconds before which no evaluation of disruption lists the cluster, 0 = any
    may; as long as the last one took, twenty times, and the longest pause while one is at work.
    ``plans_pause_until``: epoch milliseconds before which the sweep rings for no plan while what it sees has the digest
    ``plans_pause_digest``, since the last plan decided nothing; 0 = there is no pause. ``launched``:
    what was decided to be launched in the last hour in which anything was, by minute, oldest first.
    ``failed_plans_pause_until``: epoch milliseconds before which no plan for pods lists the cluster, since the last one
    that did failed; 0 = there is no pause. ``listed_for_pods_until``: epoch milliseconds before which the cluster is
    not listed again for pods that wait long, since that was done; 0 = it may be. ``commit_pauses``: one for each reason
    for which nodes were to be disrupted.
    ``pods_alike``: all pods that waited for nodes when the last were decided on are equal for scheduling, and no plan
    has found others since.
    ``paused``: launches and disruption; ``disruption_paused``: disruption alone.
    ``other_provisioner``: who else provisions nodes in the cluster, as the sweep last saw it; "" = nobody."""

    cluster: str
    version: int = 0
    head: str = ""
    pending_decisions: tuple[str, ...] = msgspec.field(default=(), name="unacted")
    planning_requests: int = msgspec.field(default=0, name="requested")
    served_requests: int = msgspec.field(default=0, name="served")
    paused: bool = False
    disruption_paused: bool = False
    other_provisioner: str = ""
    planner_until: int = 0
    evaluations_pause_until: int = 0
    plans_pause_until: int = 0
    plans_pause_digest: str = ""
    failed_plans_pause_until: int = 0
    listed_for_pods_until: int = 0
    commit_pauses: tuple[CommitPause, ...] = ()
    launched: tuple[LaunchedInMinute, ...] = ()
    pods_alike: bool = msgspec.field(default=False, name="alike")
    schema: int = 1

    @property
    def held_by(self) -> str:
        """Why nothing is launched for pods and nothing disrupted by choice; "" = both go on."""
        if self.paused:
            return "the cluster is paused; `spotwright resume` ends it"
        if self.other_provisioner:
            return f"{self.other_provisioner} manages the NodePools, too; this ends a minute after that has gone"
        return ""

    @property
    def disruption_held_by(self) -> str:
        """Why nothing is disrupted by choice; "" = it goes on."""
        if self.disruption_paused and not self.paused:
            return "disruption is paused; `spotwright resume` ends it"
        return self.held_by


type Row = LaunchRow | CommandRow | NoticeRow | NominationRow


def sort_key(row: Row) -> str:
    """Where a row stands among those of its cluster."""
    match row:
        case LaunchRow():
            return f"launch#{row.id}"
        case CommandRow():
            return f"command#{row.id}"
        case NoticeRow():
            return f"notice#{row.instance_id}"
        case NominationRow():
            return f"nomination#{row.claim}"


def epoch_ms(at: datetime) -> int:
    """Epoch milliseconds, the rows' unit of time."""
    return int(at.timestamp() * 1000)
