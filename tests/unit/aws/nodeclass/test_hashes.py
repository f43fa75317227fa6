"""The hashes equal Karpenter's published expectations."""

import copy
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from spotwright.adapters.kubernetes.codecs.nodeclass import decode_nodeclass_strict
from spotwright.adapters.kubernetes.codecs.nodepool import decode_nodepool_strict
from spotwright.adapters.kubernetes.codecs.objects import decode_node_selector_requirements
from spotwright.aws.nodeclass import hashes
from spotwright.model.karpenter.nodepool import NodeClassReference, NodePool
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.taints import Taint
from tests.unit.aws.nodeclass.golden import CERTIFICATE_AUTHORITY, CLASS_HASH, CLASS_SPEC

type Change = Callable[[dict[str, Any]], None]


def spec(**fields: Any) -> Change:
    return lambda spec: spec.update(fields)


def options(**fields: Any) -> Change:
    return lambda spec: spec["metadataOptions"].update(fields)


def device(**fields: Any) -> Change:
    return lambda spec: spec["blockDeviceMappings"][0].update(fields)


def ebs(**fields: Any) -> Change:
    return lambda spec: spec["blockDeviceMappings"][0]["ebs"].update(fields)


def with_profile(fields: dict[str, Any]) -> None:
    del fields["role"]
    fields["instanceProfile"] = "test-instance-profile"


CASES: dict[str, tuple[Change, str]] = {
    "base": (spec(), CLASS_HASH),
    "user data": (spec(userData="userdata-test-2"), "11774429238106843388"),
    "tags": (lambda spec: spec["tags"].update({"keyTag-test-3": "valueTag-test-3"}), "9327338697296909506"),
    "context": (spec(context="context-2"), "2279761750428738028"),
    "monitoring": (spec(detailedMonitoring=True), "1936848126751988570"),
    "instance store": (spec(instanceStorePolicy="RAID0"), "16697988646989909967"),
    "public address": (spec(associatePublicIPAddress=True), "16141801171825097963"),
    "http endpoint": (options(httpEndpoint="enabled"), "14969742554812447671"),
    "hop limit": (options(httpPutResponseHopLimit=10), "14046948658064232764"),
    "IPv6": (options(httpProtocolIPv6="enabled"), "1581716956216772561"),
    "tokens": (options(httpTokens="required"), "1346719102507290084"),
    "volume size": (ebs(volumeSize="10G"), "10372902467896351912"),
    "device name": (device(deviceName="map-device-test-3"), "8979166653850509463"),
    "root volume": (device(rootVolume=True), "8875796205856543692"),
    "delete on termination": (ebs(deleteOnTermination=True), "1470935115846151531"),
    "encrypted": (ebs(encrypted=True), "5252376125396833097"),
    "iops": (ebs(iops=10), "11651419893470054855"),
    "key": (ebs(kmsKeyID="test"), "1488385067008138755"),
    "snapshot": (ebs(snapshotID="test"), "12786013539168652330"),
    "throughput": (ebs(throughput=10), "1873429003468556999"),
    "volume type": (ebs(volumeType="io1"), "6743466905516550702"),
    "instance profile": (with_profile, "10323991363677716244"),
    "TCP timeout": (spec(connectionTracking={"tcpEstablishedTimeout": 300}), "1619669030802245540"),
    "UDP timeout": (spec(connectionTracking={"udpTimeout": 45}), "17941926745862994490"),
    "UDP stream timeout": (spec(connectionTracking={"udpStreamTimeout": 120}), "13743705849402595405"),
    "nested virtualization": (spec(cpuOptions={"nestedVirtualization": "enabled"}), "6157846767212910604"),
    "order of devices": (lambda spec: spec["blockDeviceMappings"].reverse(), CLASS_HASH),
    "order of tags": (spec(tags={"keyTag-2": "valueTag-2", "keyTag-1": "valueTag-1"}), CLASS_HASH),
    "selectors": (spec(subnetSelectorTerms=[{"id": "subnet-1"}], ipPrefixCount=3), CLASS_HASH),
}


def changed(change: Change) -> dict[str, Any]:
    copied = copy.deepcopy(CLASS_SPEC)
    change(copied)
    return copied


@pytest.mark.parametrize("name", CASES)
def test_a_class_hashes_as_karpenter_does(name: str) -> None:
    change, expected = CASES[name]
    digest = hashes.nodeclass_spec_hash(
        changed(change), ami_family="Custom", certificate_authority=CERTIFICATE_AUTHORITY, kubelet={}
    )
    assert digest == expected


@pytest.mark.parametrize("name", CASES)
def test_a_class_from_the_api_server_hashes_the_same(name: str) -> None:
    change, expected = CASES[name]
    obj = {"kind": "EC2NodeClass", "metadata": {"name": "x"}, "spec": changed(change) | {"amiFamily": "Custom"}}
    assert hashes.nodeclass_hash(decode_nodeclass_strict(obj), "test-ca-bundle") == expected


# Computed with Go's hashstructure v2.0.2 over Karpenter's field names and types.
BARE: dict[str, tuple[dict[str, Any], str]] = {
    "role": ({}, "8926278752882205884"),
    "group by name": ({"placementGroupSelector": {"name": "near"}}, "1054423750405042043"),
    "group by id": ({"placementGroupSelector": {"id": "pg-1"}}, "5703899548075814868"),
    "interfaces": (
        {
            "networkInterfaces": [
                {"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"},
                {"networkCardIndex": 1, "deviceIndex": 1, "interfaceType": "efa-only"},
            ]
        },
        "390310926049033409",
    ),
    "no interfaces": ({"networkInterfaces": []}, "13625827937666534971"),
    "no tags": ({"tags": {}}, "2625353418914470680"),
    "no devices": ({"blockDeviceMappings": []}, "12142217683699163002"),
    "empty user data": ({"userData": ""}, "3799019558303271784"),
    "empty context": ({"context": ""}, "6022526683593238236"),
    "empty cpu options": ({"cpuOptions": {}}, "15969749253655523912"),
    "tracking": ({"connectionTracking": {"tcpEstablishedTimeout": 300, "udpTimeout": 45}}, "8644045617430294053"),
}


@pytest.mark.parametrize("name", BARE)
def test_what_is_stated_empty_hashes_as_in_go(name: str) -> None:
    fields, expected = BARE[name]
    obj = {"kind": "EC2NodeClass", "metadata": {"name": "x"}, "spec": {"role": "r"} | fields}
    stated = hashes.hashed_fields(decode_nodeclass_strict(obj)) | {"metadataOptions": None}
    digest = hashes.nodeclass_spec_hash(
        stated, ami_family="Custom", certificate_authority=CERTIFICATE_AUTHORITY, kubelet={}
    )
    assert digest == expected


def test_the_kubelet_counts_and_the_order_of_its_keys_does_not() -> None:
    def of(kubelet: dict[str, object]) -> str:
        return hashes.nodeclass_spec_hash(
            CLASS_SPEC, ami_family="Custom", certificate_authority=CERTIFICATE_AUTHORITY, kubelet=kubelet
        )

    assert of({"maxPods": 20, "podsPerCore": 4}) == of({"podsPerCore": 4, "maxPods": 20})
    assert of({"maxPods": 20}) not in (of({"maxPods": 21}), CLASS_HASH)


def pool(**fields: Any) -> NodePool:
    return NodePool(ObjectMeta("p"), NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default"), **fields)


GPU = Taint("dedicated", "NoSchedule", "gpu")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "6821555240594823858"),
        ({"expire_after_seconds": None}, "17369979337536258260"),
        ({"termination_grace_period_seconds": 48 * 3600}, "15015733878877233177"),
        ({"labels": {"team": "a"}}, "1617844334411263980"),
        ({"taints": (GPU,)}, "13579916569126205748"),
        ({"explicitly_empty": ("taints",)}, "17700736223175069915"),
        ({"startup_taints": (GPU,)}, "10086292261070021787"),
    ],
)
def test_a_pool_hashes_as_karpenter_does(fields: dict[str, Any], expected: str) -> None:
    assert hashes.nodepool_hash(pool(**fields)) == expected


def test_an_empty_list_in_a_manifest_is_not_an_absent_one() -> None:
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    template = {"spec": {"nodeClassRef": ref, "taints": [], "requirements": []}}
    obj = {"kind": "NodePool", "metadata": {"name": "p"}, "spec": {"template": template}}
    assert hashes.nodepool_hash(decode_nodepool_strict(obj)) == "17700736223175069915"


def test_requirements_do_not_drift_by_hash() -> None:
    selector = decode_node_selector_requirements([{"key": "a", "operator": "Exists"}])
    assert hashes.nodepool_hash(pool(requirements=selector)) == hashes.nodepool_hash(pool())


def test_how_many_nodes_a_pool_keeps_and_may_have_is_no_drift() -> None:
    plain = pool()
    grown = msgspec.structs.replace(plain, replicas=3, limits={"nodes": 5}, weight=7, consolidation_policy="WhenEmpty")
    assert hashes.nodepool_hash(grown) == hashes.nodepool_hash(plain)
