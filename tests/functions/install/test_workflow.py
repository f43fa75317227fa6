"""What the custom resource applies, what it leaves alone, and whom it gives its access back to."""

import copy

import msgspec
import pytest

from spotwright import manifests
from spotwright.errors import Denied, InvalidRequest, NotFound, Unavailable
from spotwright.workflows.install.node_access import NodeRole
from spotwright.workflows.install.workflow import (
    INSTALLERS,
    Installation,
    RemovalResult,
    install,
    remove,
    with_served_versions,
)
from tests.functions.install.fakes import Access, Deadline, Nodes, Objects
from tests.manifests.cluster import wanted
from tests.manifests.samples import Object


def test_everything_is_applied_definitions_first_and_access_is_given_back() -> None:
    objects = Objects()
    access = Access(objects)
    applied = install(access, Nodes(), wanted(), Deadline())
    kinds = [name.split("/")[0] for name in applied]
    assert kinds[:3] == ["CustomResourceDefinition"] * 3
    assert kinds[-1] == "Deployment"
    assert len(objects.live) == len(applied)
    assert access.closed == 1


def test_a_second_install_changes_nothing() -> None:
    objects = Objects()
    install(Access(objects), Nodes(), wanted(), Deadline())
    before = copy.deepcopy(objects.live)
    install(Access(objects), Nodes(), wanted(), Deadline())
    assert objects.live == before


def test_access_that_takes_effect_late_is_waited_for() -> None:
    objects = Objects(failures=[Denied("401")] * 5 + [Unavailable("no answer")])
    deadline = Deadline(60)
    install(Access(objects), Nodes(), wanted(), deadline)
    assert deadline.seconds == 60 - 6 * 2


def test_access_that_never_takes_effect_fails_in_time_and_is_given_back() -> None:
    access = Access(Objects(failures=[Denied("403")] * 100))
    with pytest.raises(Denied):
        install(access, Nodes(), wanted(), Deadline(10))
    assert access.closed == 1


def test_access_is_given_back_when_opening_it_fails_half_way() -> None:
    access = Access(Objects(), refused=Unavailable("EKS"))
    with pytest.raises(Unavailable):
        install(access, Nodes(), wanted(), Deadline())
    assert access.closed == 1


def karpenter(replicas: int) -> Object:
    metadata = {"name": "karpenter", "namespace": "kube-system"}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": {"replicas": replicas}}


def test_beside_a_karpenter_that_runs_nothing_is_installed() -> None:
    objects, access = Objects(), Access(Objects())
    objects.apply(karpenter(2))
    access.objects = objects
    nodes = Nodes()
    installation = msgspec.structs.replace(wanted(), node_roles=(NodeRole("arn:aws:iam::1:role/nodes", "EC2_LINUX"),))
    with pytest.raises(InvalidRequest) as refused:
        install(access, nodes, installation, Deadline())
    for part in ("kube-system/karpenter runs Karpenter", "--replicas=0", "deploy again"):
        assert part in str(refused.value)
    assert (len(objects.live), nodes.entries, access.closed) == (1, {}, 1)
    skipping = msgspec.structs.replace(installation, skipped_checks=("provisioner",))
    assert install(access, nodes, skipping, Deadline())


def of_cell(name: str) -> Installation:
    parts = manifests.forwarder("image", {"SPOTWRIGHT_CELL": name})
    return msgspec.structs.replace(wanted(), parts=parts, installer=f"of-{name}")


def test_where_another_cell_serves_the_cluster_nothing_is_installed_until_it_has_gone() -> None:
    objects, nodes = Objects(), Nodes()
    access = Access(objects)
    install(access, nodes, of_cell("main"), Deadline())
    before = copy.deepcopy(objects.live)
    with pytest.raises(InvalidRequest) as refused:
        install(access, nodes, of_cell("second"), Deadline())
    for part in (f"cluster {nodes.cluster} is served by cell main", "Spotwright-main", "kubectl delete deployment"):
        assert part in str(refused.value)
    assert objects.live == before
    # CloudFormation rolls back, which asks for what was never installed to be removed.
    remove(access, nodes, of_cell("second"), Deadline())
    assert objects.live == before
    install(access, nodes, of_cell("main"), Deadline())
    remove(access, nodes, of_cell("main"), Deadline())
    assert install(access, nodes, of_cell("second"), Deadline())


def test_a_karpenter_without_replicas_and_our_own_forwarder_are_no_provisioners() -> None:
    objects = Objects()
    objects.apply(karpenter(0))
    for _ in range(2):
        assert install(Access(objects), Nodes(), wanted(), Deadline())


def test_names_that_another_definition_holds_are_reported() -> None:
    with pytest.raises(InvalidRequest, match="taken"):
        install(Access(Objects(names_taken=True)), Nodes(), wanted(), Deadline())


def test_versions_of_an_older_installation_stay_served() -> None:
    ours = manifests.definitions()[0]
    old = {"name": "v1beta1", "served": True, "storage": True, "schema": {}}
    live = {"spec": {"versions": [old, {"name": "v1", "served": True, "storage": False}]}}
    versions = with_served_versions(live, ours)["spec"]["versions"]
    assert [(version["name"], version["served"], version["storage"]) for version in versions] == [
        ("v1", True, True),
        ("v1beta1", True, False),
    ]
    assert with_served_versions(None, ours) == ours


def test_removal_takes_the_parts_and_nothing_else() -> None:
    objects = Objects()
    install(Access(objects), Nodes(), wanted(), Deadline())
    removal = remove(Access(objects), Nodes(), wanted(), Deadline())
    assert removal.gave_up == ""
    assert set(objects.deleted) == {
        "Deployment", "ClusterRole", "ClusterRoleBinding", "ServiceAccount", "FlowSchema", "PriorityLevelConfiguration"
    }  # fmt: skip
    assert {one["kind"] for one in objects.live.values()} == {"CustomResourceDefinition"}
    assert remove(Access(objects), Nodes(), wanted(), Deadline()).gave_up == ""


def test_the_delete_of_a_renamed_resource_takes_nothing_from_the_new_one() -> None:
    objects = Objects()
    install(Access(objects), Nodes(), wanted("old"), Deadline())
    install(Access(objects), Nodes(), wanted("new"), Deadline())
    removal = remove(Access(objects), Nodes(), wanted("old"), Deadline())
    assert removal.deleted == ()
    assert {
        one["metadata"]["annotations"][INSTALLERS] for one in objects.live.values() if one["kind"] == "Deployment"
    } == {"new"}
    assert remove(Access(objects), Nodes(), wanted("old"), Deadline()).deleted == ()
    assert "Deployment/spotwright-forwarder" in remove(Access(objects), Nodes(), wanted("new"), Deadline()).deleted


def test_the_rollback_of_a_second_installer_takes_nothing_from_the_first() -> None:
    objects = Objects()
    install(Access(objects), Nodes(), wanted("first"), Deadline())
    install(Access(objects), Nodes(), wanted("second"), Deadline())
    assert remove(Access(objects), Nodes(), wanted("second"), Deadline()).deleted == ()
    assert len(objects.live) == len(wanted().parts) + len(manifests.definitions())


@pytest.mark.parametrize("refused", [NotFound("no such cluster"), Unavailable("EKS"), Denied("not allowed")])
def test_removal_succeeds_when_the_cluster_is_out_of_reach(refused: Exception) -> None:
    access = Access(Objects(), refused=refused)
    assert remove(access, Nodes(), wanted(), Deadline()).gave_up
    assert access.closed == 1


def test_removal_from_a_silent_cluster_ends_in_bounded_time() -> None:
    deadline = Deadline(20)
    removal = remove(Access(Objects(failures=[Unavailable("silence")] * 100)), Nodes(), wanted(), deadline)
    assert removal == RemovalResult((), (), "silence")
    assert deadline.seconds > 0
