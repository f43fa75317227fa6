"""User data of AL2023: a MIME archive of NodeConfigs and scripts, read by nodeadm and cloud-init.

The user's entries come first and the generated NodeConfig last, so that it wins where both speak (nodeadm merges
them in order). Source: https://awslabs.github.io/amazon-eks-ami/nodeadm/doc/api/.
"""

from typing import Any

import msgspec

from spotwright.aws.bootstrap import mime
from spotwright.aws.bootstrap.options import (
    BootstrapOptions,
    kubelet_configuration,
    node_labels_flag,
    registration_taints,
)
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.karpenter.nodeclass import EC2NodeClass


def al2023_user_data(nodeclass: EC2NodeClass, cluster: ClusterFacts, options: BootstrapOptions) -> str:
    """A MIME archive: the entries of ``spec.userData``, then the NodeConfig. Raises MimeError."""
    generated = mime.part(mime.NODE_CONFIG, node_config(nodeclass, cluster, options))
    return mime.compose((*_user_entries(nodeclass.user_data), generated))


def _user_entries(text: str) -> tuple[mime.Part, ...]:
    """The entries of ``spec.userData``: of a MIME archive its own; a YAML map is a NodeConfig, other text a script."""
    if not text.strip():
        return ()
    if mime.is_archive(text):
        return mime.parse(text)
    kind = mime.NODE_CONFIG if _is_yaml_map(text) else mime.SHELL_SCRIPT
    return (mime.part(kind, text.rstrip("\n")),)


def _is_yaml_map(text: str) -> bool:
    """Text with an interpreter line (``#!``) is a script, even where YAML would read it as a comment and a map."""
    if text.lstrip().startswith("#!"):
        return False
    # Most classes have no user data, and importing yaml takes a tenth of a cold start.
    import yaml

    try:
        return isinstance(yaml.safe_load(text), dict)
    except yaml.YAMLError:
        return False


def node_config(nodeclass: EC2NodeClass, cluster: ClusterFacts, options: BootstrapOptions) -> str:
    """The NodeConfig document as JSON, which is YAML too and has no quoting rules."""
    instance: dict[str, Any] = {}
    if nodeclass.instance_store_policy == "RAID0":
        instance = {"localStorage": {"strategy": "RAID0"}}
    document = {
        "apiVersion": "node.eks.aws/v1alpha1",
        "kind": "NodeConfig",
        "spec": {
            "cluster": {
                "apiServerEndpoint": cluster.endpoint,
                "certificateAuthority": cluster.certificate_authority,
                "cidr": cluster.service_cidr,
                "name": cluster.name,
            },
            "instance": instance,
            "kubelet": {
                "config": _kubelet_config(nodeclass, cluster, options),
                "flags": [f'--node-labels="{node_labels_flag(options.labels)}"'],
            },
        },
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _kubelet_config(nodeclass: EC2NodeClass, cluster: ClusterFacts, options: BootstrapOptions) -> dict[str, object]:
    taints = [
        {"key": taint.key, "effect": taint.effect} | ({"value": taint.value} if taint.value else {})
        for taint in registration_taints(options.taints)
    ]
    return dict(
        sorted((kubelet_configuration(nodeclass.kubelet, cluster, options) | {"registerWithTaints": taints}).items())
    )
