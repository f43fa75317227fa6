"""Decisions as they are stored: what was decided, on which snapshot, by which code.

A decision's body lies in S3 under its content's hash; it is true once ``cluster.version`` moved on to it.
"""

import hashlib
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final

import msgspec

from spotwright.scheduling.plan import NewNode, Plan
from spotwright.workflows.rows import CommandRow

# Lower-case letters and digits without vowels and look-alikes, as Kubernetes' own generated names use.
_SUFFIX_ALPHABET: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
# Why nodes of a static NodePool go that are more than its replicas.
SCALED_DOWN: Final = "ScaledDown"


class Launch(msgspec.Struct, frozen=True):
    """Equal nodes that one CreateFleet call buys. ``claims``: a name for each, in order.

    ``pods``: for each claim the pods it is for, key → uid, as far as they waited for a node when it was decided.
    """

    id: str
    claims: tuple[str, ...]
    node: NewNode
    replaces: tuple[str, ...] = ()
    reason: str = "provisioned"
    pods: tuple[dict[str, str], ...] = ()


class Disruption(msgspec.Struct, frozen=True):
    """Nodes to remove, and the launches whose nodes must be Initialized before they go.

    ``candidates``: NodeClaim names; ``uids``: name → uid when it was decided; ``reason``: Empty, Drifted …
    ``deadline``: epoch milliseconds at which the candidates go with or without replacements; 0 = they stay then.
    ``locked``: claims that others held when it was decided, by name.
    """

    id: str
    reason: str
    candidates: tuple[str, ...]
    uids: dict[str, str]
    replacements: tuple[str, ...] = ()
    savings_picousd_per_hour: int = 0
    deadline: int = 0
    locked: tuple[str, ...] = ()


class Decision(msgspec.Struct, frozen=True):
    """What was decided. ``kind``: provision | disrupt | interrupt | scale-down.

    ``based_on``: the cluster version it was made on.
    ``code``: digest of the deciding code; a replay under another digest says so. ``why``: one sentence.
    """

    id: str
    kind: str
    cluster: str
    based_on: int
    now: datetime
    snapshot: str
    catalog: str
    code: str
    plan: Plan = Plan()
    launches: tuple[Launch, ...] = ()
    disruption: Disruption | None = None
    why: str = ""
    schema: int = 1


def encode(decision: Decision) -> bytes:
    return msgspec.json.encode(decision, order="deterministic")


def decode(body: bytes) -> Decision:
    return msgspec.json.decode(body, type=Decision)


def on_their_way_out(
    waiting: Iterable[Decision], commands: Iterable[CommandRow]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """NodeClaims that committed decisions take away: those that go whatever happens, and those that go once their
    replacements are there. ``waiting``: decisions that were read before the rows are."""
    held = [(one.candidates, one.reason, one.deadline > 0) for each in waiting if (one := each.disruption) is not None]
    held += [(row.candidates, row.reason, row.forced) for row in commands if row.phase != "proposed"]
    certain = {name for names, reason, forced in held if forced or reason == SCALED_DOWN for name in names}
    others = {name for names, _, _ in held for name in names} - certain
    return tuple(sorted(certain)), tuple(sorted(others))


def identifier(*parts: str) -> str:
    """A short id derived from its inputs: 16 hexadecimal digits."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def claim_name(pool: str, launch: str, index: int) -> str:
    """``<pool>-<suffix>``, derived, so that a repeated creation finds itself. At most 63 characters."""
    number = int.from_bytes(hashlib.sha256(f"{launch}/{index}".encode()).digest()[:8])
    suffix = ""
    for _ in range(_SUFFIX_LENGTH):
        number, letter = divmod(number, len(_SUFFIX_ALPHABET))
        suffix += _SUFFIX_ALPHABET[letter]
    return f"{pool[: 62 - _SUFFIX_LENGTH]}-{suffix}"


def launches(decision: str, plan: Plan, waiting: Mapping[str, str]) -> tuple[Launch, ...]:
    """The plan's new nodes as launches: nodes that are equal but for their pods are bought together.

    ``waiting``: key → uid of the pods that wait for a node.
    """
    groups: dict[bytes, list[NewNode]] = {}
    for node in plan.new_nodes:
        shape = msgspec.structs.replace(node, pods=(), reason="", requests={})
        key = msgspec.json.encode((shape, sorted(node.requests.items())), order="deterministic")
        groups.setdefault(key, []).append(node)
    made = []
    for number, nodes in enumerate(groups.values()):
        launch = identifier(decision, str(number))
        names = tuple(claim_name(nodes[0].nodepool, launch, index) for index in range(len(nodes)))
        pods = tuple(sorted(pod for node in nodes for pod in node.pods))
        each = tuple({pod: waiting[pod] for pod in node.pods if pod in waiting} for node in nodes)
        made.append(Launch(launch, names, msgspec.structs.replace(nodes[0], pods=pods), pods=each))
    return tuple(made)
