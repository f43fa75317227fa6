"""User data of every family is read by the agent that boots instances locally, which shares no code with it."""

import base64
import tomllib
from typing import Any

import pytest

from local.boot.capacity import InstanceType
from local.boot.join_check import Cluster, Instance, JoiningNode, check_join
from spotwright.aws.bootstrap import user_data
from spotwright.aws.bootstrap.options import BootstrapOptions
from spotwright.aws.refusal import Refusal
from spotwright.model.karpenter.nodeclass import SelectorTerm
from spotwright.model.kubernetes.taints import Taint
from tests.unit.aws.samples import FACTS, nodeclass

AUTHORITY = base64.b64decode(FACTS.certificate_authority)
CLUSTER = Cluster(FACTS.name, FACTS.endpoint, AUTHORITY, FACTS.service_cidr, FACTS.vpc_id)
MACHINE = InstanceType(vcpus=4, memory_mib=16384, architectures=("x86_64",), local_storage_gb=900, eni_max_pods=58)
GPU, START = Taint("gpu", "NoSchedule", "yes"), Taint("starting", "NoExecute")
LABELS = {"team": "a", "karpenter.sh/nodepool": "default", "kubernetes.io/os": "linux", "x.k8s.io/y": "z"}
BOOT = BootstrapOptions(LABELS | {"karpenter.sh/do-not-sync-taints": "true"}, (GPU, START), 42)
KUBELET: dict[str, Any] = {
    "kubeReserved": {"cpu": "200m", "memory": "1Gi"},
    "systemReserved": {"cpu": "100m"},
    "evictionHard": {"memory.available": "7%", "nodefs.available": "5%"},
    "evictionSoft": {"memory.available": "9%"},
    "evictionSoftGracePeriod": {"memory.available": "2m"},
    "evictionMaxPodGracePeriod": 60,
    "imageGCHighThresholdPercent": 80,
    "imageGCLowThresholdPercent": 60,
    "cpuCFSQuota": False,
}
FAMILIES = ("AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025")


def text(family: str, boot: BootstrapOptions = BOOT, **changes: Any) -> str:
    rendered = user_data.render(family, nodeclass(**changes), FACTS, boot)
    assert isinstance(rendered, str), rendered
    return rendered


def joined(family: str, user_data: str) -> JoiningNode:
    instance = Instance(
        id="i-1", state="running", launch_time=0.0, type="m5d.xlarge", zone="z", zone_id="az", region="r",
        private_ip="10.0.0.1", private_dns_name="ip", user_data=base64.b64encode(user_data.encode()).decode(),
        role_name="nodes", image_architecture="x86_64", vpc_id=FACTS.vpc_id, volume_gib=50, ami_family=family,
    )  # fmt: skip
    entry = "EC2_WINDOWS" if family.startswith("Windows") else "EC2_LINUX"
    check = check_join(instance, CLUSTER, {"nodes": entry}, MACHINE)
    assert isinstance(check, JoiningNode), check
    return check


@pytest.mark.parametrize("family", FAMILIES)
def test_a_node_of_every_family_joins_with_what_it_was_told(family: str) -> None:
    settings = joined(family, text(family, kubelet=KUBELET)).settings
    assert settings.labels == {
        "team": "a",
        "karpenter.sh/nodepool": "default",
        "karpenter.sh/do-not-sync-taints": "true",
    }
    assert {(taint["key"], taint.get("value", ""), taint["effect"]) for taint in settings.taints} == {
        ("gpu", "yes", "NoSchedule"), ("starting", "", "NoExecute"), ("karpenter.sh/unregistered", "", "NoExecute"),
    }  # fmt: skip
    assert settings.max_pods == 42
    assert settings.kube_reserved == {"cpu": 200, "memory": 2**30}
    assert settings.system_reserved == {"cpu": 100}
    assert settings.eviction_hard == KUBELET["evictionHard"]


OWN = {
    "AL2": "#!/bin/bash\necho hello",
    "AL2023": "#!/bin/bash\necho hello",
    "Bottlerocket": '[settings.motd]\nx = "hello"',
    "Windows2022": 'Write-Host "hello"',
}


@pytest.mark.parametrize("family", OWN)
def test_the_users_part_comes_along_and_the_node_still_joins(family: str) -> None:
    rendered = text(family, user_data=OWN[family])
    assert "hello" in rendered
    assert joined(family, rendered).settings.max_pods == 42
    if family != "Bottlerocket":
        assert rendered.index("hello") < rendered.index(FACTS.endpoint)


@pytest.mark.parametrize("family", ["AL2", "AL2023", "Bottlerocket"])
def test_local_disks_hold_the_pods_when_the_class_says_so(family: str) -> None:
    without = joined(family, text(family)).capacity.ephemeral_bytes
    with_disks = joined(family, text(family, instance_store_policy="RAID0")).capacity.ephemeral_bytes
    assert (without, with_disks) == (int(50 * 2**30 * 0.996), int(900 * 10**9 * 0.996))


def test_al2_keeps_the_parts_of_an_archive_without_carriage_returns() -> None:
    own = 'MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="X"\r\n\r\n--X\r\nContent-Type: text/x-shellscript\r\n\r\n#!/bin/sh\r\necho 1\r\n--X--\r\n'  # noqa: E501
    rendered = text("AL2", user_data=own)
    assert "\r" not in rendered
    assert 'boundary="//"' in rendered
    assert joined("AL2", rendered).settings.max_pods == 42


def test_al2_passes_its_arguments_without_an_equal_sign() -> None:
    rendered = text("AL2")
    for argument in (f"--dns-cluster-ip '{FACTS.dns_ip}'", "--use-max-pods false", "--max-pods=42"):
        assert argument in rendered
    assert "karpenter.sh/unregistered=:NoExecute" in rendered


@pytest.mark.parametrize(
    ("address", "is_ipv6"), [("10.100.0.10", False), ("fd00::a", True), ("dns.example", True), ("", True)]
)
def test_al2_is_told_the_family_of_the_dns_server_whatever_the_class_states(address: str, is_ipv6: bool) -> None:
    assert ("--ip-family ipv6" in text("AL2", kubelet={"clusterDNS": [address]})) == is_ipv6


@pytest.mark.parametrize("family", ["AL2", "Windows2022", "Bottlerocket"])
def test_settings_a_family_has_no_word_for_are_left_out(family: str) -> None:
    assert "topologyManagerPolicy" not in text(family, kubelet={"topologyManagerPolicy": "restricted"})
    passed = text("AL2023", kubelet={"topologyManagerPolicy": "restricted", "serializeImagePulls": False})
    assert '"topologyManagerPolicy": "restricted"' in passed
    assert '"serializeImagePulls": false' in passed


def bottlerocket(**changes: Any) -> dict[str, Any]:
    settings: dict[str, Any] = tomllib.loads(text("Bottlerocket", **changes))["settings"]
    return settings


def test_bottlerocket_settings_of_the_user_merge_under_ours() -> None:
    own = """
    [settings.kubernetes]
    cluster-name = "theirs"
    max-pods = 5
    event-qps = 7
    no-such-setting = true
    node-labels = { team = "b", mine = "1" }
    node-taints = { theirs = ["x:NoSchedule"] }
    [settings.host-containers.admin]
    enabled = true
    """
    settings = bottlerocket(user_data=own)
    kubernetes = settings["kubernetes"]
    assert (kubernetes["cluster-name"], kubernetes["max-pods"], kubernetes["event-qps"]) == (FACTS.name, 42, 7)
    assert "no-such-setting" not in kubernetes
    assert (kubernetes["node-labels"]["team"], kubernetes["node-labels"]["mine"]) == ("a", "1")
    assert kubernetes["node-taints"] == {
        "gpu": ["yes:NoSchedule"], "starting": [":NoExecute"], "karpenter.sh/unregistered": [":NoExecute"],
    }  # fmt: skip
    assert settings["host-containers"] == {"admin": {"enabled": True}}


@pytest.mark.parametrize(
    ("alias", "folders"),
    [
        ("bottlerocket@v1.45.0", ["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]),
        ("bottlerocket@v1.46.0", []),
        ("bottlerocket@1.58.0", []),
        ("bottlerocket@latest", []),
        ("", ["--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]),
    ],
)
def test_bottlerocket_mounts_local_disks_beside_the_users_commands(alias: str, folders: list[str]) -> None:
    own = '[settings.bootstrap-commands.111-say-hello]\ncommands = [["echo"]]\nmode = "always"\nessential = false'
    term = SelectorTerm(alias=alias) if alias else SelectorTerm(id="ami-1")
    settings = bottlerocket(user_data=own, instance_store_policy="RAID0", ami_selector_terms=(term,))
    commands = settings["bootstrap-commands"]
    assert sorted(commands) == ["000-mount-instance-storage", "111-say-hello"]
    mount = commands["000-mount-instance-storage"]
    assert mount["commands"][0] == ["apiclient", "ephemeral-storage", "init"]
    assert mount["commands"][1] == ["apiclient", "ephemeral-storage", "bind", *folders]
    assert (mount["essential"], mount["mode"]) == (True, "always")


@pytest.mark.parametrize("own", ["not toml", "settings = 3", "[settings]\nkubernetes = []"])
def test_bottlerocket_settings_that_cannot_be_read_are_refused(own: str) -> None:
    rendered = user_data.render("Bottlerocket", nodeclass(user_data=own), FACTS, BOOT)
    assert isinstance(rendered, Refusal)
    assert (rendered.reason, "spec.userData" in rendered.message) == ("InvalidUserData", True)


def test_quotes_in_settings_do_not_end_a_script() -> None:
    kubelet = {"systemReserved": {"cpu": "100m'; reboot; '"}}
    assert "reboot" in text("AL2", kubelet=kubelet)
    words = text("AL2", kubelet=kubelet)
    assert "'\"'\"'; reboot; '\"'\"'" in words
    assert "''; reboot; ''" in text("Windows2022", kubelet=kubelet)


def test_a_yaml_map_is_a_node_config_and_a_script_is_not() -> None:
    own = "# mine\nkind: NodeConfig\napiVersion: node.eks.aws/v1alpha1"
    assert text("AL2023", user_data=own).count("application/node.eks.aws") == 2
    assert text("AL2023", user_data="#!/bin/bash\necho a: b").count("application/node.eks.aws") == 1
