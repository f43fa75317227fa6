"""What EKS says of a cluster."""

import json
from contextlib import suppress
from typing import Any

import pytest
import urllib3

from spotwright.adapters.aws.eks.access_entries import NodeAccessEntries
from spotwright.adapters.aws.eks.cluster_facts import describe_cluster, dns_address
from spotwright.errors import Conflict, NotFound
from spotwright.model.ec2.fleet import ClusterFacts
from tests.contract.conftest import LocalAws


def test_a_cluster_tells_where_it_is(local_aws: LocalAws) -> None:
    body = {
        "name": "told", "endpoint": "https://127.0.0.1:6443", "certificateAuthority": "Q0E=", "version": "1.35",
        "serviceIpv4Cidr": "10.96.0.0/16", "vpcId": "vpc-1",
    }  # fmt: skip
    answer = urllib3.request("POST", f"{local_aws.endpoint}/_local/clusters", body=json.dumps(body))
    assert answer.status == 200, answer.data
    client: Any = local_aws.client("eks")
    cluster_facts = describe_cluster(client, "told")
    assert isinstance(cluster_facts, ClusterFacts)
    assert (cluster_facts.endpoint, cluster_facts.certificate_authority, cluster_facts.version) == (
        "https://127.0.0.1:6443",
        "Q0E=",
        "1.35",
    )
    assert (cluster_facts.service_cidr, cluster_facts.dns_ip) == ("10.96.0.0/16", "10.96.0.10")
    with pytest.raises(NotFound):
        describe_cluster(client, "nobody")


@pytest.mark.parametrize(("cidr", "address"), [("172.20.0.0/16", "172.20.0.10"), ("fd00::/108", "fd00::a"), ("", "")])
def test_the_dns_service_has_the_tenth_address(cidr: str, address: str) -> None:
    assert dns_address(cidr) == address


def test_entries_of_node_roles_remember_who_made_them(local_aws: LocalAws) -> None:
    body = {"name": "entered", "endpoint": "https://127.0.0.1:6443", "certificateAuthority": "Q0E=", "version": "1.35"}
    urllib3.request("POST", f"{local_aws.endpoint}/_local/clusters", body=json.dumps(body))
    client: Any = local_aws.client("eks")
    role = "arn:aws:iam::123456789012:role/KarpenterNodeRole-dev-eks-cluster"
    group = "arn:aws:iam::123456789012:role/dev-eks-node-group-role"
    with suppress(client.exceptions.ResourceInUseException):
        client.create_access_entry(clusterName="entered", principalArn=group, type="EC2_LINUX")
    entries = NodeAccessEntries(client, cluster="entered")
    entries.create(role, "EC2_LINUX", frozenset({"a1"}))
    for principal in (role, group):
        with pytest.raises(Conflict):
            entries.create(principal, "EC2_LINUX", frozenset({"b2"}))
    other = entries.find(group)
    assert other is not None
    assert (other.type, other.installers) == ("EC2_LINUX", frozenset())
    (entry,) = entries.tagged_entries()
    assert (entry.principal, entry.type, entry.installers) == (role, "EC2_LINUX", frozenset({"a1"}))
    entries.tag(entry, frozenset({"a1", "b2"}))
    assert [tagged.installers for tagged in entries.tagged_entries()] == [frozenset({"a1", "b2"})]
    for _ in range(2):
        entries.delete(role)
    assert entries.find(role) is None
    assert list(entries.tagged_entries()) == []
