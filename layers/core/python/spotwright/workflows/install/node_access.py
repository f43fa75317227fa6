"""Who of the node roles is let into a cluster: access entries that are there are kept, missing ones are made.

EKS lets a kubelet in by the access entry of its instance's role. A managed node group, or whoever made the cluster, may
have made that entry already; it is theirs. An entry that is made here carries the tag ``spotwright.dev/installers`` and
is deleted with the last installer that it names.
"""

from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from spotwright.errors import Conflict, InvalidRequest, Unavailable
from spotwright.workflows.install.patience import retry
from spotwright.workflows.ports.installation import AccessEntry, DeadlinePort, NodeAccessPort

# A role that was made just before is not known to EKS for some seconds.
ROLE_SECONDS = 30.0


class NodeRole(msgspec.Struct, frozen=True):
    """A role that nodes may run as. ``arn``: the role's; ``type``: EC2_LINUX or EC2_WINDOWS."""

    arn: str
    type: str

    @property
    def name(self) -> str:
        """With its path, as cdk.json has it."""
        return self.arn.partition(":role/")[2]


class ReleasedEntries(msgspec.Struct, frozen=True):
    """Role ARNs: whose access entries were deleted, and whose stay because nodes may still need them."""

    deleted: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def admit_nodes(access: NodeAccessPort, roles: Sequence[NodeRole], installer: str, deadline: DeadlinePort) -> None:
    """Every role has an access entry of its type afterwards.

    Raises InvalidRequest when an entry has another type, or EKS does not know the role.
    """
    for role in roles:
        retry(partial(_admit, access, role, installer, _until_known(deadline)), deadline)


def release_entries(
    access: NodeAccessPort, installer: str, *, wanted: frozenset[str], may_delete: Callable[[], bool]
) -> ReleasedEntries:
    """Take this installer off the entries of roles that are not ``wanted``; delete those that no other one needs.

    ``may_delete`` is asked at the first entry that would be deleted: False while NodeClaims exist, whose nodes would
    lose their cluster with it. Such an entry keeps its tag, and a later call finds it again.
    """
    deleted: list[str] = []
    kept: list[str] = []
    is_allowed: bool | None = None
    for entry in access.tagged_entries():
        if installer not in entry.installers or entry.principal in wanted:
            continue
        if others := entry.installers - {installer}:
            access.tag(entry, others)
            continue
        is_allowed = may_delete() if is_allowed is None else is_allowed
        if is_allowed:
            access.delete(entry.principal)
        (deleted if is_allowed else kept).append(entry.principal)
    return ReleasedEntries(tuple(deleted), tuple(kept))


def _admit(access: NodeAccessPort, role: NodeRole, installer: str, is_patient: Callable[[], bool]) -> None:
    try:
        access.create(role.arn, role.type, frozenset({installer}))
    except InvalidRequest as refusal:
        if is_patient():
            raise Unavailable(str(refusal), code=refusal.code) from refusal
        raise InvalidRequest(_unknown_role(access, role, refusal), code=refusal.code) from refusal
    except Conflict:
        _recognize(access, role, installer)


def _recognize(access: NodeAccessPort, role: NodeRole, installer: str) -> None:
    """An entry that is there: of the right type it does, whoever made it."""
    entry = access.find(role.arn)
    if entry is None:
        raise Conflict(f"the access entry of {role.arn} was deleted while it was looked at")
    if entry.type != role.type:
        raise InvalidRequest(_other_type(access, role, entry))
    if entry.installers and installer not in entry.installers:
        access.tag(entry, entry.installers | {installer})


def _until_known(deadline: DeadlinePort) -> Callable[[], bool]:
    begin = deadline.remaining_seconds()
    return lambda: begin - deadline.remaining_seconds() < ROLE_SECONDS


def _unknown_role(access: NodeAccessPort, role: NodeRole, refusal: InvalidRequest) -> str:
    return (
        f"cluster {access.cluster}: EKS makes no access entry for the node role {role.name}; most likely the role does"
        f" not exist. Create it, or take it out of nodeRoles in cdk.json, and deploy again. ({refusal})"
    )


def _other_type(access: NodeAccessPort, role: NodeRole, entry: AccessEntry) -> str:
    return (
        f"cluster {access.cluster}: the access entry of the node role {role.name} has type {entry.type}, its nodes"
        f" need {role.type}, and EKS cannot change a type. Name another role in nodeRoles in cdk.json, or delete the"
        f" entry if nobody needs it (aws eks delete-access-entry --cluster-name {access.cluster} --principal-arn"
        f" {role.arn}), and deploy again."
    )
