"""The region of ``spotwright plan``: named, or the one whose zones the manifests name."""

from pathlib import Path
from typing import Any

import pytest

from spotwright.cli import main
from spotwright.cli.inputs import builtin_regions

POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}
      - {key: KEY, operator: OPERATOR, values: [VALUE]}
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}]}
"""
ZONE = "topology.kubernetes.io/zone"


def pool(key: str, value: str, operator: str = "In") -> str:
    return POOL.replace("KEY", key).replace("OPERATOR", operator).replace("VALUE", value)


def test_a_region_has_its_own_prices_and_zones(planned: Any) -> None:
    plan = planned(pool("kubernetes.io/arch", "amd64"), POD, options=("--region", "eu-west-1"))
    (node,) = plan["newNodes"]
    assert (node["pricePerHour"], node["zones"]) == (0.107, ["eu-west-1a", "eu-west-1b", "eu-west-1c"])


@pytest.mark.parametrize(
    ("key", "value", "zones"),
    [
        (ZONE, "us-west-2d", ["us-west-2d"]),
        ("topology.k8s.aws/zone-id", "euc1-az2", ["eu-central-1a"]),
        ("topology.kubernetes.io/region", "ap-southeast-7", []),
    ],
)
def test_the_region_is_that_of_the_zones_which_are_named(planned: Any, key: str, value: str, zones: list[str]) -> None:
    plan = planned(pool(key, value).replace("m5.large", "m7i.large"), POD)
    assert [zone for node in plan["newNodes"] for zone in node["zones"]][: len(zones)] == zones
    assert len(plan["newNodes"]) == 1
    assert any(f"since the manifests name {value}; --region names another" in line for line in plan["assumptions"])


def test_the_region_is_that_of_zones_in_the_tags_of_subnets(planned: Any) -> None:
    nodeclass = """
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: node
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {Name: dev-private-us-west-2b}}, {tags: {Name: us-west-2d-private}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
"""
    (node,) = planned(pool("kubernetes.io/arch", "amd64"), nodeclass, POD)["newNodes"]
    assert node["zones"] == ["us-west-2b", "us-west-2d"]


def test_the_region_is_that_of_subnets_in_a_status(planned: Any) -> None:
    nodeclass = """
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: node
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
status: {subnets: [{id: subnet-1, zone: eu-west-1b, zoneID: euw1-az1}]}
"""
    (node,) = planned(pool("kubernetes.io/arch", "amd64"), nodeclass, POD)["newNodes"]
    assert (node["zones"], node["pricePerHour"]) == (["eu-west-1b"], 0.107)


def test_zones_of_a_region_that_was_not_asked_for_are_said(planned: Any) -> None:
    notes = planned(pool(ZONE, "us-west-2a"), POD, options=("--region", "us-east-1"))["notes"]
    assert any("The prices are of us-east-1: the manifests name us-west-2a of us-west-2" in note for note in notes)
    assert any("add --region us-west-2" in note for note in notes)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        (ZONE, "us-gov-west-1a", "the manifests name us-gov-west-1a of us-gov-west-1, of which nothing is built in"),
        (ZONE, "eu-wst-1a", "of eu-wst-1, of which nothing is built in (did you mean eu-west-1?)"),
        ("topology.kubernetes.io/region", "cn-north-1", "the manifests name cn-north-1, of which nothing is built in"),
    ],
)
def test_a_region_that_is_named_and_not_built_in_is_said(planned: Any, key: str, value: str, said: str) -> None:
    notes = planned(pool(key, value), POD)["notes"]
    assert any(said in note and "--catalog FILE" in note for note in notes)


def test_a_zone_that_is_excluded_needs_no_subnet(planned: Any) -> None:
    (node,) = planned(pool(ZONE, "us-east-1e", "NotIn"), POD)["newNodes"]
    assert node["zones"] == ["us-east-1a", "us-east-1b", "us-east-1c"]


@pytest.mark.parametrize("in_pod", [False, True])
def test_a_zone_id_can_be_asked_for(planned: Any, in_pod: bool) -> None:
    key = "topology.k8s.aws/zone-id"
    selecting = POD.replace("spec: {", f"spec: {{nodeSelector: {{{key}: use1-az1}}, ")
    plan = planned(pool("kubernetes.io/arch", "amd64"), selecting) if in_pod else planned(pool(key, "use1-az1"), POD)
    (node,) = plan["newNodes"]
    assert node["zones"] == ["us-east-1d"]
    assert any("which zone has which id differs from account to account" in line for line in plan["assumptions"])


@pytest.mark.parametrize("zone", ["us-east-1d", "us-east-1f"])
def test_zones_beyond_the_first_three_are_there_when_they_are_named(planned: Any, zone: str) -> None:
    (node,) = planned(pool(ZONE, zone), POD)["newNodes"]
    assert node["zones"] == [zone]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--region", ""), "--region : no facts of this region are built in."),
        (
            ("--region", "eu-west-11"),
            "--region eu-west-11: no facts of this region are built in; did you mean eu-west-1?",
        ),
        (("--region", "us-west-2a"), "did you mean us-west-2?"),
        (("--region", "us-west-2", "--catalog", "c.json"), "--catalog states types and prices already"),
        (("--region", "us-west-2", "--cluster", "main"), "--cluster states types and prices already"),
    ],
)
def test_a_region_that_cannot_be_used_is_said(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(POD)
    assert main(["plan", str(file), *options]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("region", builtin_regions.region_names())
def test_every_region_sells_the_common_types_at_a_price(region: str) -> None:
    facts = builtin_regions.load_region(region)
    zones = builtin_regions.zone_ids(region)
    assert len(set(zones.values())) == len(zones) >= 2
    assert {"m5.large", "m6i.large", "m7i.large"} & facts.zones.keys()
    assert facts.spot is not None
    sold = facts.zones.keys() & facts.on_demand.keys()
    assert len(sold) > 0.9 * len(facts.zones)
    for name in sold:
        assert set(facts.zones[name]) <= set(zones)
        assert all(0 < facts.spot[name][zone] < facts.on_demand[name] for zone in facts.zones[name])
    reference = builtin_regions.load_region(builtin_regions.DEFAULT_REGION).on_demand
    assert all(0.5 < facts.on_demand[name] / reference[name] < 3 for name in sold)
