"""User data, read back by Python's own MIME and YAML parsers, which the code does not use."""

import email
import email.policy
from typing import Any

import pytest
import yaml

from spotwright.aws.bootstrap import user_data
from spotwright.aws.bootstrap.options import BootstrapOptions, registration_taints
from spotwright.aws.refusal import Refusal
from spotwright.model.kubernetes.taints import Taint
from tests.unit.aws.samples import FACTS, nodeclass

SPOT_ONLY = Taint("spot", "NoSchedule", "only")
BOOT = BootstrapOptions({"team": "a", "karpenter.sh/nodepool": "default"}, (SPOT_ONLY,), 29)


def text(boot: BootstrapOptions = BOOT, family: str = "AL2023", **changes: Any) -> str:
    rendered = user_data.render(family, nodeclass(**changes), FACTS, boot)
    assert isinstance(rendered, str), rendered
    return rendered


def parts(archive: str) -> list[tuple[str, str]]:
    """(content type, body) of every entity."""
    message = email.message_from_string(archive, policy=email.policy.default)
    assert message.get_content_type() == "multipart/mixed"
    assert not message.defects
    return [(part.get_content_type(), str(part.get_payload()).rstrip("\n")) for part in message.iter_parts()]


def config(archive: str) -> dict[str, Any]:
    """The last NodeConfig, which is the one that wins."""
    kind, body = parts(archive)[-1]
    assert kind == "application/node.eks.aws"
    document: dict[str, Any] = yaml.safe_load(body)
    return document


def test_the_cluster_is_named_with_its_endpoint_and_authority() -> None:
    document = config(text())
    assert (document["apiVersion"], document["kind"]) == ("node.eks.aws/v1alpha1", "NodeConfig")
    assert document["spec"]["cluster"] == {
        "name": FACTS.name,
        "apiServerEndpoint": FACTS.endpoint,
        "certificateAuthority": FACTS.certificate_authority,
        "cidr": "10.100.0.0/16",
    }


def test_the_kubelet_gets_pods_dns_taints_and_labels() -> None:
    kubelet = config(text())["spec"]["kubelet"]
    assert kubelet["config"] == {
        "clusterDNS": ["10.100.0.10"],
        "maxPods": 29,
        "registerWithTaints": [
            {"key": "spot", "value": "only", "effect": "NoSchedule"},
            {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
        ],
    }
    assert kubelet["flags"] == ['--node-labels="karpenter.sh/nodepool=default,team=a"']


def test_the_class_kubelet_map_passes_through_and_ours_wins() -> None:
    own = {"topologyManagerPolicy": "best-effort", "serializeImagePulls": False, "containerLogMaxSize": "50Mi"}
    kubelet = config(text(kubelet=own | {"maxPods": 5, "clusterDNS": ["1.2.3.4"]}))["spec"]["kubelet"]["config"]
    assert own.items() <= kubelet.items()
    assert (kubelet["maxPods"], kubelet["clusterDNS"]) == (29, ["1.2.3.4"])


@pytest.mark.parametrize(
    "key", ["kubernetes.io/arch", "node.kubernetes.io/instance-type", "topology.k8s.io/x", "k8s.io/y"]
)
def test_labels_that_the_kubelet_may_not_set_are_left_out(key: str) -> None:
    flags = config(text(BootstrapOptions({key: "v", "karpenter.k8s.aws/x": "w"}, (), 9)))["spec"]["kubelet"]["flags"]
    assert flags == ['--node-labels="karpenter.k8s.aws/x=w"']


def test_unregistered_is_not_said_twice() -> None:
    unregistered = Taint("karpenter.sh/unregistered", "NoExecute")
    assert registration_taints((unregistered, SPOT_ONLY, SPOT_ONLY)) == (unregistered, SPOT_ONLY)


def test_local_disks_are_joined_on_request() -> None:
    assert config(text())["spec"]["instance"] == {}
    instance = config(text(instance_store_policy="RAID0"))["spec"]["instance"]
    assert instance == {"localStorage": {"strategy": "RAID0"}}


def test_a_script_of_the_user_runs_first() -> None:
    script = "#!/bin/bash\necho '--//' not a boundary\n"
    entries = parts(text(user_data=script))
    assert [kind for kind, _ in entries] == ["text/x-shellscript", "application/node.eks.aws"]
    assert entries[0][1] == script.rstrip("\n")


def test_a_script_may_hold_our_boundary() -> None:
    script = "#!/bin/bash\ncat <<END\n--//\nEND"
    assert parts(text(user_data=script))[0][1] == script


def test_a_node_config_of_the_user_is_one_before_ours() -> None:
    own = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  kubelet:\n    config: {podPidsLimit: 42}"
    entries = parts(text(user_data=own))
    assert [kind for kind, _ in entries] == ["application/node.eks.aws"] * 2
    assert yaml.safe_load(entries[0][1])["spec"]["kubelet"]["config"] == {"podPidsLimit": 42}


def test_an_archive_of_the_user_keeps_its_parts_and_their_encoding() -> None:
    own = (
        'MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="XX"\r\n\r\n'
        '--XX\r\nContent-Type: text/x-shellscript; charset="us-ascii"\r\nContent-Transfer-Encoding: base64\r\n\r\n'
        "ZWNobyBoaQ==\r\n--XX\r\nContent-Type: text/cloud-config\r\n\r\n#cloud-config\r\npackages: [jq]\r\n--XX--\r\n"
    )
    message = email.message_from_string(text(user_data=own), policy=email.policy.default)
    first, second, last = list(message.iter_parts())
    assert str(first.get_content()).strip() == "echo hi" or first.get_payload(decode=True) == b"echo hi"
    assert "packages: [jq]" in str(second.get_payload())
    assert last.get_content_type() == "application/node.eks.aws"


def refusal(**changes: Any) -> Refusal:
    rendered = user_data.render("AL2023", nodeclass(**changes), FACTS, BOOT)
    assert isinstance(rendered, Refusal)
    return rendered


def test_an_archive_without_a_boundary_is_refused_by_field() -> None:
    refused = refusal(user_data="MIME-Version: 1.0\n\nhello")
    assert refused.reason == "InvalidUserData"
    assert "spec.userData" in refused.message
    assert "boundary" in refused.message


def test_what_is_too_long_is_refused_with_its_size() -> None:
    refused = refusal(user_data="#!/bin/sh\n" + "x" * 16384)
    assert refused.reason == "UserDataSizeLimitExceeded"
    assert "16384" in refused.message
    generated_size = len(text().encode())
    padding = user_data.MAX_USER_DATA_BYTES - generated_size - 200
    assert len(text(user_data="#" * padding).encode()) <= user_data.MAX_USER_DATA_BYTES


def test_without_the_service_range_no_node_could_join() -> None:
    unknown = FACTS.__class__(FACTS.name, FACTS.endpoint, FACTS.certificate_authority, "1.35", "", "vpc-1")
    rendered = user_data.render("AL2023", nodeclass(), unknown, BOOT)
    assert isinstance(rendered, Refusal)
    assert rendered.reason == "ClusterCIDRResolutionFailed"


def test_custom_images_get_the_users_bytes() -> None:
    own = "anything at all\r\n\0"
    assert text(family="Custom", user_data=own) == own


def test_equal_boots_are_equal_bytes() -> None:
    turned = BootstrapOptions(dict(reversed(BOOT.labels.items())), BOOT.taints, BOOT.max_pods)
    assert text() == text(turned)
