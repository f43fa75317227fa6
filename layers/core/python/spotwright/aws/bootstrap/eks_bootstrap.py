"""User data of the families that run a script with kubelet flags: AL2 (bootstrap.sh) and Windows (PowerShell).

Source: https://github.com/awslabs/amazon-eks-ami/blob/main/templates/al2/runtime/bootstrap.sh (its arguments take no
equal sign) and https://docs.aws.amazon.com/eks/latest/userguide/eks-optimized-windows-ami.html.
"""

import ipaddress
from collections.abc import Iterator, Mapping
from typing import Final

from spotwright.aws.bootstrap import mime
from spotwright.aws.bootstrap.options import (
    BootstrapOptions,
    cluster_dns,
    kubelet_configuration,
    node_labels_flag,
    registration_taints,
)
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.karpenter.nodeclass import EC2NodeClass

# Kubelet flags and their settings, in the order in which the script has them.
_NUMBERS: Final = (("--max-pods", "maxPods"), ("--pods-per-core", "podsPerCore"))
_AMOUNTS: Final = (("--system-reserved", "systemReserved"), ("--kube-reserved", "kubeReserved"))
_THRESHOLDS: Final = (("--eviction-hard", "evictionHard"), ("--eviction-soft", "evictionSoft"))
_LIMITS: Final = (
    ("--eviction-max-pod-grace-period", "evictionMaxPodGracePeriod"),
    ("--image-gc-high-threshold", "imageGCHighThresholdPercent"),
    ("--image-gc-low-threshold", "imageGCLowThresholdPercent"),
)


def al2_user_data(nodeclass: EC2NodeClass, cluster: ClusterFacts, options: BootstrapOptions) -> str:
    """A MIME archive: the parts of ``spec.userData``, then the script that joins the cluster. Raises MimeError."""
    own = nodeclass.user_data
    entries: tuple[mime.Part, ...] = ()
    if own.strip():
        parsed = mime.is_archive(own)
        entries = mime.parse(own) if parsed else (mime.part(mime.SHELL_SCRIPT, own.replace("\r", "").rstrip("\n")),)
    generated = mime.part(mime.SHELL_SCRIPT, "\n".join(_bootstrap_script(nodeclass, cluster, options)))
    return mime.compose((*entries, generated))


def _bootstrap_script(nodeclass: EC2NodeClass, cluster: ClusterFacts, options: BootstrapOptions) -> Iterator[str]:
    config = kubelet_configuration(nodeclass.kubelet, cluster, options)
    yield "#!/bin/bash -xe"
    yield "exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1"
    arguments = [
        f"/etc/eks/bootstrap.sh {_quote_shell(cluster.name)} --apiserver-endpoint {_quote_shell(cluster.endpoint)}"
        f" --b64-cluster-ca {_quote_shell(cluster.certificate_authority)}"
    ]
    dns = cluster_dns(config)
    if dns and not _is_ipv4(dns[0]):
        arguments.append("--ip-family ipv6")
    if dns:
        arguments.append(f"--dns-cluster-ip {_quote_shell(dns[0])}")
    arguments.append("--use-max-pods false")
    arguments.append(f"--kubelet-extra-args {_quote_shell(' '.join(kubelet_flags(config, options)))}")
    if nodeclass.instance_store_policy == "RAID0":
        arguments.append("--local-disks raid0")
    yield " \\\n".join(arguments)


def _is_ipv4(address: str) -> bool:
    """Whether the text is an IPv4 address. As in Karpenter all else is IPv6; the kubelet refuses what is neither."""
    try:
        return ipaddress.ip_address(address).version == 4
    except ValueError:
        return False


def windows_user_data(nodeclass: EC2NodeClass, cluster: ClusterFacts, options: BootstrapOptions) -> str:
    """A PowerShell block: the lines of ``spec.userData``, then the call that joins the cluster."""
    config = kubelet_configuration(nodeclass.kubelet, cluster, options)
    own = [nodeclass.user_data] if nodeclass.user_data else []
    dns = cluster_dns(config)
    call = (
        f"& $EKSBootstrapScriptFile -EKSClusterName {_quote_powershell(cluster.name)}"
        f" -APIServerEndpoint {_quote_powershell(cluster.endpoint)}"
        f" -Base64ClusterCA {_quote_powershell(cluster.certificate_authority)}"
        f" -KubeletExtraArgs {_quote_powershell(' '.join(kubelet_flags(config, options)))}"
    ) + (f" -DNSClusterIP {_quote_powershell(dns[0])}" if dns else "")
    script = r'[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"'
    return "\n".join(["<powershell>", *own, script, call, "</powershell>"])


def kubelet_flags(config: Mapping[str, object], options: BootstrapOptions) -> tuple[str, ...]:
    """The kubelet's flags for these settings, in a fixed order; settings without a flag are left out."""
    return tuple(_flags(config, options))


def _flags(config: Mapping[str, object], options: BootstrapOptions) -> Iterator[str]:
    labels = node_labels_flag(options.labels)
    if labels:
        yield f'--node-labels="{labels}"'
    taints = registration_taints(options.taints)
    yield '--register-with-taints="' + ",".join(f"{taint.key}={taint.value}:{taint.effect}" for taint in taints) + '"'
    for flag, key in _NUMBERS:
        if config.get(key) is not None:
            yield f"{flag}={config[key]}"
    yield from _amount_flags(config, _AMOUNTS, "=")
    yield from _amount_flags(config, _THRESHOLDS, "<")
    yield from _amount_flags(config, (("--eviction-soft-grace-period", "evictionSoftGracePeriod"),), "=")
    for flag, key in _LIMITS:
        if config.get(key) is not None:
            yield f"{flag}={config[key]}"
    if config.get("cpuCFSQuota") is not None:
        yield f"--cpu-cfs-quota={str(config['cpuCFSQuota']).lower()}"


def _amount_flags(config: Mapping[str, object], flags: tuple[tuple[str, str], ...], sign: str) -> Iterator[str]:
    for flag, key in flags:
        amounts = config.get(key)
        if isinstance(amounts, Mapping) and amounts:
            yield f'{flag}="' + ",".join(f"{name}{sign}{amounts[name]}" for name in sorted(amounts)) + '"'


def _quote_shell(text: str) -> str:
    """One word of a POSIX shell."""
    return "'" + text.replace("'", "'\"'\"'") + "'"


def _quote_powershell(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
