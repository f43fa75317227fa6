"""Node roles are let in, whoever made their access entry; only what was made here is deleted, and not under nodes."""

import msgspec
import pytest

from spotwright.errors import Denied, InvalidRequest, Throttled
from spotwright.workflows.install.node_access import NodeRole
from spotwright.workflows.install.patience import PERMISSION_SECONDS
from spotwright.workflows.install.workflow import Installation, install, remove
from spotwright.workflows.ports.installation import AccessEntry
from tests.functions.install.fakes import Access, Deadline, Nodes, Objects
from tests.manifests.cluster import wanted
from tests.manifests.samples import SAMPLES

LINUX = NodeRole("arn:aws:iam::123456789012:role/nodes/linux", "EC2_LINUX")
WINDOWS = NodeRole("arn:aws:iam::123456789012:role/windows", "EC2_WINDOWS")


def admitting(*roles: NodeRole, installer: str = "one") -> Installation:
    return msgspec.structs.replace(wanted(installer), node_roles=roles)


def entry(role: NodeRole, type: str, *installers: str) -> dict[str, AccessEntry]:
    return {role.arn: AccessEntry(role.arn, "entry", type, frozenset(installers))}


def test_what_is_missing_is_made_with_its_type_and_marked() -> None:
    nodes = Nodes()
    for _ in range(2):
        install(Access(Objects()), nodes, admitting(LINUX, WINDOWS), Deadline())
    assert {(e.principal, e.type, e.installers) for e in nodes.entries.values()} == {
        (LINUX.arn, "EC2_LINUX", frozenset({"one"})),
        (WINDOWS.arn, "EC2_WINDOWS", frozenset({"one"})),
    }


def test_an_entry_that_a_node_group_made_is_recognized_and_stays_with_its_maker() -> None:
    nodes = Nodes(entry(LINUX, "EC2_LINUX"))
    before = dict(nodes.entries)
    objects = Objects()
    install(Access(objects), nodes, admitting(LINUX), Deadline())
    removal = remove(Access(objects), nodes, admitting(LINUX), Deadline())
    assert nodes.entries == before
    assert removal.entries.deleted == ()


def test_an_entry_of_another_type_is_refused_in_one_sentence() -> None:
    nodes = Nodes(entry(LINUX, "STANDARD"))
    with pytest.raises(InvalidRequest) as refused:
        install(Access(Objects()), nodes, admitting(LINUX), Deadline())
    for part in (
        "cluster dev",
        "node role nodes/linux",
        "type STANDARD",
        "need EC2_LINUX",
        "cdk.json",
        "delete-access",
    ):
        assert part in str(refused.value)
    assert nodes.entries == entry(LINUX, "STANDARD")


def test_a_role_that_does_not_exist_is_waited_for_and_then_named() -> None:
    nodes, deadline = Nodes(missing={LINUX.arn}), Deadline(200)
    with pytest.raises(InvalidRequest) as refused:
        install(Access(Objects()), nodes, admitting(LINUX), deadline)
    for part in ("cluster dev", "node role nodes/linux", "does not exist", "nodeRoles in cdk.json", "deploy again"):
        assert part in str(refused.value)
    assert 200 - 40 < deadline.seconds < 200 - 20


def test_the_last_installer_deletes_what_was_made() -> None:
    nodes, objects = Nodes(), Objects()
    install(Access(objects), nodes, admitting(LINUX, installer="old"), Deadline())
    install(Access(objects), nodes, admitting(LINUX, installer="new"), Deadline())
    assert remove(Access(objects), nodes, admitting(LINUX, installer="old"), Deadline()).entries.deleted == ()
    assert nodes.entries[LINUX.arn].installers == {"new"}
    removal = remove(Access(objects), nodes, admitting(LINUX, installer="new"), Deadline())
    assert removal.entries.deleted == (LINUX.arn,)
    assert nodes.entries == {}


def test_while_nodeclaims_exist_their_nodes_keep_the_cluster() -> None:
    nodes, objects = Nodes(), Objects()
    install(Access(objects), nodes, admitting(LINUX), Deadline())
    objects.apply(SAMPLES["NodeClaim"]())
    removal = remove(Access(objects), nodes, admitting(LINUX), Deadline())
    assert (removal.entries.deleted, removal.entries.kept) == ((), (LINUX.arn,))
    assert LINUX.arn in nodes.entries


def test_a_stack_that_was_destroyed_under_nodes_is_deployed_again() -> None:
    nodes, objects = Nodes(), Objects()
    install(Access(objects), nodes, admitting(LINUX, installer="destroyed"), Deadline())
    objects.apply(SAMPLES["NodeClaim"]())
    parts = dict(objects.live)
    remove(Access(objects), nodes, admitting(LINUX, installer="destroyed"), Deadline())
    assert objects.live.keys() < parts.keys()
    install(Access(objects), nodes, admitting(LINUX, installer="again"), Deadline())
    assert objects.live.keys() == parts.keys()
    assert nodes.entries[LINUX.arn].type == LINUX.type


def test_a_role_that_is_named_no_more_loses_its_entry_when_its_nodes_are_gone() -> None:
    nodes, objects = Nodes(entry(WINDOWS, "EC2_WINDOWS", "other")), Objects()
    install(Access(objects), nodes, admitting(LINUX), Deadline())
    claim = objects.apply(SAMPLES["NodeClaim"]())
    install(Access(objects), nodes, admitting(), Deadline())
    assert LINUX.arn in nodes.entries
    objects.delete(claim)
    install(Access(objects), nodes, admitting(), Deadline())
    assert set(nodes.entries) == {WINDOWS.arn}


def test_entries_are_left_alone_while_the_stack_has_them() -> None:
    nodes = Nodes(entry(LINUX, "EC2_LINUX", "one"))
    install(Access(Objects()), nodes, wanted(), Deadline())
    assert set(nodes.entries) == {LINUX.arn}


def test_fresh_permissions_are_waited_for() -> None:
    nodes = Nodes(failures=[Denied("not authorized")] * 10 + [Throttled("slower")])
    install(Access(Objects()), nodes, admitting(LINUX), Deadline(200))
    assert LINUX.arn in nodes.entries


def test_what_stays_denied_ends_in_bounded_time_with_the_next_step() -> None:
    nodes, deadline = Nodes(failures=[Denied("not authorized to perform eks:CreateAccessEntry")] * 500), Deadline(600)
    with pytest.raises(Denied, match=r"eks:CreateAccessEntry \(denied for 120 s.*permissions boundary.*deploy again"):
        install(Access(Objects()), nodes, admitting(LINUX), deadline)
    assert deadline.seconds == 600 - PERMISSION_SECONDS


def test_access_to_the_cluster_is_waited_for_too() -> None:
    class Late(Access):
        def open(self) -> Objects:
            self.refused = Denied("eks:DescribeCluster") if self.opened < 5 else None
            opened: Objects = super().open()
            return opened

    access = Late(Objects())
    install(access, Nodes(), wanted(), Deadline(200))
    assert access.opened == 6
