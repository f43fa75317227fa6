"""A page of a list is read as its objects one by one would be, whatever they hold, and none costs another."""

import json
import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from spotwright.adapters.kubernetes.codecs.listed_objects import node_decoder, object_decoder
from spotwright.adapters.kubernetes.codecs.listed_pods import pod_decoder
from spotwright.adapters.kubernetes.codecs.node import decode_node
from spotwright.adapters.kubernetes.codecs.nodeclaim import decode_nodeclaim
from spotwright.adapters.kubernetes.codecs.nodeclass import decode_nodeclass
from spotwright.adapters.kubernetes.codecs.nodeoverlay import decode_nodeoverlay
from spotwright.adapters.kubernetes.codecs.nodepool import decode_nodepool
from spotwright.adapters.kubernetes.codecs.pages import PageDecoder
from spotwright.adapters.kubernetes.codecs.pod import decode_daemonset, decode_pod, decode_pod_disruption_budget
from spotwright.adapters.kubernetes.codecs.volumes import (
    decode_csi_node,
    decode_persistent_volume,
    decode_persistent_volume_claim,
    decode_storage_class,
)
from tests.property.changed_objects import LIVE, REALISTIC, changed, of_kind

type Object = dict[str, Any]
type Decode = Callable[[Any], object]

_OTHER_KINDS: Final[dict[str, Decode]] = {
    "NodeClaim": decode_nodeclaim,
    "NodePool": decode_nodepool,
    "EC2NodeClass": decode_nodeclass,
    "NodeOverlay": decode_nodeoverlay,
    "DaemonSet": decode_daemonset,
    "PodDisruptionBudget": decode_pod_disruption_budget,
    "PersistentVolumeClaim": decode_persistent_volume_claim,
    "PersistentVolume": decode_persistent_volume,
    "StorageClass": decode_storage_class,
    "CSINode": decode_csi_node,
}
KINDS: Final = ("Pod", "Node", *_OTHER_KINDS)


def decoders(kind: str) -> tuple[PageDecoder[Any, Any], Decode]:
    """The decoder of pages and the decoder of an object that states its kind."""
    match kind:
        case "Pod":
            return pod_decoder(), decode_pod
        case "Node":
            return node_decoder(), decode_node
    decode = _OTHER_KINDS[kind]
    return object_decoder(decode, kind=kind), lambda content: decode({**content, "kind": kind})


def outcome(decode: Callable[[], object]) -> str:
    """What decoding gives, or which error it raises."""
    try:
        return repr(decode())
    except Exception as error:  # noqa: BLE001 whatever it is, both ways must raise it
        return f"raises {type(error).__name__}"


def page_of(items: list[Any]) -> bytes:
    return json.dumps({"metadata": {"continue": "next", "resourceVersion": "7"}, "items": items}).encode()


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_gives_what_its_objects_give_one_by_one(kind: str) -> None:
    (decoder, decode), objects = decoders(kind), of_kind(kind)
    assert objects
    page = decoder.page(page_of(objects))
    assert page.items == tuple(map(decode, json.loads(page_of(objects))["items"]))
    assert (page.next_page, page.resource_version) == ("next", "7")


def test_pods_as_an_api_server_holds_them_are_read_the_quick_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(obj: object) -> Any:
        raise AssertionError(f"read as any JSON: {obj}")

    monkeypatch.setattr("spotwright.adapters.kubernetes.codecs.listed_pods.decode_pod", refuse)
    pods = [content for content in (*LIVE, *REALISTIC) if content["kind"] == "Pod"]
    assert len(pod_decoder().page(page_of(pods)).items) == len(pods)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(5))
def test_changed_objects_are_read_alike_in_pages_and_one_by_one(kind: str, seed: int) -> None:
    (decoder, decode), chance = decoders(kind), random.Random(f"{kind} {seed}")
    for _ in range(60):
        objects = [
            changed(content, chance) if chance.random() < 0.5 else content
            for content in chance.choices(of_kind(kind), k=3)
        ]
        read = [json.loads(json.dumps(content)) for content in objects]
        together = outcome(lambda: decoder.page(page_of(objects)).items)  # noqa: B023 called at once
        expected = outcome(lambda: tuple(map(decode, read)))  # noqa: B023 called at once
        assert together == expected
        for content, value in zip(objects, read, strict=True):
            encoded = json.dumps(content).encode()
            assert outcome(lambda: decoder.object(encoded)) == outcome(lambda: decode(value))  # noqa: B023 called at once
