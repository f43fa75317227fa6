"""NodeClaims of single instances that threads ask for at the same moment are one list of the API server."""

import re
from collections.abc import Iterator, Mapping
from threading import Event
from typing import Any, cast

import pytest

from spotwright.adapters.kubernetes.cluster import KubernetesCluster
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.errors import Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.workflows.parallel import in_parallel

CLASS = NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default")
INSTANCES = [f"i-{number:02}" for number in range(10)]
# By instance; by mistake there are two of one.
NAMES = {instance: [f"claim-{instance}"] for instance in INSTANCES[:8]} | {"i-08": ["a", "b"]}


class Lists:
    """An API server whose first answer waits until it may come."""

    def __init__(self, *, fails: bool = False) -> None:
        self.asked: list[dict[str, str]] = []
        self.may_answer, self._fails = Event(), fails

    def items(self, path: str, decoder: object, query: Mapping[str, str] | None = None) -> Iterator[NodeClaim]:
        assert path.endswith("/nodeclaims")
        assert query is not None
        self.asked.append(dict(query))
        if len(self.asked) == 1:
            assert self.may_answer.wait(60)
        if self._fails:
            raise Unavailable("no answer")
        selected = re.fullmatch(rf"{re.escape(labels.INSTANCE_ID)} in \((.*)\)", query["labelSelector"])
        assert selected is not None
        for instance in selected[1].split(","):
            for name in NAMES.get(instance, ()):
                yield NodeClaim(ObjectMeta(name, labels={labels.INSTANCE_ID: instance}), CLASS)


def ask(lists: Lists, instances: list[str]) -> list[Any]:
    """Each in a thread of its own, all of them before the first one is answered; a failure is an answer."""
    cluster = KubernetesCluster("dev", cast("Transport", lists))
    waiting = iter(range(len(instances)))

    def of(instance: str) -> Any:
        if next(waiting) == len(instances) - 1:
            lists.may_answer.set()
        try:
            return cluster.nodeclaims_of_instances([instance], cached=True)
        except Unavailable as failure:
            return failure

    return in_parallel(of, instances)


def test_each_has_its_own_by_few_lists() -> None:
    lists = Lists()
    answers = ask(lists, INSTANCES)
    assert [[claim.name for claim in found] for found in answers] == [NAMES.get(id, []) for id in INSTANCES]
    assert 2 <= len(lists.asked) <= 3
    assert {query["resourceVersion"] for query in lists.asked} == {"0"}


def test_a_failure_is_that_of_all_who_asked() -> None:
    answers = ask(Lists(fails=True), INSTANCES)
    assert {type(answer) for answer in answers} == {Unavailable}


@pytest.mark.parametrize("cached", [False, True])
def test_several_instances_are_a_list_of_their_own(cached: bool) -> None:
    lists = Lists()
    lists.may_answer.set()
    found = KubernetesCluster("dev", cast("Transport", lists)).nodeclaims_of_instances(INSTANCES, cached=cached)
    assert sorted(claim.name for claim in found) == sorted(name for names in NAMES.values() for name in names)
    assert [query.get("resourceVersion") for query in lists.asked] == ["0" if cached else None]
