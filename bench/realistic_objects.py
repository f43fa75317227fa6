"""Pods and Nodes as an API server lists them, with all that controllers and kubelets write: some 10 and 14 KB each."""

import uuid
from typing import Any, Final

type Object = dict[str, Any]

PODS_PER_DEPLOYMENT: Final = 40
PODS_PER_NODE: Final = 10
SETTINGS_PER_CONTAINER: Final = 10
IMAGES_PER_NODE: Final = 50
_CREATED: Final = "2026-01-01T00:00:00Z"
_REGISTRY: Final = "123456789012.dkr.ecr.us-east-1.amazonaws.com"


def listed_pod(number: int) -> Object:
    """A running replica of two containers; every 40 pods are of one Deployment."""
    deployment = f"checkout-recommendation-{number // PODS_PER_DEPLOYMENT}"
    replica_set = f"{deployment}-7d9f8b6c5d"
    name, uid, owner = f"{replica_set}-{number:05x}", _uid("pod", number), _uid(deployment, 0)
    return {
        "metadata": {
            "name": name,
            "generateName": f"{replica_set}-",
            "namespace": f"team-{number // PODS_PER_DEPLOYMENT % 20}",
            "uid": uid,
            "resourceVersion": str(10**8 + number),
            "generation": 1,
            "creationTimestamp": _CREATED,
            "labels": {"app": deployment, "pod-template-hash": "7d9f8b6c5d", "team": "payments", "version": "v1"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080", "checksum/config": owner},
            "ownerReferences": [
                {
                    "apiVersion": "apps/v1",
                    "kind": "ReplicaSet",
                    "name": replica_set,
                    "uid": owner,
                    "controller": True,
                    "blockOwnerDeletion": True,
                }
            ],
            "managedFields": [_managed_fields("kube-controller-manager", owner), _managed_fields("kubelet", owner)],
        },
        "spec": _pod_spec(deployment, number),
        "status": _pod_status(number),
    }


def listed_node(number: int) -> Object:
    """A Ready node of an EKS cluster."""
    name = _node_name(number)
    amounts = {"cpu": "7910m", "memory": "30525108Ki", "pods": "58", "ephemeral-storage": "18242267924"}
    return {
        "metadata": {
            "name": name,
            "uid": _uid("node", number),
            "resourceVersion": str(10**8 + number),
            "creationTimestamp": _CREATED,
            "labels": {f"label.example.com/number-{key}": f"value-{key}" for key in range(25)}
            | {"kubernetes.io/hostname": name, "karpenter.sh/nodepool": "default"},
            "annotations": {f"annotation.example.com/{key}": "x" * 30 for key in range(6)},
            "finalizers": ["karpenter.sh/termination"],
            "managedFields": [_managed_fields("kubelet", name)],
        },
        "spec": {"providerID": f"aws:///us-east-1a/i-{number:017x}", "podCIDR": "10.0.0.0/24"},
        "status": {
            "allocatable": amounts,
            "capacity": amounts | {"cpu": "8", "memory": "31999988Ki"},
            "conditions": [
                {
                    "type": kind,
                    "status": str(kind == "Ready"),
                    "reason": f"KubeletHas{kind}",
                    "message": f"kubelet says {kind}",
                    "lastHeartbeatTime": f"2026-01-01T00:{number % 60:02}:00Z",
                    "lastTransitionTime": _CREATED,
                }
                for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
            ],
            "images": [
                {
                    "names": [f"{_REGISTRY}/app-{image}@sha256:{_digest(image)}", f"{_REGISTRY}/app-{image}:v1"],
                    "sizeBytes": 10**8 + image,
                }
                for image in range(IMAGES_PER_NODE)
            ],
            "nodeInfo": {"kubeletVersion": "v1.35.4", "architecture": "amd64", "operatingSystem": "linux"},
        },
    }


def _pod_spec(deployment: str, number: int) -> Object:
    return {
        "volumes": [{"name": f"kube-api-access-{number:05x}", "projected": {"sources": [], "defaultMode": 420}}],
        "containers": [_container("app", deployment, number), _container("proxy", deployment, number)],
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": 30,
        "dnsPolicy": "ClusterFirst",
        "serviceAccountName": "default",
        "nodeName": _node_name(number // PODS_PER_NODE),
        "schedulerName": "default-scheduler",
        "tolerations": [
            {"key": f"node.kubernetes.io/{key}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            for key in ("not-ready", "unreachable")
        ],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": {"app": deployment}},
            }
        ],
        "priority": 0,
        "preemptionPolicy": "PreemptLowerPriority",
    }


def _container(name: str, deployment: str, number: int) -> Object:
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10}
    return {
        "name": name,
        "image": f"{_REGISTRY}/{deployment}-{name}:v1.2.3",
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [
            {"name": f"SETTING_NUMBER_{key}", "value": f"value-of-setting-{key}-for-app"}
            for key in range(SETTINGS_PER_CONTAINER)
        ],
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "512Mi"}},
        "volumeMounts": [{"name": f"kube-api-access-{number:05x}", "mountPath": "/var/run/secrets/kubernetes.io"}],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "securityContext": {"runAsNonRoot": True, "capabilities": {"drop": ["ALL"]}},
    }


def _pod_status(number: int) -> Object:
    resources = {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"memory": "512Mi"}}
    return {
        "phase": "Running",
        "conditions": [
            {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": _CREATED}
            for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "podIP": f"10.1.{number // 250 % 250}.{number % 250}",
        "startTime": f"2026-01-01T00:{number // 60 % 60:02}:{number % 60:02}Z",
        "qosClass": "Burstable",
        "containerStatuses": [
            {
                "name": name,
                "state": {"running": {"startedAt": _CREATED}},
                "ready": True,
                "restartCount": 0,
                "imageID": f"{_REGISTRY}/app@sha256:{_digest(number)}",
                "containerID": f"containerd://{_digest(number)}",
                "allocatedResources": resources["requests"],
                "resources": resources,
            }
            for name in ("app", "proxy")
        ],
    }


def _managed_fields(manager: str, owner: str) -> Object:
    settings: Object = {
        f'k:{{"name":"SETTING_NUMBER_{key}"}}': {".": {}, "f:name": {}, "f:value": {}}
        for key in range(SETTINGS_PER_CONTAINER)
    }
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": _CREATED,
        "fieldsType": "FieldsV1",
        "fieldsV1": {
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}, "f:ownerReferences": {f'k:{{"uid":"{owner}"}}': {}}},
            "f:spec": {"f:containers": {'k:{"name":"app"}': {"f:env": settings, "f:image": {}, "f:resources": {}}}},
        },
    }


def _node_name(number: int) -> str:
    return f"ip-10-0-{number // 250}-{number % 250}.ec2.internal"


def _uid(kind: str, number: int) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{kind}-{number}"))


def _digest(number: int) -> str:
    return uuid.uuid5(uuid.NAMESPACE_OID, str(number)).hex * 2
