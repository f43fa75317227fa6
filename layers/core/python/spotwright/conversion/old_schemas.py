"""Schemas of manifests before v1, written with the functions of the CRDs.

Source: the CustomResourceDefinitions of Karpenter v0.31.4 (Provisioner, AWSNodeTemplate; the inline provider is the
Go struct ``AWS`` of ``pkg/apis/v1alpha1/provider.go``) and v0.37.8 (v1beta1). The modules that convert have the checks
of their webhooks.
"""

from collections.abc import Mapping
from typing import Final

from spotwright.manifests.crds.ec2nodeclass.definition import ec2_nodeclass
from spotwright.manifests.crds.nodepool import nodepool
from spotwright.manifests.crds.openapi import (
    Schema,
    array,
    boolean,
    enum,
    integer,
    map_of,
    object_with,
    quantity,
    string,
)
from spotwright.manifests.crds.shared_fields import DURATION_OR_NEVER, resource_list, taints

_FAMILIES: Final = ("AL2", "Bottlerocket", "Ubuntu", "Windows2019", "Windows2022", "Custom")
_TEXTS: Final = map_of("", string(""))


def provisioner() -> Schema:
    """``spec`` of a karpenter.sh/v1alpha5 Provisioner."""
    reference = {"name": string("", minLength=1), "kind": string(""), "apiVersion": string("")}
    return object_with(
        "",
        {
            "annotations": _TEXTS,
            "consolidation": object_with("", {"enabled": boolean("")}),
            "kubeletConfiguration": _kubelet({"containerRuntime": string("")}),
            "labels": _TEXTS,
            "limits": object_with("", {"resources": resource_list("")}),
            "provider": object_with("", {"apiVersion": string(""), "kind": string("")} | _instance()),
            "providerRef": object_with("", reference, required=["name"]),
            "requirements": _requirements({}),
            "startupTaints": taints(""),
            "taints": taints(""),
            "ttlSecondsAfterEmpty": integer("", 0),
            "ttlSecondsUntilExpired": integer("", 0),
            "weight": integer("", 1, 100),
        },
    )


def aws_node_template() -> Schema:
    """``spec`` of a karpenter.k8s.aws/v1alpha1 AWSNodeTemplate."""
    fields = {"userData": string(""), "amiSelector": _TEXTS, "detailedMonitoring": boolean("")}
    return object_with("", {"apiVersion": string(""), "kind": string("")} | _instance() | fields)


def nodepool_v1beta1() -> Schema:
    """``spec`` of a karpenter.sh/v1beta1 NodePool."""
    reference = {"name": string("", minLength=1), "kind": string(""), "apiVersion": string("")}
    template = {
        "kubelet": _kubelet({}),
        "nodeClassRef": object_with("", reference, required=["name"]),
        "requirements": _requirements({"minValues": integer("", 1, 50)}),
        "resources": object_with("", {"requests": resource_list("")}),
        "startupTaints": taints(""),
        "taints": taints(""),
    }
    budget = {"nodes": string(""), "schedule": string(""), "duration": string("")}
    disruption = {
        "budgets": array("", object_with("", budget)),
        "consolidateAfter": string("", pattern=DURATION_OR_NEVER),
        "consolidationPolicy": enum("", "WhenEmpty", "WhenUnderutilized"),
        "expireAfter": string("", pattern=DURATION_OR_NEVER),
    }
    claims = {
        "metadata": object_with("", {"labels": _TEXTS, "annotations": _TEXTS}),
        "spec": object_with("", template, required=["nodeClassRef"]),
    }
    return object_with(
        "",
        {
            "disruption": object_with("", disruption),
            "limits": resource_list(""),
            "template": object_with("", claims, required=["spec"]),
            "weight": integer("", 1, 100),
        },
        required=["template"],
    )


def ec2_nodeclass_v1beta1() -> Schema:
    """``spec`` of a karpenter.k8s.aws/v1beta1 EC2NodeClass."""
    term: dict[str, Schema] = {"tags": _TEXTS, "id": string("")}
    return object_with(
        "",
        {
            "amiFamily": enum("", *_FAMILIES, "AL2023"),
            "amiSelectorTerms": array("", object_with("", term | {"name": string(""), "owner": string("")})),
            "associatePublicIPAddress": boolean(""),
            "blockDeviceMappings": _block_devices({"rootVolume": boolean("")}),
            "context": string(""),
            "detailedMonitoring": boolean(""),
            "instanceProfile": string(""),
            "instanceStorePolicy": enum("", "RAID0"),
            "metadataOptions": _metadata_options(),
            "role": string(""),
            "securityGroupSelectorTerms": array("", object_with("", term | {"name": string("")})),
            "subnetSelectorTerms": array("", object_with("", term)),
            "tags": _TEXTS,
            "userData": string(""),
        },
        required=["amiFamily", "securityGroupSelectorTerms", "subnetSelectorTerms"],
    )


def v1(kind: str) -> Schema:
    """``spec`` of a v1 NodePool or EC2NodeClass in Spotwright's CRDs."""
    definition = {"NodePool": nodepool, "EC2NodeClass": ec2_nodeclass}[kind]()
    spec: Schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return spec


def _instance() -> dict[str, Schema]:
    return {
        "amiFamily": enum("", *_FAMILIES),
        "blockDeviceMappings": _block_devices({}),
        "context": string(""),
        "instanceProfile": string("", minLength=1),
        "launchTemplate": string("", minLength=1),
        "metadataOptions": _metadata_options(),
        "securityGroupSelector": _TEXTS,
        "subnetSelector": _TEXTS,
        "tags": _TEXTS,
    }


def _requirements(more: Mapping[str, Schema]) -> Schema:
    item: dict[str, Schema] = {
        "key": string(""),
        "operator": enum("", "In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"),
        "values": array("", string("")),
    }
    return array("", object_with("", item | dict(more), required=["key", "operator"]))


def _kubelet(more: Mapping[str, Schema]) -> Schema:
    fields = {
        "clusterDNS": array("", string("")),
        "cpuCFSQuota": boolean(""),
        "evictionHard": _TEXTS,
        "evictionMaxPodGracePeriod": integer("", -(2**31), 2**31 - 1),
        "evictionSoft": _TEXTS,
        "evictionSoftGracePeriod": _TEXTS,
        "imageGCHighThresholdPercent": integer("", 0, 100),
        "imageGCLowThresholdPercent": integer("", 0, 100),
        "kubeReserved": resource_list(""),
        "maxPods": integer("", 0, 2**31 - 1),
        "podsPerCore": integer("", 0, 2**31 - 1),
        "systemReserved": resource_list(""),
    }
    return object_with("", fields | dict(more))


def _metadata_options() -> Schema:
    return object_with(
        "",
        {
            "httpEndpoint": enum("", "enabled", "disabled"),
            "httpProtocolIPv6": enum("", "enabled", "disabled"),
            "httpPutResponseHopLimit": integer("", 1, 64),
            "httpTokens": enum("", "required", "optional"),
        },
    )


def _block_devices(more: Mapping[str, Schema]) -> Schema:
    ebs = {
        "deleteOnTermination": boolean(""),
        "encrypted": boolean(""),
        "iops": integer("", 0),
        "kmsKeyID": string(""),
        "snapshotID": string(""),
        "throughput": integer("", 0),
        "volumeSize": quantity(""),
        "volumeType": enum("", "standard", "io1", "io2", "gp2", "sc1", "st1", "gp3"),
    }
    return array("", object_with("", {"deviceName": string(""), "ebs": object_with("", ebs)} | dict(more)))
