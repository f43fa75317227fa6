"""What the custom resource applies, what it leaves alone, and whom it gives its access back to."""

import copy

import pytest

from spotwright import manifests
from spotwright.errors import Denied, InvalidRequest, NotFound, Unavailable
from spotwright.workflows.install.workflow import INSTALLERS, RemovalResult, install, remove, with_served_versions
from tests.functions.install.fakes import Access, Objects, Patience
from tests.manifests.cluster import wanted


def test_everything_is_applied_definitions_first_and_access_is_given_back() -> None:
    objects = Objects()
    access = Access(objects)
    applied = install(access, wanted(), Patience())
    kinds = [name.split("/")[0] for name in applied]
    assert kinds[:3] == ["CustomResourceDefinition"] * 3
    assert kinds[-1] == "Deployment"
    assert len(objects.live) == len(applied)
    assert access.closed == 1


def test_a_second_install_changes_nothing() -> None:
    objects = Objects()
    install(Access(objects), wanted(), Patience())
    before = copy.deepcopy(objects.live)
    install(Access(objects), wanted(), Patience())
    assert objects.live == before


def test_access_that_takes_effect_late_is_waited_for() -> None:
    objects = Objects(failures=[Denied("401")] * 5 + [Unavailable("no answer")])
    patience = Patience(60)
    install(Access(objects), wanted(), patience)
    assert patience.seconds == 60 - 6 * 2


def test_access_that_never_takes_effect_fails_in_time_and_is_given_back() -> None:
    access = Access(Objects(failures=[Denied("403")] * 100))
    with pytest.raises(Denied):
        install(access, wanted(), Patience(10))
    assert access.closed == 1


def test_access_is_given_back_when_opening_it_fails_half_way() -> None:
    access = Access(Objects(), refused=Unavailable("EKS"))
    with pytest.raises(Unavailable):
        install(access, wanted(), Patience())
    assert access.closed == 1


def test_names_that_another_definition_holds_are_reported() -> None:
    with pytest.raises(InvalidRequest, match="taken"):
        install(Access(Objects(names_taken=True)), wanted(), Patience())


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
    install(Access(objects), wanted(), Patience())
    removal = remove(Access(objects), wanted(), Patience())
    assert removal.gave_up == ""
    assert set(objects.deleted) == {"Deployment", "ClusterRole", "ClusterRoleBinding", "ServiceAccount"}
    assert {one["kind"] for one in objects.live.values()} == {"CustomResourceDefinition"}
    assert remove(Access(objects), wanted(), Patience()).gave_up == ""


def test_the_delete_of_a_renamed_resource_takes_nothing_from_the_new_one() -> None:
    objects = Objects()
    install(Access(objects), wanted("old"), Patience())
    install(Access(objects), wanted("new"), Patience())
    removal = remove(Access(objects), wanted("old"), Patience())
    assert removal.deleted == ()
    assert {
        one["metadata"]["annotations"][INSTALLERS] for one in objects.live.values() if one["kind"] == "Deployment"
    } == {"new"}
    assert remove(Access(objects), wanted("old"), Patience()).deleted == ()
    assert "Deployment/spotwright-forwarder" in remove(Access(objects), wanted("new"), Patience()).deleted


def test_the_rollback_of_a_second_installer_takes_nothing_from_the_first() -> None:
    objects = Objects()
    install(Access(objects), wanted("first"), Patience())
    install(Access(objects), wanted("second"), Patience())
    assert remove(Access(objects), wanted("second"), Patience()).deleted == ()
    assert len(objects.live) == len(wanted().parts) + len(manifests.definitions())


@pytest.mark.parametrize("refused", [NotFound("no such cluster"), Unavailable("EKS"), Denied("not allowed")])
def test_removal_succeeds_when_the_cluster_is_out_of_reach(refused: Exception) -> None:
    access = Access(Objects(), refused=refused)
    assert remove(access, wanted(), Patience()).gave_up
    assert access.closed == 1


def test_removal_from_a_silent_cluster_ends_in_bounded_time() -> None:
    patience = Patience(20)
    removal = remove(Access(Objects(failures=[Unavailable("silence")] * 100)), wanted(), patience)
    assert removal == RemovalResult((), (), "silence")
    assert patience.seconds > 0
