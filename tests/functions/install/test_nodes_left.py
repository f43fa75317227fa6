"""What a deletion says of the nodes that it would leave behind, and when it says nothing."""

from datetime import UTC, datetime, timedelta

import pytest

from spotwright import manifests
from spotwright.adapters.aws.custom_resource import LONGEST_REASON
from spotwright.errors import Denied, NotFound, Unavailable
from spotwright.workflows.install.nodes_left import SAID, explain_deletion, explain_removal, find_nodes_left
from tests.functions.install.fakes import Access, Deadline, Objects
from tests.manifests.samples import SAMPLES, Object, changed

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def forwarder(cell: str = "main") -> Object:
    (deployment,) = manifests.forwarder("forwarder:1", {"SPOTWRIGHT_CELL": cell})
    return deployment


def claim(name: str) -> Object:
    return changed(SAMPLES["NodeClaim"](), "metadata.name", name)


def cluster(*objects: Object) -> Objects:
    """An API server that has these."""
    found = Objects()
    for document in objects:
        found.apply(document)
    return found


def said(objects: Objects, *, cell: str = "main", now: datetime = NOW, request: str = "") -> str:
    """``request``: the id of the deletion; "" = one that was not seen before."""
    access = Access(objects)
    request = request or f"request-of-{now.isoformat()}"
    claims = find_nodes_left(access, cell, forwarder(), Deadline(30), request=request, now=now)
    assert access.closed == 1
    return explain_deletion(cell, "dev", claims) if claims else ""


def test_claims_are_named_with_what_ends_their_nodes() -> None:
    assert said(cluster(forwarder(), claim("b"), claim("a"))) == (
        "cluster dev has 2 NodeClaims (a, b), and once this is deleted nothing drains, replaces or terminates their"
        " nodes, which go on to cost. To end them: spotwright uninstall --drain --cluster dev; to leave them to"
        " Karpenter: the same with --hand-back instead of --drain; then delete again. A second deletion within a day"
        " leaves them as they are"
    )


def test_clusters_that_leave_are_named_with_what_ends_their_nodes() -> None:
    assert explain_removal("main", {"dev": ["a", "b"]}) == (
        "cluster dev has 2 NodeClaims (a, b), and once it has left cdk.json nothing drains, replaces or terminates"
        " their nodes, which go on to cost. To end them: spotwright uninstall --drain --cluster dev; to leave them to"
        " Karpenter: the same with --hand-back instead of --drain; then deploy again. A second deployment within a day"
        " leaves them as they are"
    )
    several = explain_removal("blue", {"dev": ["a"], "test": ["b", "c"]})
    assert several.startswith("cluster dev has 1 NodeClaim, cluster test has 2 NodeClaims, and once they have left")
    assert "spotwright uninstall --drain --cluster NAME --stack Spotwright-blue;" in several


def test_the_stack_of_another_cell_than_main_is_named_for_the_command() -> None:
    objects = cluster(forwarder("blue"), *(claim(f"c{number}") for number in range(5)))
    reason = said(objects, cell="blue")
    assert "5 NodeClaims (c0, c1, c2, …)" in reason
    assert "--cluster dev --stack Spotwright-blue;" in reason


def test_a_second_deletion_within_a_day_goes_through_and_a_later_one_is_told_again() -> None:
    objects = cluster(forwarder(), claim("a"))
    assert said(objects)
    assert said(objects, now=NOW + timedelta(hours=23)) == ""
    assert said(objects, now=NOW + timedelta(hours=25))


def test_what_somebody_else_wrote_there_counts_as_nothing() -> None:
    assert said(cluster(changed(forwarder(), "metadata.annotations", {SAID: "yesterday"}), claim("a")))
    assert said(cluster(changed(forwarder(), "metadata.annotations", {SAID: "2026-01-02T03:00:00"}), claim("a")))


def test_a_time_to_come_counts_as_nothing() -> None:
    ahead = (NOW + timedelta(days=400)).isoformat()
    assert said(cluster(changed(forwarder(), "metadata.annotations", {SAID: ahead}), claim("a")))


def test_a_deletion_that_reaches_the_function_twice_is_told_the_same_twice() -> None:
    """Lambda may deliver an event again; the doubled one must not let the stack go that the first has kept."""
    objects = cluster(forwarder(), claim("a"))
    first = said(objects, request="one")
    assert first
    assert said(objects, now=NOW + timedelta(minutes=2), request="one") == first
    assert said(objects, now=NOW + timedelta(minutes=3), request="two") == ""


def test_what_an_earlier_version_noted_counts() -> None:
    objects = cluster(changed(forwarder(), "metadata.annotations", {SAID: NOW.isoformat()}), claim("a"))
    assert said(objects, now=NOW + timedelta(hours=1)) == ""


@pytest.mark.parametrize("spec", [{}, {"nodeClassRef": None}, {"nodeClassRef": {"name": "default"}}, None])
def test_claims_without_a_class_of_ours_hold_no_deletion_up(spec: object) -> None:
    """Such as were stored under another schema: a stack can be deleted whatever a cluster holds."""
    odd = changed(claim("odd"), "spec", spec)
    assert said(cluster(forwarder(), odd)) == ""
    assert "1 NodeClaim (a)" in said(cluster(forwarder(), odd, claim("a")))


def test_the_longest_sentence_is_not_cut_off() -> None:
    """NodeClaims are called after their NodePool, whose name is a label's value, with six characters more."""
    names = [f"{number:063}-abcde" for number in range(9)]
    objects = cluster(forwarder("c" * 20), *map(claim, names))
    claims = find_nodes_left(Access(objects), "c" * 20, forwarder(), Deadline(30), request="r", now=NOW)
    clusters = [f"{number}" + "n" * 99 for number in range(9)]
    for reason in (
        explain_deletion("c" * 20, clusters[0], claims),
        explain_removal("c" * 20, {clusters[0]: claims}),
        explain_removal("c" * 20, dict.fromkeys(clusters, claims)),
    ):
        assert reason.endswith("as they are")
        assert len(reason) <= LONGEST_REASON


KARPENTER: Object = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "karpenter", "namespace": "karpenter"},
    "spec": {"replicas": 2},
}
AUTO_MODE = changed(claim("auto"), "spec.nodeClassRef.group", "eks.amazonaws.com")


@pytest.mark.parametrize(
    ("objects", "why"),
    [
        ([forwarder()], "no claims"),
        ([claim("a")], "handed back: the forwarder has gone"),
        ([forwarder("blue"), claim("a")], "another cell serves the cluster"),
        ([forwarder(), claim("a"), KARPENTER], "Karpenter runs and takes the claims over"),
        ([forwarder(), AUTO_MODE], "the claims are those of EKS Auto Mode"),
    ],
)
def test_nothing_is_said_where_nobodys_nodes_are_left(objects: list[Object], why: str) -> None:
    assert said(cluster(*objects)) == "", why


def test_a_cluster_without_the_kind_has_no_claims() -> None:
    class Without(Objects):
        def list(self, api_version: str, kind: str, namespace: str = "", selector: str = "", /) -> list[Object]:
            raise NotFound("the server could not find the requested resource")

    objects = Without()
    objects.apply(forwarder())
    assert said(objects) == ""


def test_an_access_that_cannot_be_closed_changes_nothing() -> None:
    """What comes next in the deletion closes it."""

    class Stuck(Access):
        def close(self) -> None:
            raise Unavailable("no answer")

    access = Stuck(cluster(forwarder(), claim("a")))
    assert find_nodes_left(access, "main", forwarder(), Deadline(30), request="r", now=NOW)


def test_a_cluster_that_does_not_answer_is_asked_until_the_deadline_and_left() -> None:
    objects = cluster(forwarder(), claim("a"))
    objects.failures = [Denied("403")] * 3
    assert said(objects)
    objects.failures = [Unavailable("no answer")] * 100
    access = Access(objects)
    with pytest.raises(Unavailable):
        find_nodes_left(access, "main", forwarder(), Deadline(30), request="r", now=NOW)
    assert access.closed == 1
