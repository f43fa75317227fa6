"""What Spotwright installs into a cluster, as Kubernetes objects, in order: CRDs, RBAC, flow control, forwarder."""

import copy
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from spotwright.manifests.crds.ec2nodeclass.definition import ec2_nodeclass
from spotwright.manifests.crds.nodeclaim import nodeclaim
from spotwright.manifests.crds.nodeoverlay import nodeoverlay
from spotwright.manifests.crds.nodepool import nodepool

type Document = dict[str, Any]

METRICS_PORT = 8080
_LABELS = {"app.kubernetes.io/part-of": "spotwright", "app.kubernetes.io/managed-by": "spotwright-install"}


def definitions() -> tuple[Document, ...]:
    """The CustomResourceDefinitions of NodePool, NodeClaim, NodeOverlay and EC2NodeClass."""
    return tuple(_add_labels(schema) for schema in (nodepool(), nodeclaim(), nodeoverlay(), ec2_nodeclass()))


def rbac() -> tuple[Document, ...]:
    """Roles, bindings and the forwarder's service account."""
    return _read("rbac.yaml")


def flow_control() -> tuple[Document, ...]:
    """The priority level of the functions' and the forwarder's requests to the API server, and what it is for."""
    return _read("flow_control.yaml")


def forwarder(image: str, environment: Mapping[str, str], architecture: str = "") -> tuple[Document, ...]:
    """The forwarder's Deployment with this image; ``environment`` may override ``METRICS_PORT``.

    ``architecture``: of the nodes that the image is for, as the label kubernetes.io/arch has it; "" = all.
    """
    (deployment,) = _read("forwarder.yaml")
    values = {"METRICS_PORT": str(METRICS_PORT), **environment}
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    container["image"] = image
    container["env"] += [{"name": name, "value": value} for name, value in sorted(values.items())]
    container["ports"][0]["containerPort"] = int(values["METRICS_PORT"])
    if architecture:
        deployment["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/arch"] = architecture
    return (deployment,)


def digest() -> str:
    """A digest of everything that is installed, without the forwarder's image and environment."""
    everything = [*definitions(), *rbac(), *flow_control(), *forwarder("", {})]
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()


def _read(name: str) -> tuple[Document, ...]:
    import yaml  # Slow to import; definitions need none.

    content = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return tuple(_add_labels(document) for document in yaml.safe_load_all(content))


def _add_labels(document: Document) -> Document:
    labelled = copy.deepcopy(document)
    labelled["metadata"].setdefault("labels", {}).update(_LABELS)
    return labelled
