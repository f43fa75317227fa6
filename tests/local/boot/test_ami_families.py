"""Each operating system reads user data in its own format; a node joins only if it is right."""

import base64
from typing import Any

import pytest

from local.boot.join_check import JoiningNode, JoinRefusal, check_join
from tests.local.boot.conftest import AUTHORITY, CLUSTER, INSTANCE_TYPE, ROLE, instance, mime

CA = base64.b64encode(AUTHORITY).decode()
AL2 = f"""#!/bin/bash -xe
/etc/eks/bootstrap.sh 'dev' --apiserver-endpoint 'https://127.0.0.1:6443' --b64-cluster-ca '{CA}' \\
--dns-cluster-ip '172.20.0.10' \\
--use-max-pods false \\
--kubelet-extra-args '--node-labels="team=a" --register-with-taints="spot=only:NoSchedule,a=:NoExecute" --max-pods=29 \
--kube-reserved="cpu=100m" --eviction-hard="memory.available<5%"'
"""
BOTTLEROCKET = f"""
[settings.kubernetes]
api-server = "https://127.0.0.1:6443"
cluster-certificate = "{CA}"
cluster-name = "dev"
cluster-dns-ip = "172.20.0.10"
max-pods = 29
node-labels = {{ team = "a" }}
kube-reserved = {{ cpu = "100m" }}
eviction-hard = {{ "memory.available" = "5%" }}
[settings.kubernetes.node-taints]
spot = ["only:NoSchedule"]
a = [":NoExecute"]
"""
WINDOWS = f"""<powershell>
[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\\Amazon\\EKS\\Start-EKSBootstrap.ps1"
& $EKSBootstrapScriptFile -EKSClusterName 'dev' -APIServerEndpoint 'https://127.0.0.1:6443' -Base64ClusterCA '{CA}' \
-KubeletExtraArgs '--node-labels="team=a" --register-with-taints="spot=only:NoSchedule,a=:NoExecute" --max-pods=29 \
--kube-reserved="cpu=100m" --eviction-hard="memory.available<5%"' -DNSClusterIP '172.20.0.10'
</powershell>"""


def encoded(ami_family: str, text: str) -> str:
    return mime(("text/x-shellscript", text)) if ami_family == "AL2" else base64.b64encode(text.encode()).decode()


def boot(ami_family: str, text: str, **changes: Any) -> JoiningNode | JoinRefusal:
    entries = {ROLE: "EC2_WINDOWS" if ami_family.startswith("Windows") else "EC2_LINUX"}
    return check_join(
        instance(user_data=encoded(ami_family, text), ami_family=ami_family, **changes), CLUSTER, entries, INSTANCE_TYPE
    )


RIGHT = {"AL2": AL2, "Bottlerocket": BOTTLEROCKET, "Windows2022": WINDOWS}


@pytest.mark.parametrize("ami_family", RIGHT)
def test_right_user_data_joins(ami_family: str) -> None:
    found = boot(ami_family, RIGHT[ami_family])
    assert isinstance(found, JoiningNode), found
    assert found.settings.labels == {"team": "a"}
    assert found.settings.taints == (
        {"key": "spot", "effect": "NoSchedule", "value": "only"},
        {"key": "a", "effect": "NoExecute"},
    )
    assert (found.settings.max_pods, found.settings.kube_reserved["cpu"]) == (29, 100)
    assert found.settings.eviction_hard == {"memory.available": "5%"}


WRONG = [
    ("AL2", "'dev'", "'other'", "ClusterName"),
    ("AL2", "#!/bin/bash -xe", "echo", "NoInterpreter"),
    ("AL2", "--dns-cluster-ip '172.20.0.10'", "--dns-cluster-ip '172.20.0.11'", "ClusterDns"),
    ("AL2", "--dns-cluster-ip '", "--dns-cluster-ip='", "BootstrapArguments"),
    ("AL2", "/etc/eks/bootstrap.sh", "/etc/eks/bootstrap", "NoBootstrap"),
    ("AL2", "--max-pods=29", "--max-pods=many", "KubeletConfiguration"),
    ("AL2", '--node-labels="team=a"', '--node-labels="kubernetes.io/role=a"', "NodeLabels"),
    ("AL2", "cpu=100m", "cpu:100m", "KubeletFlags"),
    ("Bottlerocket", 'cluster-name = "dev"', 'cluster-name = "other"', "ClusterName"),
    ("Bottlerocket", "max-pods = 29", 'max-pods = "29"', "SettingsInvalid"),
    ("Bottlerocket", "max-pods = 29", "maximum-pods = 29", "SettingsUnknown"),
    ("Bottlerocket", "[settings.kubernetes]", "[settings.kubernetes", "SettingsUnreadable"),
    ("Bottlerocket", f'cluster-certificate = "{CA}"', "", "SettingsMissing"),
    ("Bottlerocket", '["only:NoSchedule"]', '["only:Never"]', "Taints"),
    ("Bottlerocket", '["only:NoSchedule"]', '"only:NoSchedule"', "SettingsInvalid"),
    ("Windows2022", "-EKSClusterName 'dev'", "-EKSClusterName 'other'", "ClusterName"),
    ("Windows2022", "<powershell>", "<script>", "NoPowerShell"),
    ("Windows2022", "& $EKSBootstrapScriptFile", "$EKSBootstrapScriptFile", "NoBootstrap"),
    ("Windows2022", "127.0.0.1:6443", "127.0.0.1:6444", "Endpoint"),
]


@pytest.mark.parametrize(("ami_family", "right", "wrong", "code"), WRONG, ids=lambda one: str(one)[:20])
def test_a_wrong_byte_keeps_the_node_out(ami_family: str, right: str, wrong: str, code: str) -> None:
    assert right in RIGHT[ami_family]
    found = boot(ami_family, RIGHT[ami_family].replace(right, wrong))
    assert isinstance(found, JoinRefusal)
    assert found.code == code


@pytest.mark.parametrize("ami_family", RIGHT)
def test_one_format_is_not_read_as_another(ami_family: str) -> None:
    for other in RIGHT:
        if other != ami_family:
            assert isinstance(boot(ami_family, RIGHT[other]), JoinRefusal)


def test_a_windows_node_needs_an_entry_for_windows() -> None:
    one = instance(user_data=encoded("Windows2022", WINDOWS), ami_family="Windows2022")
    found = check_join(one, CLUSTER, {ROLE: "EC2_LINUX"}, INSTANCE_TYPE)
    assert isinstance(found, JoinRefusal)
    assert found.code == "AccessEntry"
    assert "EC2_WINDOWS" in found.reason
