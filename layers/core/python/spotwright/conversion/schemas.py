"""What manifests before v1 may hold, in the words in which our own definitions are written.

Source: the CustomResourceDefinitions of Karpenter v0.31.4 (Provisioner, AWSNodeTemplate; the inline provider is the
Go struct ``AWS`` of ``pkg/apis/v1alpha1/provider.go``) and v0.37.8 (v1beta1). What their webhooks checked is in the
modules that convert.
"""

from collections.abc import Mapping
from typing import Final

from spotwright.manifests.ec2nodeclass import ec2_node_class
from spotwright.manifests.nodepool import node_pool
from spotwright.manifests.schema import Schema, choice, fields, flag, mapping, quantity, several, text, whole
from spotwright.manifests.shapes import DURATION_OR_NEVER, resource_list, taints

_FAMILIES: Final = ("AL2", "Bottlerocket", "Ubuntu", "Windows2019", "Windows2022", "Custom")
_TEXTS: Final = mapping("", text(""))


def provisioner() -> Schema:
    """``spec`` of a karpenter.sh/v1alpha5 Provisioner."""
    reference = {"name": text("", minLength=1), "kind": text(""), "apiVersion": text("")}
    return fields(
        "",
        {
            "annotations": _TEXTS,
            "consolidation": fields("", {"enabled": flag("")}),
            "kubeletConfiguration": _kubelet({"containerRuntime": text("")}),
            "labels": _TEXTS,
            "limits": fields("", {"resources": resource_list("")}),
            "provider": fields("", {"apiVersion": text(""), "kind": text("")} | _instance()),
            "providerRef": fields("", reference, required=["name"]),
            "requirements": _requirements({}),
            "startupTaints": taints(""),
            "taints": taints(""),
            "ttlSecondsAfterEmpty": whole("", 0),
            "ttlSecondsUntilExpired": whole("", 0),
            "weight": whole("", 1, 100),
        },
    )


def aws_node_template() -> Schema:
    """``spec`` of a karpenter.k8s.aws/v1alpha1 AWSNodeTemplate."""
    own = {"userData": text(""), "amiSelector": _TEXTS, "detailedMonitoring": flag("")}
    return fields("", {"apiVersion": text(""), "kind": text("")} | _instance() | own)


def node_pool_v1beta1() -> Schema:
    """``spec`` of a karpenter.sh/v1beta1 NodePool."""
    reference = {"name": text("", minLength=1), "kind": text(""), "apiVersion": text("")}
    template = {
        "kubelet": _kubelet({}),
        "nodeClassRef": fields("", reference, required=["name"]),
        "requirements": _requirements({"minValues": whole("", 1, 50)}),
        "resources": fields("", {"requests": resource_list("")}),
        "startupTaints": taints(""),
        "taints": taints(""),
    }
    budget = {"nodes": text(""), "schedule": text(""), "duration": text("")}
    disruption = {
        "budgets": several("", fields("", budget)),
        "consolidateAfter": text("", pattern=DURATION_OR_NEVER),
        "consolidationPolicy": choice("", "WhenEmpty", "WhenUnderutilized"),
        "expireAfter": text("", pattern=DURATION_OR_NEVER),
    }
    claims = {
        "metadata": fields("", {"labels": _TEXTS, "annotations": _TEXTS}),
        "spec": fields("", template, required=["nodeClassRef"]),
    }
    return fields(
        "",
        {
            "disruption": fields("", disruption),
            "limits": resource_list(""),
            "template": fields("", claims, required=["spec"]),
            "weight": whole("", 1, 100),
        },
        required=["template"],
    )


def ec2_node_class_v1beta1() -> Schema:
    """``spec`` of a karpenter.k8s.aws/v1beta1 EC2NodeClass."""
    term: dict[str, Schema] = {"tags": _TEXTS, "id": text("")}
    return fields(
        "",
        {
            "amiFamily": choice("", *_FAMILIES, "AL2023"),
            "amiSelectorTerms": several("", fields("", term | {"name": text(""), "owner": text("")})),
            "associatePublicIPAddress": flag(""),
            "blockDeviceMappings": _block_devices({"rootVolume": flag("")}),
            "context": text(""),
            "detailedMonitoring": flag(""),
            "instanceProfile": text(""),
            "instanceStorePolicy": choice("", "RAID0"),
            "metadataOptions": _metadata_options(),
            "role": text(""),
            "securityGroupSelectorTerms": several("", fields("", term | {"name": text("")})),
            "subnetSelectorTerms": several("", fields("", term)),
            "tags": _TEXTS,
            "userData": text(""),
        },
        required=["amiFamily", "securityGroupSelectorTerms", "subnetSelectorTerms"],
    )


def v1(kind: str) -> Schema:
    """``spec`` of a v1 NodePool or EC2NodeClass, as our definitions have it."""
    definition = {"NodePool": node_pool, "EC2NodeClass": ec2_node_class}[kind]()
    spec: Schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def _instance() -> dict[str, Schema]:
    return {
        "amiFamily": choice("", *_FAMILIES),
        "blockDeviceMappings": _block_devices({}),
        "context": text(""),
        "instanceProfile": text("", minLength=1),
        "launchTemplate": text("", minLength=1),
        "metadataOptions": _metadata_options(),
        "securityGroupSelector": _TEXTS,
        "subnetSelector": _TEXTS,
        "tags": _TEXTS,
    }


def _requirements(more: Mapping[str, Schema]) -> Schema:
    item: dict[str, Schema] = {
        "key": text(""),
        "operator": choice("", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
        "values": several("", text("")),
    }
    return several("", fields("", item | dict(more), required=["key", "operator"]))


def _kubelet(more: Mapping[str, Schema]) -> Schema:
    known = {
        "clusterDNS": several("", text("")),
        "cpuCFSQuota": flag(""),
        "evictionHard": _TEXTS,
        "evictionMaxPodGracePeriod": whole("", -(2**31), 2**31 - 1),
        "evictionSoft": _TEXTS,
        "evictionSoftGracePeriod": _TEXTS,
        "imageGCHighThresholdPercent": whole("", 0, 100),
        "imageGCLowThresholdPercent": whole("", 0, 100),
        "kubeReserved": resource_list(""),
        "maxPods": whole("", 0, 2**31 - 1),
        "podsPerCore": whole("", 0, 2**31 - 1),
        "systemReserved": resource_list(""),
    }
    return fields("", known | dict(more))


def _metadata_options() -> Schema:
    return fields(
        "",
        {
            "httpEndpoint": choice("", "enabled", "disabled"),
            "httpProtocolIPv6": choice("", "enabled", "disabled"),
            "httpPutResponseHopLimit": whole("", 1, 64),
            "httpTokens": choice("", "required", "optional"),
        },
    )


def _block_devices(more: Mapping[str, Schema]) -> Schema:
    ebs = {
        "deleteOnTermination": flag(""),
        "encrypted": flag(""),
        "iops": whole("", 0),
        "kmsKeyID": text(""),
        "snapshotID": text(""),
        "throughput": whole("", 0),
        "volumeSize": quantity(""),
        "volumeType": choice("", "standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"),
    }
    return several("", fields("", {"deviceName": text(""), "ebs": fields("", ebs)} | dict(more)))
