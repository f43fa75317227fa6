"""The forwarder's pods that were admitted too early to have AWS credentials, and make room for others.

EKS tells a pod of its Pod Identity when it is admitted, by variables of its containers, and an association takes effect
some seconds after it was made: a pod that is admitted before never has credentials.
Source: https://docs.aws.amazon.com/eks/latest/userguide/pod-id-association.html
"""

import logging
from functools import partial
from typing import Final

from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.install.patience import RETRY_SECONDS, retry
from spotwright.workflows.ports.installation import DeadlinePort, Document, ObjectPort

# Associations take effect within seconds; the rest is for the Deployment's controller.
CREDENTIALS_SECONDS: Final = 60.0
# What gives a pod credentials: Pod Identity, IAM roles for service accounts, or whoever keeps the account.
_VARIABLES: Final = frozenset(
    {"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ACCESS_KEY_ID"}
)
_NAMESPACE: Final = "kube-system"
_SELECTOR: Final = "app.kubernetes.io/name=spotwright-forwarder"

log = logging.getLogger("spotwright.install")


def await_credentials(objects: ObjectPort, cluster: str, deadline: DeadlinePort) -> bool:
    """Delete pods that have no credentials until there is a pod that has. False: none has after a minute.

    A pod need not run for it: in a cluster without nodes it is admitted, too.
    """
    begin = deadline.remaining_seconds()
    while True:
        pods = retry(partial(objects.list, "v1", "Pod", _NAMESPACE, _SELECTOR), deadline)
        living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
        early = [pod for pod in living if not _has_credentials(pod)]
        if living and not early:
            return True
        for pod in early:
            _delete(objects, cluster, pod, deadline)
        waited = begin - deadline.remaining_seconds()
        if waited >= CREDENTIALS_SECONDS or deadline.remaining_seconds() <= RETRY_SECONDS:
            log_line(log, log_lines.FORWARDER_LEFT_WITHOUT_CREDENTIALS, cluster=cluster, waited_seconds=round(waited))
            return False
        deadline.pause(RETRY_SECONDS)


def _has_credentials(pod: Document) -> bool:
    containers = (pod.get("spec") or {}).get("containers") or ()
    return any(variable["name"] in _VARIABLES for container in containers for variable in container.get("env") or ())


def _delete(objects: ObjectPort, cluster: str, pod: Document, deadline: DeadlinePort) -> None:
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    metadata = {"name": name, "namespace": _NAMESPACE, "uid": uid}
    retry(partial(objects.delete, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}), deadline)
    log_line(log, log_lines.FORWARDER_ADMITTED_EARLY, cluster=cluster, pod=name)
