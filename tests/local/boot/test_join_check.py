"""One wrong byte, and the node does not join."""

import base64
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from local.boot.join_check import JoiningNode, JoinRefusal
from tests.local.boot.conftest import AUTHORITY, mime, node_config, user_data

type Verdict = Callable[..., JoiningNode | JoinRefusal]


def changed(path: str, value: Any) -> dict[str, Any]:
    """The right NodeConfig with `value` at spec.PATH; None takes the field away."""
    document = node_config()
    *parents, last = path.split(".")
    place = document["spec"]
    for key in parents:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return document


def refusal(found: JoiningNode | JoinRefusal) -> str:
    assert isinstance(found, JoinRefusal), f"joined: {found}"
    assert found.reason
    return found.code


def test_right_user_data_joins_with_its_labels_and_taints(verdict: Verdict) -> None:
    """The other tests change one thing of this."""
    found = verdict()
    assert isinstance(found, JoiningNode), found
    assert found.settings.labels == {"karpenter.sh/nodepool": "default", "node-group-type": "spot"}
    assert found.settings.taints == (
        {"key": "spot", "value": "only", "effect": "NoSchedule"},
        {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
    )


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("cluster.name", "dew", "ClusterName"),
        ("cluster.name", None, "NodeConfigInvalid"),
        ("cluster.name", 7, "NodeConfigInvalid"),
        ("cluster.apiServerEndpoint", "https://127.0.0.1:6444", "Endpoint"),
        ("cluster.apiServerEndpoint", "http://127.0.0.1:6443", "Endpoint"),
        ("cluster.apiServerEndpoint", None, "NodeConfigInvalid"),
        (
            "cluster.certificateAuthority",
            base64.b64encode(AUTHORITY.replace(b"W", b"V")).decode(),
            "Authority",
        ),
        ("cluster.certificateAuthority", AUTHORITY.decode(), "AuthorityNotBase64"),
        ("cluster.certificateAuthority", None, "NodeConfigInvalid"),
        ("cluster.cidr", "172.20.0.0/15", "Cidr"),
        ("cluster.cidr", None, "NodeConfigInvalid"),
        ("kubelet.config", [], "NodeConfigInvalid"),
        ("kubelet.config", {"clusterDNS": ["172.20.0.11"]}, "ClusterDns"),
        ("kubelet.config", {"maxPods": "many"}, "KubeletConfiguration"),
        ("kubelet.config", {"kubeReserved": {"cpu": "70mm"}}, "KubeletConfiguration"),
        ("kubelet.config", {"evictionHard": {"memory.available": "100Mo"}}, "KubeletConfiguration"),
    ],
)
def test_a_wrong_field_keeps_the_node_out(verdict: Verdict, path: str, value: Any, code: str) -> None:
    assert refusal(verdict(changed(path, value))) == code


@pytest.mark.parametrize(
    "taints",
    [
        [{"key": "spot", "value": "only", "effect": "NoShedule"}],
        [{"key": "spot", "value": "only"}],
        [{"value": "only", "effect": "NoSchedule"}],
        [{"key": "spot only", "effect": "NoSchedule"}],
        [{"key": "spot", "value": "on/ly", "effect": "NoSchedule"}],
        [{"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule", "value": "b"}],
        ["spot=only:NoSchedule"],
        {"key": "spot", "effect": "NoSchedule"},
        [{"key": "spot", "value": True, "effect": "NoSchedule"}],
    ],
)
def test_broken_taints_keep_the_kubelet_from_starting(verdict: Verdict, taints: Any) -> None:
    assert refusal(verdict(changed("kubelet.config", {"registerWithTaints": taints}))) == "Taints"


@pytest.mark.parametrize(
    ("flag", "code"),
    [
        ("--node-labels=team", "NodeLabels"),
        ("--node-labels=team=a b", "KubeletFlags"),
        ("--node-labels=te am=a", "KubeletFlags"),
        ("--node-labels=-team=a", "NodeLabels"),
        ("--node-labels=Upper.Case/team=a", "NodeLabels"),
        ("--node-labels=team=" + "a" * 64, "NodeLabels"),
        ("--node-labels=kubernetes.io/team=a", "NodeLabels"),
        ("--node-labels=node-role.kubernetes.io/worker=", "NodeLabels"),
        ("--node-labels=x.k8s.io/team=a", "NodeLabels"),
        ('--node-labels="team=a', "KubeletFlags"),
        ("node-labels=team=a", "KubeletFlags"),
    ],
)
def test_broken_flags_keep_the_kubelet_from_starting(verdict: Verdict, flag: str, code: str) -> None:
    assert refusal(verdict(changed("kubelet.flags", [flag]))) == code


@pytest.mark.parametrize(
    "label", ["node.kubernetes.io/a=b", "kubernetes.io/arch=amd64", "x.node.kubernetes.io/a=b", "notk8s.io/a=b"]
)
def test_labels_that_a_kubelet_may_give_itself(verdict: Verdict, label: str) -> None:
    assert isinstance(verdict(changed("kubelet.flags", [f"--node-labels={label}"])), JoiningNode)


def test_taints_may_come_by_flag(verdict: Verdict) -> None:
    document = changed("kubelet.flags", ["--register-with-taints=a=b:NoSchedule,c:NoExecute"])
    document["spec"]["kubelet"]["config"] = {}
    found = verdict(document)
    assert isinstance(found, JoiningNode)
    assert found.settings.taints == (
        {"key": "a", "value": "b", "effect": "NoSchedule"},
        {"key": "c", "effect": "NoExecute"},
    )


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ("", "NoUserData"),
        ("not base64!", "UserDataNotBase64"),
        (mime(("text/x-shellscript", "#!/bin/bash\n/etc/eks/bootstrap.sh dev\n")), "NoNodeConfig"),
        (mime(), "MimeBroken"),
        (mime(("application/node.eks.awz", yaml.safe_dump(node_config()))), "NoNodeConfig"),
        (mime(("application/node.eks.aws", "spec: [")), "NodeConfigUnreadable"),
        (mime(("application/node.eks.aws", "just text")), "NoNodeConfig"),
        (user_data({**node_config(), "kind": "NodeConfigs"}), "NoNodeConfig"),
        (user_data({**node_config(), "apiVersion": "node.eks.aws/v1beta1"}), "NoNodeConfig"),
        (base64.b64encode(b"#!/bin/bash\necho hello\n").decode(), "NoNodeConfig"),
        (base64.b64encode(b"\x1f\x8bnot gzip").decode(), "UserDataNotGzip"),
        (user_data({**node_config(), "padding": "x" * 16384}), "UserDataTooLong"),
    ],
)
def test_user_data_without_a_readable_node_config(verdict: Verdict, data: str, code: str) -> None:
    assert refusal(verdict(user_data=data)) == code


def test_a_message_that_was_cut_off_keeps_the_node_out(verdict: Verdict) -> None:
    whole = base64.b64decode(user_data(node_config()))
    cut = base64.b64encode(whole.removesuffix(b"--//--\r\n")).decode()
    assert refusal(verdict(user_data=cut)) == "MimeBroken"


def test_the_boundary_must_be_the_announced_one(verdict: Verdict) -> None:
    whole = base64.b64decode(user_data(node_config()))
    wrong = base64.b64encode(whole.replace(b'boundary="//"', b'boundary="/"')).decode()
    assert refusal(verdict(user_data=wrong)) == "MimeBroken"


def test_a_role_without_access_entry_keeps_the_node_out_until_it_has_one(verdict: Verdict) -> None:
    found = verdict(entries={"SomeOtherRole": "EC2_LINUX"})
    assert refusal(found) == "AccessEntry"
    assert isinstance(found, JoinRefusal)
    assert not found.final


@pytest.mark.parametrize("kind", ["STANDARD", "EC2_WINDOWS", "FARGATE_LINUX"])
def test_an_access_entry_of_another_type_is_not_for_nodes(verdict: Verdict, kind: str) -> None:
    assert refusal(verdict(entries={"KarpenterNodeRole-dev": kind})) == "AccessEntry"


def test_an_instance_without_a_profile_cannot_log_in(verdict: Verdict) -> None:
    assert refusal(verdict(role_name="")) == "NoInstanceProfile"


def test_a_subnet_of_another_vpc_keeps_the_node_out(verdict: Verdict) -> None:
    assert refusal(verdict(vpc_id="vpc-2")) == "Subnet"


def test_an_image_of_another_architecture_does_not_start(verdict: Verdict) -> None:
    assert refusal(verdict(image_architecture="arm64")) == "Architecture"


@pytest.mark.parametrize("field", ["name", "apiServerEndpoint", "certificateAuthority", "cidr"])
def test_no_byte_of_the_cluster_details_may_be_wrong(verdict: Verdict, field: str) -> None:
    """Every byte of key and value in turn is replaced by its neighbour in the alphabet."""
    text = yaml.safe_dump(node_config(), width=10_000)
    line = next(line for line in text.splitlines() if line.strip().startswith(f"{field}:"))
    start = text.index(line) + len(line) - len(line.lstrip())
    for position in range(start, text.index(line) + len(line)):
        if text[position] == " ":
            continue
        wrong = text[:position] + chr(ord(text[position]) + 1) + text[position + 1 :]
        found = verdict(user_data=mime(("application/node.eks.aws", wrong)))
        assert isinstance(found, JoinRefusal), f"{text[position]!r} at {position} did not matter: {line}"
