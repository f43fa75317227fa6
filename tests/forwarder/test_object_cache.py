"""What the forwarder keeps of objects, and what an update of them says: by a watch and by a list alike."""

from collections.abc import Iterable

import msgspec

from forwarder.doorbells import PODS, QueuedDoorbell, node_doorbell
from forwarder.kinds import WATCHED_KINDS, ClusterObject, decode_manifest
from forwarder.object_cache import ObjectCache
from forwarder.outgoing import MAXIMUM_KEPT, RESEND_SECONDS, Outgoing, SendResult
from forwarder.watcher import ListedPage, ListEnd, ObjectChange
from spotwright.model.labels import DISRUPTED
from tests.forwarder import objects
from tests.forwarder.objects import decoded

NODE = decoded("Node", objects.node())
CLASS = QueuedDoorbell("catalog", "nodeclasses", "default")
CLOSED = decoded("Node", objects.node(taints=(DISRUPTED,)))
BUFFER = decoded(
    "CapacityBuffer",
    {
        "metadata": {"name": "spare", "namespace": "default", "uid": "uid-spare"},
        "spec": {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "percentage": 50},
    },
)


def pod(name: str, **more: object) -> ClusterObject:
    return decoded("Pod", objects.pod(name, **more))  # type: ignore[arg-type]


def deployment(replicas: int) -> ClusterObject:
    fields = {
        "metadata": {"name": "web", "namespace": "default", "uid": "uid-web"},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "c"}]}}},
    }
    return decode_manifest(msgspec.Raw(msgspec.json.encode(fields)))


def change(kind: str, found: ClusterObject, version: str = "2") -> ObjectChange:
    return ObjectChange(kind, found.metadata.uid, found, version)


def page(kind: str, *found: ClusterObject) -> ListedPage:
    return ListedPage(kind, found, "2")


def started(**known: Iterable[ClusterObject]) -> ObjectCache:
    """Every kind was listed once, with these objects; Deployments where there is a buffer."""
    cache = ObjectCache()
    scalables = {"Deployment default": [deployment(4)]} if "CapacityBuffer" in known else {}
    for kind in (*(kind.name for kind in WATCHED_KINDS), *scalables):
        found = tuple({**known, **scalables}.get(kind, ()))
        cache.apply(page(kind, *found), 0.0)
        cache.apply(ListEnd(kind, frozenset(obj.metadata.uid for obj in found), "1"), 0.0)
    return cache


def with_version(found: ClusterObject, version: str) -> ClusterObject:
    return msgspec.structs.replace(found, metadata=msgspec.structs.replace(found.metadata, resource_version=version))


def test_a_heartbeat_of_a_node_is_no_change_to_ship() -> None:
    """The kubelet writes the Node, so that its resourceVersion grows; nothing else of it that is kept does."""
    cache = started(Node=[with_version(NODE, "7")])
    number = cache.changes.number
    cache.apply(change("Node", with_version(NODE, "8")), 1.0)
    assert cache.changes.number == number
    cache.apply(change("Node", with_version(CLOSED, "9")), 2.0)
    assert cache.changes.number == number + 1


def test_a_version_that_goes_back_is_one_to_ship() -> None:
    """As where etcd was restored: a state in which an object is newer than its kind is not read."""
    cache = started(Node=[with_version(NODE, "10")])
    number = cache.changes.number
    cache.apply(page("Node", with_version(NODE, "9")), 1.0)
    assert cache.changes.number == number + 1
    assert cache.nodes()[0].metadata.resource_version == "9"


def test_a_deployment_that_changes_is_a_change_of_the_buffer_that_refers_to_it() -> None:
    cache = started(CapacityBuffer=[BUFFER])
    cache.changes.begin()
    cache.changes.commit()
    cache.apply(change("Deployment default", deployment(4), "3"), 2.0)
    assert cache.changes.since_base() == frozenset()
    cache.apply(change("Deployment default", deployment(8), "4"), 3.0)
    assert ("CapacityBuffer", "uid-spare") in cache.changes.since_base()


def test_pods_that_a_list_shows_on_a_node_are_pod_events_of_it_and_other_room() -> None:
    cache = started(Node=[NODE], CapacityBuffer=[BUFFER])
    update = cache.apply(page("Pod", pod("comes", node="n"), pod("waits")), 1.0)
    assert update.bound_nodes == {"n"}
    assert not update.pod_event_nodes
    assert update.buffers_have_other_room
    again = cache.apply(page("Pod", pod("comes", node="n"), pod("waits")), 2.0)
    assert not again.bound_nodes | again.pod_event_nodes
    assert not again.buffers_have_other_room
    gone = cache.apply(ObjectChange("Pod", "uid-comes", None, "2"), 3.0)
    assert gone.pod_event_nodes == {"n"}
    assert not gone.bound_nodes


def test_pods_that_a_list_shows_no_more_are_events_of_the_drain_of_their_node() -> None:
    cache = started(Node=[CLOSED], Pod=[pod("goes", node="n")])
    assert cache.apply(ListEnd("Pod", frozenset(), "2"), 1.0).drain_event_nodes == {"n"}


def test_a_class_that_is_deleted_is_rung_for_when_its_last_claim_is_gone() -> None:
    going = decoded("EC2NodeClass", objects.wish("default", deleting=True))
    claims = [decoded("NodeClaim", objects.claim(name)) for name in ("a", "b")]
    cache = started(EC2NodeClass=[going], NodeClaim=claims)
    rung = [cache.apply(ObjectChange("NodeClaim", f"uid-{name}", None, "2"), 1.0).doorbells for name in ("a", "b")]
    assert CLASS not in rung[0]
    assert CLASS in rung[1]


def test_a_class_that_stays_is_not_rung_for_by_its_claims() -> None:
    staying = decoded("EC2NodeClass", objects.wish("default"))
    cache = started(EC2NodeClass=[staying], NodeClaim=[decoded("NodeClaim", objects.claim("a"))])
    assert CLASS not in cache.apply(ObjectChange("NodeClaim", "uid-a", None, "2"), 1.0).doorbells


def test_claims_and_deletions_of_other_classes_say_nothing_about_a_class() -> None:
    going, staying = (
        decoded("EC2NodeClass", objects.wish(name, deleting=name == "default")) for name in ("default", "b")
    )
    claims = [decoded("NodeClaim", objects.claim(f"of-{name}", nodeclass=name)) for name in ("default", "b")]
    cache = started(EC2NodeClass=[going, staying], NodeClaim=claims)
    rung = [
        cache.apply(ObjectChange("NodeClaim", f"uid-of-{name}", None, "2"), 1.0).doorbells for name in ("default", "b")
    ]
    assert CLASS in rung[0], "the claim that is left is not its own"
    assert not {bell for bell in rung[1] if bell.kind == "nodeclasses"}, "the class of the claim stays"


def test_claims_of_a_class_of_another_group_say_nothing_about_a_class() -> None:
    going = decoded("EC2NodeClass", objects.wish("default", deleting=True))
    groups = {"own": "karpenter.k8s.aws", "foreign": "karpenter.azure.com", "another": "karpenter.azure.com"}
    claims = [decoded("NodeClaim", objects.claim(name, group=group)) for name, group in groups.items()]
    cache = started(EC2NodeClass=[going], NodeClaim=claims)
    rung = [cache.apply(ObjectChange("NodeClaim", f"uid-{name}", None, "2"), 1.0).doorbells for name in groups]
    assert CLASS in rung[0], "the claims that are left are not its own"
    assert CLASS not in rung[1] | rung[2], "they did not keep it"


def test_a_class_that_is_deleted_is_rung_for_when_a_list_shows_none_of_its_claims() -> None:
    going = decoded("EC2NodeClass", objects.wish("default", deleting=True))
    cache = started(EC2NodeClass=[going], NodeClaim=[decoded("NodeClaim", objects.claim(name)) for name in ("a", "b")])
    assert CLASS not in cache.apply(ListEnd("NodeClaim", frozenset({"uid-b"}), "2"), 1.0).doorbells
    assert CLASS in cache.apply(ListEnd("NodeClaim", frozenset(), "3"), 1.0).doorbells


def test_a_list_shows_nodes_that_are_drained_now_and_waiting_pods() -> None:
    cache = started(Node=[NODE])
    assert cache.apply(page("Node", CLOSED), 1.0).closed_nodes == {"n"}
    assert PODS in cache.apply(page("Pod", pod("waits", unschedulable=True), pod("other")), 2.0).doorbells


def test_a_node_that_is_drained_is_closed_once_however_often_it_is_written() -> None:
    """Each time would begin its shortest drain anew, and what rings for its end would come later and later."""
    cache = started(Node=[NODE])
    assert cache.apply(change("Node", CLOSED), 1.0).closed_nodes == {"n"}
    later = decoded("Node", objects.node(taints=(DISRUPTED,), further_labels=("example.com/written",)))
    assert cache.apply(change("Node", later), 2.0).closed_nodes == frozenset()


class Jobs:
    """Keeps what is sent."""

    def __init__(self) -> None:
        self.sent: list[frozenset[object]] = []

    def send(self, bells: frozenset[object], *, heartbeat_first: bool) -> None:
        self.sent.append(bells)


def test_beyond_what_is_kept_the_doorbell_for_pods_is_tried_until_a_queue_takes_it() -> None:
    """So all objects ring when it is taken, although nothing has changed since."""
    jobs = Jobs()
    outgoing = Outgoing(jobs)
    outgoing.add(frozenset(node_doorbell(f"n-{number}") for number in range(MAXIMUM_KEPT + 1)), 0.0)
    while outgoing.sending_since is not None and len(jobs.sent) < 3:
        outgoing.take(SendResult(jobs.sent[-1], jobs.sent[-1], False), 0.0)  # type: ignore[arg-type]
    outgoing.retry(RESEND_SECONDS)
    assert PODS in jobs.sent[-1]
