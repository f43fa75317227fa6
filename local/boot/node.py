"""Node objects: as a kubelet registers itself, and what the cloud node controller adds to it."""

from typing import Any

from local.boot.join_check import Instance, JoiningNode
from local.kubernetes.versions import kubernetes_version

UNINITIALIZED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
ARCHITECTURES = {"x86_64": "amd64", "arm64": "arm64"}
PRESSURES = (
    ("MemoryPressure", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
)
OS_IMAGES = {"AL2": "Amazon Linux 2", "AL2023": "Amazon Linux 2023", "Bottlerocket": "Bottlerocket OS"}
WINDOWS_BUILDS = {"Windows2019": "10.0.17763", "Windows2022": "10.0.20348", "Windows2025": "10.0.26100"}
NETWORK_NOT_READY = "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady"
SHUTTING_DOWN = "node is shutting down"


def provider_id(instance: Instance) -> str:
    """How Kubernetes names the instance."""
    return f"aws:///{instance.zone}/{instance.id}"


def node_registration(joining_node: JoiningNode, now: str) -> dict[str, Any]:
    """The Node as the kubelet creates it: NotReady, and tainted until the cloud controller has seen it."""
    instance = joining_node.instance
    architecture = ARCHITECTURES[instance.image_architecture]
    own = {
        "kubernetes.io/hostname": instance.private_dns_name,
        "kubernetes.io/arch": architecture,
        "kubernetes.io/os": instance.os,
        "beta.kubernetes.io/arch": architecture,
        "beta.kubernetes.io/os": instance.os,
    }
    if instance.ami_family in WINDOWS_BUILDS:
        own["node.kubernetes.io/windows-build"] = WINDOWS_BUILDS[instance.ami_family]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": instance.private_dns_name, "labels": {**joining_node.settings.labels, **own}},
        "spec": {
            "providerID": provider_id(instance),
            "taints": [*joining_node.settings.taints, UNINITIALIZED],
        },
        "status": node_status(joining_node, architecture, now),
    }


def node_status(joining_node: JoiningNode, architecture: str, now: str) -> dict[str, Any]:
    """The status a kubelet posts while its network is not up yet."""
    instance = joining_node.instance
    return {
        "capacity": joining_node.capacity.quantities(),
        "allocatable": joining_node.allocatable.quantities(),
        "addresses": [
            {"type": "InternalIP", "address": instance.private_ip},
            {"type": "InternalDNS", "address": instance.private_dns_name},
            {"type": "Hostname", "address": instance.private_dns_name},
        ],
        "conditions": [
            *(node_condition(kind, "False", reason, text, now) for kind, reason, text in PRESSURES),
            node_condition("Ready", "False", "KubeletNotReady", NETWORK_NOT_READY, now),
        ],
        "nodeInfo": {
            "architecture": architecture,
            "bootID": instance.id,
            "containerRuntimeVersion": "containerd://2.1.5",
            "kernelVersion": "6.12.53-69.119.amzn2023",
            "kubeProxyVersion": "",
            "kubeletVersion": f"v{kubernetes_version()}",
            "machineID": instance.id.removeprefix("i-"),
            "operatingSystem": instance.os,
            "osImage": OS_IMAGES.get(instance.ami_family, "Windows Server"),
            "systemUUID": instance.id.removeprefix("i-"),
        },
    }


def node_condition(kind: str, value: str, reason: str, text: str, now: str) -> dict[str, str]:
    """A node condition that changed and was seen `now` (RFC 3339)."""
    return {
        "type": kind,
        "status": value,
        "reason": reason,
        "message": text,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
    }


def cloud_labels(instance: Instance) -> dict[str, str]:
    """What the cloud node controller puts on a Node when it initializes it."""
    return {
        "node.kubernetes.io/instance-type": instance.type,
        "beta.kubernetes.io/instance-type": instance.type,
        "topology.kubernetes.io/zone": instance.zone,
        "topology.kubernetes.io/region": instance.region,
        "failure-domain.beta.kubernetes.io/zone": instance.zone,
        "failure-domain.beta.kubernetes.io/region": instance.region,
        "topology.k8s.aws/zone-id": instance.zone_id,
    }
