"""What EKS says of a cluster."""

import json
from typing import Any

import pytest
import urllib3

from spotwright.adapters.aws.eks.cluster_facts import describe_cluster, dns_address
from spotwright.errors import NotFound
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
