"""What runs in a cluster that the preflight and the installation look at: add-ons, and other provisioners."""

from typing import Any, Final, Protocol

from spotwright.workflows.install.preflight.facts import Workloads
from spotwright.workflows.ports.installation import Document

_SYSTEM_NAMESPACE: Final = "kube-system"
# In-tree volumes of EBS are served by the driver, too.
_EBS_DRIVER: Final = "ebs.csi.aws.com"
_EBS_PROVISIONERS: Final = frozenset({_EBS_DRIVER, "kubernetes.io/aws-ebs"})
_FORWARDER: Final = "spotwright-forwarder"
# The forwarder's environment names its cell.
_CELL: Final = "SPOTWRIGHT_CELL"


class _Lists(Protocol):
    def list(self, api_version: str, kind: str, /) -> list[dict[str, Any]]: ...


def read_workloads(objects: _Lists) -> Workloads:
    """Raises ApiError."""
    deployments = objects.list("apps/v1", "Deployment")
    daemon_sets = objects.list("apps/v1", "DaemonSet")
    system = [
        workload["metadata"]["name"]
        for workload in (*deployments, *daemon_sets)
        if workload["metadata"].get("namespace") == _SYSTEM_NAMESPACE
    ]
    return Workloads(
        frozenset(system),
        tuple(_name(deployment) for deployment in deployments if _runs(deployment, "karpenter")),
        tuple(_name(deployment) for deployment in deployments if _runs(deployment, "cluster-autoscaler")),
        next((cell_of(live) for live in deployments if _name(live) == f"{_SYSTEM_NAMESPACE}/{_FORWARDER}"), ""),
    )


def unserved_volume(objects: _Lists) -> str:
    """NAMESPACE/NAME of a PersistentVolumeClaim of EBS in a cluster without EBS's driver; "" = there is none.

    Raises ApiError.
    """
    if any(driver["metadata"]["name"] == _EBS_DRIVER for driver in objects.list("storage.k8s.io/v1", "CSIDriver")):
        return ""
    classes = objects.list("storage.k8s.io/v1", "StorageClass")
    of_ebs: set[str | None] = {
        found["metadata"]["name"] for found in classes if found.get("provisioner") in _EBS_PROVISIONERS
    }
    # A claim that names no class is of the default one.
    of_ebs |= {None for found in classes if found["metadata"]["name"] in of_ebs and _is_default(found)}
    claims = objects.list("v1", "PersistentVolumeClaim") if of_ebs else []
    return next((_name(claim) for claim in claims if claim["spec"].get("storageClassName") in of_ebs), "")


def _is_default(storage_class: Document) -> bool:
    annotations = storage_class["metadata"].get("annotations") or {}
    return annotations.get("storageclass.kubernetes.io/is-default-class") == "true"


def cell_of(deployment: Document | None) -> str:
    """The cell that a forwarder is of, as its environment says; "" = it does not say."""
    template = (deployment or {}).get("spec", {}).get("template", {}).get("spec", {})
    variables = [variable for container in template.get("containers", ()) for variable in container.get("env") or ()]
    return next((str(variable.get("value", "")) for variable in variables if variable["name"] == _CELL), "")


def _runs(deployment: Document, application: str) -> bool:
    """Whether replicas of this application are wanted: by the label that charts set, or by the image."""
    spec = deployment.get("spec") or {}
    if spec.get("replicas") == 0:
        return False
    labels = deployment["metadata"].get("labels") or {}
    named = {labels.get("app.kubernetes.io/name", ""), labels.get("k8s-app", ""), deployment["metadata"]["name"]}
    return any(name == application or name.startswith(f"aws-{application}") for name in named) or any(
        application in _repository(container.get("image", ""))
        for container in ((spec.get("template") or {}).get("spec") or {}).get("containers") or ()
    )


def _repository(image: str) -> list[str]:
    """The parts of an image's repository: ``public.ecr.aws/karpenter/controller:1.6`` has karpenter and controller."""
    path = image.partition("@")[0]
    head, _, last = path.rpartition("/")
    return [*head.split("/")[1:], last.partition(":")[0]]


def _name(deployment: Document) -> str:
    return f"{deployment['metadata'].get('namespace', 'default')}/{deployment['metadata']['name']}"
