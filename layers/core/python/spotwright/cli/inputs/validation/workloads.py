"""Rules between the fields of workloads: selectors, restart policies, budgets.

Source: ``k8s.io/kubernetes/pkg/apis/{apps,batch,policy,scheduling}/validation``.
"""

from collections.abc import Mapping
from typing import Any, Final

from spotwright.cli.inputs.validation.fields import APPS, BATCH, CORE
from spotwright.cli.inputs.validation.pods import listed, mounts
from spotwright.cli.inputs.validation.problems import Kind, Path, Problem, Problems, missing
from spotwright.cli.inputs.validation.schema import Rule
from spotwright.model.quoting import quote

type Json = Mapping[str, Any]

_HIGHEST_PRIORITY: Final = 1_000_000_000
_SYSTEM: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
_LONGEST_CRON_JOB: Final = 52


def pod(value: Json, path: Path) -> Problems:
    yield from mounts(value.get("spec") or {}, (*path, "spec"))


def pod_template(value: Json, path: Path) -> Problems:
    yield from mounts((value.get("template") or {}).get("spec") or {}, (*path, "template", "spec"))


def controller_spec(value: Json, path: Path) -> Problems:
    """Of a Deployment, a ReplicaSet, a DaemonSet."""
    yield from _template(value, path)
    yield from _selector(value, path)


def deployment_spec(value: Json, path: Path) -> Problems:
    yield from controller_spec(value, path)
    deadline, ready = value.get("progressDeadlineSeconds"), value.get("minReadySeconds") or 0
    if deadline is not None and deadline <= ready:
        here = (*path, "progressDeadlineSeconds")
        yield Problem(Kind.VALUE, here, f"{deadline} is not more than minReadySeconds, {ready}")


def stateful_set_spec(value: Json, path: Path) -> Problems:
    claims = [str((claim.get("metadata") or {}).get("name")) for claim in listed(value, "volumeClaimTemplates")]
    yield from _template(value, path, claims)
    yield from _selector(value, path)


def replication_controller_spec(value: Json, path: Path) -> Problems:
    yield from _template(value, path)
    labels = _template_labels(value)
    selector = value.get("selector") or labels
    if not selector:
        yield missing((*path, "selector"), "it, or the labels of the template, is required")
    elif any(labels.get(key) != wanted for key, wanted in selector.items()):
        yield _no_match(path, selector, labels)


def job_spec(value: Json, path: Path) -> Problems:
    spec = (value.get("template") or {}).get("spec") or {}
    here = (*path, "template", "spec")
    yield from mounts(spec, here)
    policy = spec.get("restartPolicy")
    if policy in (None, ""):
        yield missing((*here, "restartPolicy"), "a Job needs OnFailure or Never")
    elif policy == "Always":
        yield Problem(Kind.VALUE, (*here, "restartPolicy"), "'Always' is not one of OnFailure, Never")
    if value.get("completionMode") == "Indexed" and value.get("completions") is None:
        yield missing((*path, "completions"), "completionMode Indexed needs it")


def _template(value: Json, path: Path, claims: list[str] | None = None) -> Problems:
    spec, here = (value.get("template") or {}).get("spec"), (*path, "template", "spec")
    if spec is None:
        return
    yield from mounts(spec, here, claims or ())
    policy = spec.get("restartPolicy") or "Always"
    if policy in ("OnFailure", "Never"):
        yield Problem(Kind.VALUE, (*here, "restartPolicy"), f"{quote(policy)} is not Always, the only one allowed here")
    if spec.get("activeDeadlineSeconds") is not None:
        yield Problem(Kind.VALUE, (*here, "activeDeadlineSeconds"), "is not allowed here: only Jobs and Pods have it")


def _selector(value: Json, path: Path) -> Problems:
    selector, labels = value.get("selector"), _template_labels(value)
    if selector is None:
        return
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        yield Problem(Kind.VALUE, (*path, "selector"), "is empty: it must select the template's labels")
    elif not _selects(selector, labels):
        yield _no_match(path, selector.get("matchLabels") or selector, labels)


def _template_labels(value: Json) -> Json:
    metadata: Json = (value.get("template") or {}).get("metadata") or {}
    labels: Json = metadata.get("labels") or {}
    return labels


def _no_match(path: Path, selector: Json, labels: Json) -> Problem:
    here = (*path, "template", "metadata", "labels")
    return Problem(Kind.VALUE, here, f"{quote(labels)} is not what spec.selector selects, {quote(selector)}")


def _selects(selector: Json, labels: Json) -> bool:
    for key, value in (selector.get("matchLabels") or {}).items():
        if labels.get(key) != value:
            return False
    for expression in listed(selector, "matchExpressions"):
        key, values = expression.get("key"), expression.get("values") or ()
        is_met = {
            "In": labels.get(key) in values,
            "NotIn": labels.get(key) not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not is_met.get(str(expression.get("operator")), True):
            return False
    return True


def strategy(value: Json, path: Path) -> Problems:
    """Of a Deployment's or a StatefulSet's update."""
    kind = value.get("type") or "RollingUpdate"
    if value.get("rollingUpdate") is not None and kind != "RollingUpdate":
        yield Problem(Kind.VALUE, (*path, "rollingUpdate"), f"is not allowed where type is {kind}")


def rolling_update(value: Json, path: Path) -> Problems:
    if all(value.get(name) in (0, "0%") for name in ("maxSurge", "maxUnavailable")):
        yield Problem(Kind.VALUE, (*path, "maxUnavailable"), "may not be 0 where maxSurge is 0")


def disruption_budget_spec(value: Json, path: Path) -> Problems:
    if value.get("minAvailable") is not None and value.get("maxUnavailable") is not None:
        yield Problem(Kind.VALUE, path, "minAvailable and maxUnavailable exclude each other")


def priority_class(value: Json, path: Path) -> Problems:
    name, priority = str((value.get("metadata") or {}).get("name") or ""), value.get("value")
    if not isinstance(priority, int):
        return
    if name.startswith("system-") and _SYSTEM.get(name) != priority:
        yield Problem(Kind.VALUE, ("metadata", "name"), f"{quote(name)}: names with system- are Kubernetes' own")
    elif not name.startswith("system-") and priority > _HIGHEST_PRIORITY:
        yield Problem(Kind.VALUE, (*path, "value"), f"{priority} is more than {_HIGHEST_PRIORITY}")


def cron_job(value: Json, path: Path) -> Problems:
    name = str((value.get("metadata") or {}).get("name") or "")
    if len(name) > _LONGEST_CRON_JOB:
        here = (*path, "metadata", "name")
        yield Problem(Kind.VALUE, here, f"has {len(name)} characters: a CronJob's may have {_LONGEST_CRON_JOB}")


def cron_job_spec(value: Json, path: Path) -> Problems:
    schedule = value.get("schedule") or ""
    if "TZ" in schedule:
        yield Problem(Kind.VALUE, (*path, "schedule"), f"{quote(schedule)}: a time zone belongs into spec.timeZone")
    elif schedule and not schedule.startswith("@") and len(schedule.split()) != 5:
        yield Problem(
            Kind.VALUE, (*path, "schedule"), f"{quote(schedule)} is not five cron fields, or a macro such as @daily"
        )


def service_spec(value: Json, path: Path) -> Problems:
    kind = value.get("type") or "ClusterIP"
    if kind == "ExternalName":
        if not value.get("externalName"):
            yield missing((*path, "externalName"), "type ExternalName needs it")
    elif not value.get("ports") and value.get("clusterIP") != "None":
        yield missing((*path, "ports"))
    if len(value.get("ports") or ()) > 1:
        for index, port in enumerate(listed(value, "ports")):
            if not port.get("name"):
                yield missing((*path, "ports", index, "name"), "a Service with several ports needs it")


def autoscaler_spec(value: Json, path: Path) -> Problems:
    least, most = value.get("minReplicas"), value.get("maxReplicas")
    if isinstance(least, int) and isinstance(most, int) and 1 <= most < least:
        yield Problem(Kind.VALUE, (*path, "maxReplicas"), f"{most} is less than minReplicas, {least}")


RULES: Final[dict[str, Rule]] = {
    f"{CORE}Pod": pod,
    f"{CORE}PodTemplate": pod_template,
    f"{CORE}ReplicationControllerSpec": replication_controller_spec,
    f"{CORE}ServiceSpec": service_spec,
    f"{APPS}DeploymentSpec": deployment_spec,
    f"{APPS}RollingUpdateDeployment": rolling_update,
    f"{APPS}ReplicaSetSpec": controller_spec,
    f"{APPS}DaemonSetSpec": controller_spec,
    f"{APPS}StatefulSetSpec": stateful_set_spec,
    f"{APPS}DeploymentStrategy": strategy,
    f"{APPS}StatefulSetUpdateStrategy": strategy,
    f"{BATCH}JobSpec": job_spec,
    f"{BATCH}CronJob": cron_job,
    f"{BATCH}CronJobSpec": cron_job_spec,
    "io.k8s.api.autoscaling.v1.HorizontalPodAutoscalerSpec": autoscaler_spec,
    "io.k8s.api.autoscaling.v2.HorizontalPodAutoscalerSpec": autoscaler_spec,
    "io.k8s.api.policy.v1.PodDisruptionBudgetSpec": disruption_budget_spec,
    "io.k8s.api.scheduling.v1.PriorityClass": priority_class,
}
