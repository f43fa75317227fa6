"""What the API server refuses, and the words in which it says so."""

from typing import Any

import pytest

from local.kubernetes.api import ApiError
from spotwright import manifests
from tests.manifests.cluster import Cluster
from tests.manifests.refusals import BOUNDS, POOL_SPEC, RULES
from tests.manifests.samples import COLLECTIONS, SAMPLES, Object, changed

# Transition rules are tested with objects that exist, below.
TRANSITIONS = {
    "replicas cannot be added to or removed from an existing NodePool",
    "nodeClassRef.group is immutable",
    "nodeClassRef.kind is immutable",
    "spec is immutable",
}


def create(cluster: Cluster, value: Object, *, dry: bool = True) -> Object:
    query = "?fieldValidation=Strict" + ("&dryRun=All" if dry else "")
    return cluster.plane.api.create(COLLECTIONS[value["kind"]] + query, value)


@pytest.mark.parametrize(("kind", "path", "value", "words"), RULES + BOUNDS)
def test_a_wrong_object_is_refused_in_clear_words(
    cluster: Cluster, kind: str, path: str, value: Any, words: str
) -> None:
    with pytest.raises(ApiError) as refusal:
        create(cluster, changed(SAMPLES[kind](), path, value))
    assert words in str(refusal.value)


@pytest.mark.parametrize(("path", "value", "words"), [
    ("spec.replicas", 1, "replicas cannot be added to or removed from an existing NodePool"),
    (f"{POOL_SPEC}.nodeClassRef.group", "other", "nodeClassRef.group is immutable"),
    (f"{POOL_SPEC}.nodeClassRef.kind", "Other", "nodeClassRef.kind is immutable"),
])  # fmt: skip
def test_what_cannot_change_in_a_nodepool(cluster: Cluster, path: str, value: Any, words: str) -> None:
    pool = changed(SAMPLES["NodePool"](), "metadata.name", "fixed")
    cluster.objects.apply(pool)
    with pytest.raises(ApiError) as refusal:
        cluster.plane.api.patch(f"{COLLECTIONS['NodePool']}/fixed", changed(pool, path, value))
    assert words in str(refusal.value)


def test_a_claim_never_changes(cluster: Cluster) -> None:
    claim = changed(SAMPLES["NodeClaim"](), "metadata.name", "fixed")
    cluster.objects.apply(claim)
    with pytest.raises(ApiError, match="spec is immutable"):
        cluster.plane.api.patch(f"{COLLECTIONS['NodeClaim']}/fixed", {"spec": {"expireAfter": "1h"}})


def test_every_rule_has_a_case_here() -> None:
    tested = {words for *_, words in RULES} | TRANSITIONS
    untested = {
        message for message in _messages(list(manifests.definitions())) if not any(words in message for words in tested)
    }
    assert not untested


def _messages(schema: Any) -> set[str]:
    """The messages of every CEL rule anywhere inside."""
    if isinstance(schema, list):
        return set().union(*map(_messages, schema)) if schema else set()
    if not isinstance(schema, dict):
        return set()
    own = {validation["message"] for validation in schema.get("x-kubernetes-validations", ())}
    return own.union(*map(_messages, schema.values()))
