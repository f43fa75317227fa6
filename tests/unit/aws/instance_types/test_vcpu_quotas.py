"""The account's quotas of vCPUs."""

import pytest

from local.aws.ec2.launches.vcpu_quotas import quota_code
from spotwright.aws.instance_types import vcpu_quotas
from spotwright.model import labels

TYPES = [
    ("m5.large", "standard"), ("im4gn.large", "standard"), ("t4g.nano", "standard"), ("g5.xlarge", "g"),
    ("gr6.4xlarge", "g"), ("vt1.3xlarge", "g"), ("p4d.24xlarge", "p"), ("inf2.xlarge", "inf"),
    ("i4i.large", "standard"), ("trn1.2xlarge", "trn"), ("dl1.24xlarge", "dl"), ("d3.xlarge", "standard"),
    ("x2idn.32xlarge", "x"), ("u-6tb1.metal", "high-memory"), ("u7i-12tb.224xlarge", "high-memory"),
    ("hpc7a.96xlarge", "hpc"), ("h1.2xlarge", "standard"), ("f2.6xlarge", "f"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "family"), TYPES)
def test_quotas_of_vcpus_go_by_family(name: str, family: str) -> None:
    assert vcpu_quotas.quota_family(name) == family


@pytest.mark.parametrize("name", [name for name, _ in TYPES])
@pytest.mark.parametrize("capacity_type", [labels.ON_DEMAND, labels.SPOT, labels.RESERVED])
def test_each_family_has_the_quota_that_the_local_aws_counts_it_against(name: str, capacity_type: str) -> None:
    quota = vcpu_quotas.vcpu_quota(capacity_type, vcpu_quotas.quota_family(name))
    assert (quota.code if quota else "") == quota_code(name, capacity_type)


def test_a_quota_is_named_as_ec2_names_it() -> None:
    quota = vcpu_quotas.vcpu_quota(labels.ON_DEMAND, "standard")
    assert quota == vcpu_quotas.VcpuQuota("L-1216C47A", "standard (A, C, D, H, I, M, R, T, Z) on-demand")
