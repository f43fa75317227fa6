"""Decisions as they are stored: what was decided, on which snapshot, by which code.

A decision's body lies in S3 under its content's hash; it is true once ``cluster.version`` moved on to it.
"""

import hashlib
import itertools
from collections.abc import Mapping
from datetime import datetime
from itertools import batched
from types import MappingProxyType
from typing import Final

import msgspec

from spotwright.aws.launch.placement import NITRO_SANDBOX_RESOURCE
from spotwright.model import resources
from spotwright.scheduling.plan import NewNode, Plan

# Lower-case letters and digits without vowels and look-alikes, as Kubernetes' own generated names use.
_SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
# Of a million names, no two meet with a probability of 99.8 %; that a new one meets one of 5,000 that are in use at the
# time, ever: 1 in 40,000. Kubernetes' own five would meet every few thousand names.
_SUFFIX_LENGTH: Final = 10
# Kubernetes' limit for names that it generates: they are used as values of labels as well.
_LONGEST_NAME: Final = 63
_ID_DIGITS: Final = 16
# So many nodes are launched by a single call: its row stays far below DynamoDB's 400 KB, however long names are, and
# many launches run at the same time.
MAXIMUM_NODES_PER_LAUNCH: Final = 100
# What instances have only where pods request it: EFA network interfaces, enclaves.
_REQUESTED_OF_EC2: Final = (resources.EFA, NITRO_SANDBOX_RESOURCE)
# The reason for deleting nodes of a static NodePool beyond its replicas.
SCALED_DOWN: Final = "ScaledDown"
# Karpenter's reasons for which nodes go by choice.
EMPTY: Final = "Empty"
DRIFTED: Final = "Drifted"
UNDERUTILIZED: Final = "Underutilized"
# EC2 recommends to leave the spot instance.
REBALANCED: Final = "Rebalanced"
# EC2 has scheduled a change of the instance: a stop, a reboot, its retirement.
SCHEDULED_CHANGE: Final = "ScheduledChange"


class Launch(msgspec.Struct, frozen=True):
    """Nodes that a single CreateFleet call launches, equal but for their pods.

    ``claims``: names of their NodeClaims, at most a hundred. ``pods``: for each claim the pods planned for it, key →
    uid, that were pending at the time of the decision; ``moving_pods``: those that ran on nodes on their way out.
    ``requests``: of the claims that request something else than ``node``, by name.
    """

    id: str
    claims: tuple[str, ...]
    node: NewNode
    replaces: tuple[str, ...] = ()
    reason: str = "provisioned"
    pods: tuple[dict[str, str], ...] = ()
    moving_pods: tuple[dict[str, str], ...] = msgspec.field(default=(), name="moving")
    requests: dict[str, dict[str, int]] = {}


class Disruption(msgspec.Struct, frozen=True):
    """Nodes to remove, and the NodeClaims that must be Initialized before they go: those that take their pods.

    ``candidates``: NodeClaim names; ``candidate_uids``: name → uid; ``reason``: Empty, Drifted …
    ``deadline``: epoch milliseconds at which the candidates are deleted even without replacements; 0 = never.
    ``locked_claims``: claims that other commands held at the time of the decision, by name. ``rollout``: of a drifted
    node, its NodePool and what its nodes should be; see ``disruption.rollouts``. ``evictions``: pods that are evicted
    for the sake of price, 0 for every other reason.
    """

    id: str
    reason: str
    candidates: tuple[str, ...]
    candidate_uids: dict[str, str] = msgspec.field(name="uids")
    replacements: tuple[str, ...] = ()
    savings_picousd_per_hour: int = 0
    deadline: int = 0
    locked_claims: tuple[str, ...] = msgspec.field(default=(), name="locked")
    rollout: str = ""
    evictions: int = 0


class Decision(msgspec.Struct, frozen=True):
    """What was decided. ``kind``: provision | disrupt | interrupt | scale-down.

    ``cluster_version``: the cluster version it was made on.
    ``code_digest``: digest of the deciding code; a replay under another digest says so. ``message``: one sentence.
    ``stored_disruption``: as versions stored it that knew of one at most.
    """

    id: str
    kind: str
    cluster: str
    cluster_version: int = msgspec.field(name="based_on")
    now: datetime
    snapshot_key: str = msgspec.field(name="snapshot")
    catalog_key: str = msgspec.field(name="catalog")
    code_digest: str = msgspec.field(name="code")
    plan: Plan = Plan()
    launches: tuple[Launch, ...] = ()
    stored_disruption: Disruption | None = msgspec.field(default=None, name="disruption")
    stored_disruptions: tuple[Disruption, ...] = msgspec.field(default=(), name="disruptions")
    message: str = msgspec.field(default="", name="why")
    schema: int = 1

    @property
    def disruptions(self) -> tuple[Disruption, ...]:
        """One for each interrupted node; one for all nodes of any other disruption."""
        return self.stored_disruptions or ((self.stored_disruption,) if self.stored_disruption else ())

    @property
    def candidates(self) -> tuple[str, ...]:
        """The NodeClaims that it removes."""
        return tuple(name for disruption in self.disruptions for name in disruption.candidates)


def encode_decision(decision: Decision) -> bytes:
    return msgspec.json.encode(decision, order="deterministic")


def decode_decision(body: bytes) -> Decision:
    return msgspec.json.decode(body, type=Decision)


def derived_id(*parts: str) -> str:
    """A short id derived from its inputs: 16 hexadecimal digits."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:_ID_DIGITS]


def is_derived_id(text: str) -> bool:
    """Whether the text may be such an id."""
    return len(text) == _ID_DIGITS and set(text) <= set("0123456789abcdef")


def claim_names(pool: str, launch: str, count: int) -> tuple[str, ...]:
    """``count`` distinct names of NodeClaims, derived, so that a repeated creation finds itself."""
    names: dict[str, None] = {}
    for index in itertools.count():
        if len(names) == count:
            break
        names[_claim_name(pool, launch, index)] = None
    return tuple(names)


def _claim_name(pool: str, launch: str, index: int) -> str:
    """``<pool>-<suffix>``, a DNS subdomain of at most 63 characters: no part of it ends before the dash."""
    number = int.from_bytes(hashlib.sha256(f"{launch}/{index}".encode()).digest()[:8])
    suffix = ""
    for _ in range(_SUFFIX_LENGTH):
        number, letter = divmod(number, len(_SUFFIX_ALPHABET))
        suffix += _SUFFIX_ALPHABET[letter]
    return f"{pool[: _LONGEST_NAME - 1 - _SUFFIX_LENGTH].rstrip('-.')}-{suffix}"


def launch_group(node: NewNode) -> bytes:
    """The same for nodes that are equal but for their pods: EC2 is asked for the same instances for each of them."""
    devices = {name: 1 for name in _REQUESTED_OF_EC2 if node.requests.get(name)}
    shape = msgspec.structs.replace(
        node, pods=(), requests=devices, usage=(), binding_resource="", reason="", relaxed_preferences=()
    )
    return msgspec.json.encode(shape, order="deterministic")


def group_into_launches(
    decision: str, plan: Plan, pending_pods: Mapping[str, str], moving_pods: Mapping[str, str] = MappingProxyType({})
) -> tuple[Launch, ...]:
    """The plan's new nodes as launches: nodes that are equal but for their pods are bought together, a hundred at once.

    ``pending_pods``: key → uid of the pods that wait for a node; ``moving_pods``: of those on nodes on their way out.
    """
    groups: dict[bytes, list[NewNode]] = {}
    for node in plan.new_nodes:
        groups.setdefault(launch_group(node), []).append(node)
    launches = []
    batches = (batch for group in groups.values() for batch in batched(group, MAXIMUM_NODES_PER_LAUNCH, strict=False))
    for number, nodes in enumerate(batches):
        launch = derived_id(decision, str(number))
        names = claim_names(nodes[0].nodepool, launch, len(nodes))
        pods = tuple(sorted(pod for node in nodes for pod in node.pods))
        pending, moving = (
            tuple({pod: uids[pod] for pod in node.pods if pod in uids} for node in nodes)
            for uids in (pending_pods, moving_pods)
        )
        node = msgspec.structs.replace(nodes[0], pods=pods)
        requests = {
            name: planned.requests
            for name, planned in zip(names, nodes, strict=True)
            if planned.requests != node.requests
        }
        launches.append(
            Launch(launch, names, node, pods=pending, moving_pods=moving if any(moving) else (), requests=requests)
        )
    return tuple(launches)
