"""Which API a kind belongs to, and which kinds of others own pods."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any, Final

from spotwright.cli.inputs.validation.kubernetes import kubernetes_schema
from spotwright.cli.inputs.validation.problems import Kind, Problem, missing, nearest
from spotwright.conversion import CLAIM_KINDS, CONVERTED_KINDS
from spotwright.model.quoting import quote

type Json = Mapping[str, Any]

KARPENTER: Final[dict[str, tuple[str, ...]]] = {
    "karpenter.sh/v1": ("NodePool", "NodeClaim"),
    "karpenter.sh/v1alpha1": ("NodeOverlay",),
    "karpenter.k8s.aws/v1": ("EC2NodeClass",),
    "autoscaling.x-k8s.io/v1beta1": ("CapacityBuffer",),
    "autoscaling.x-k8s.io/v1alpha1": ("CapacityBuffer",),
}
# Groups that Kubernetes had; what they held is in other groups now.
_REMOVED_GROUPS: Final = ("extensions",)
# Group → kinds whose pods the planner cannot see in the manifest; () = all kinds of the group.
_POD_OWNERS: Final[dict[str, tuple[str, ...]]] = {
    "actions.github.com": ("AutoscalingRunnerSet",),
    "apps.kruise.io": (),
    "argoproj.io": ("CronWorkflow", "EventBus", "EventSource", "Rollout", "Sensor", "Workflow"),
    "batch.volcano.sh": ("Job",),
    "flink.apache.org": (),
    "jobset.x-k8s.io": ("JobSet",),
    "kafka.strimzi.io": ("Kafka", "KafkaConnect", "KafkaNodePool"),
    "keda.sh": ("ScaledJob",),
    "kubeflow.org": (),
    "leaderworkerset.x-k8s.io": ("LeaderWorkerSet",),
    "monitoring.coreos.com": ("Alertmanager", "Prometheus", "ThanosRuler"),
    "postgresql.cnpg.io": ("Cluster",),
    "ray.io": (),
    "serving.knative.dev": ("Service",),
    "serving.kserve.io": ("InferenceService",),
    "sparkoperator.k8s.io": (),
    "tekton.dev": ("PipelineRun", "TaskRun"),
}
# Groups of policies, which hold patterns of pods and make none.
_POLICIES: Final = ("constraints.gatekeeper.sh", "kyverno.io", "mutations.gatekeeper.sh", "policies.kyverno.io")


class Api(StrEnum):
    """Who says what an object may hold. BEFORE_V1: Karpenter, in a version that is converted. OTHER: nobody here."""

    KUBERNETES = "kubernetes"
    KARPENTER = "karpenter"
    BEFORE_V1 = "before v1"
    OTHER = "other"


def api_of(content: Json) -> Api | Problem:
    """The API of an object, or why no API server knows it."""
    version, kind = content.get("apiVersion"), str(content["kind"])
    if version is None or version == "":
        where = versions_of(kind)
        return missing(("apiVersion",), f"{kind} is in {where[0]}" if where else "it is required")
    if not isinstance(version, str):
        return Problem(Kind.TYPE, ("apiVersion",), f"{quote(version)} is not text")
    if kind in kubernetes_schema().kinds.get(version, ()):
        return Api.KUBERNETES
    if kind in KARPENTER.get(version, ()):
        return Api.KARPENTER
    if CONVERTED_KINDS.get(kind) == version or (kind, version) in CLAIM_KINDS:
        return Api.BEFORE_V1
    return _unknown(version, kind) if is_known_group(version) else Api.OTHER


def owns_pods(content: Json) -> bool:
    """Whether an object of a kind that is not known makes pods: by its kind, or by what it holds, as operators do it: a
    pod template, requests of cpu or memory, or replicas that each request something, such as storage.
    """
    group, spec = str(content.get("apiVersion")).partition("/")[0], content.get("spec")
    kinds = _POD_OWNERS.get(group)
    if kinds is not None:
        return not kinds or content["kind"] in kinds or _holds(spec, _has_containers)
    if group in _POLICIES:
        return False
    has_replicas = isinstance(spec, Mapping) and isinstance(spec.get("replicas"), int)
    return _holds(spec, _describes_pods) or (has_replicas and _holds(spec, _requests))


def _holds(value: Any, test: Callable[[Json], object], depth: int = 0) -> bool:
    """Whether a map at any depth passes the test."""
    if depth > _DEEPEST_TEMPLATE:
        return False
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
    if isinstance(value, Mapping) and test(value):
        return True
    return any(_holds(item, test, depth + 1) for item in inner)


def _describes_pods(value: Json) -> bool:
    return "podTemplate" in value or _has_containers(value) or not _requests(value).isdisjoint(("cpu", "memory"))


def _has_containers(value: Json) -> bool:
    containers = value.get("containers")
    return isinstance(containers, list) and any(isinstance(item, Mapping) and "image" in item for item in containers)


def _requests(value: Json) -> frozenset[str]:
    """The resources that a map's ``requests`` name."""
    requests = value.get("requests")
    return frozenset(map(str, requests)) if isinstance(requests, Mapping) else frozenset()


_DEEPEST_TEMPLATE: Final = 12


def is_known_group(version: str) -> bool:
    """Whether an ``apiVersion`` is of a group of Kubernetes' own or of Karpenter."""
    group = version.rpartition("/")[0]
    groups = {known.rpartition("/")[0] for known in (*kubernetes_schema().kinds, *KARPENTER)}
    return group in groups or group in _REMOVED_GROUPS


def _unknown(version: str, kind: str) -> Problem:
    known = (*kubernetes_schema().kinds.get(version, ()), *KARPENTER.get(version, ()))
    elsewhere = versions_of(kind)
    if elsewhere:
        return Problem(Kind.VALUE, ("apiVersion",), f"{quote(version)} has no {kind}: it is in {elsewhere[0]}")
    if known:
        similar = _similar_kind(kind, known)
        others = f"; there {'is' if len(known) == 1 else 'are'} {', '.join(sorted(known))}"
        hint = f", did you mean {similar}?" if similar else others
        return Problem(Kind.VALUE, ("kind",), f"{quote(kind)} is no kind of {version}{hint}")
    return Problem(Kind.VALUE, ("apiVersion",), f"{quote(version)} is not served by Kubernetes {_version()}")


def _similar_kind(kind: str, known: tuple[str, ...]) -> str:
    if len(known) == 1 and known[0].lower().endswith(kind.lower()):
        return known[0]
    return nearest(kind, known)


def versions_of(kind: str) -> list[str]:
    """The versions that have a kind, Kubernetes' own first."""
    kubernetes = [version for version, kinds in kubernetes_schema().kinds.items() if kind in kinds]
    return [*sorted(kubernetes, reverse=True), *(version for version, kinds in KARPENTER.items() if kind in kinds)]


def _version() -> str:
    return kubernetes_schema().version
