"""Volumes of manifests whose claims or StorageClasses are not there are planned, on assumptions that are said."""

import io
from typing import Any

import pytest

from spotwright.cli import main

POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  volumes: [{name: data, persistentVolumeClaim: {claimName: data}}]
  containers: [{name: a, image: a}]
"""
CLAIM = """
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, MORE}
"""
CLASS = """
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: zonal}
provisioner: ebs.csi.aws.com
volumeBindingMode: WaitForFirstConsumer
allowedTopologies:
- matchLabelExpressions: [{key: topology.kubernetes.io/zone, values: [us-east-1b]}]
"""
DEFAULT = CLASS.replace(
    "{name: zonal}", '{name: zonal, annotations: {storageclass.kubernetes.io/is-default-class: "true"}}'
)
IMMEDIATE = CLASS.replace("WaitForFirstConsumer", "Immediate")
VOLUME = """
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  accessModes: [ReadWriteOnce]
  capacity: {storage: 1Gi}
  csi: {driver: ebs.csi.aws.com, volumeHandle: vol-1}
  nodeAffinity:
    required:
      nodeSelectorTerms:
      - matchExpressions: [{key: topology.kubernetes.io/zone, operator: In, values: [us-east-1b]}]
"""
EPHEMERAL = """
apiVersion: v1
kind: Pod
metadata: {name: shuffle}
spec:
  volumes:
  - name: disk
    ephemeral:
      volumeClaimTemplate:
        spec: {accessModes: [ReadWriteOnce], storageClassName: zonal, resources: {requests: {storage: 1Gi}}}
  containers: [{name: a, image: a}]
"""
STATEFUL_SET = """
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  replicas: 5
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: a, image: a, volumeMounts: [{name: data, mountPath: /data}]}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: zonal, resources: {requests: {storage: 1Gi}}}
"""


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def _planned(*documents: str) -> tuple[str, list[str]]:
        """The plan, and what it assumes of volumes."""
        monkeypatch.setattr("sys.stdin", io.StringIO("---".join((POOL, *documents))))
        assert main(["plan", "-"]) == 0
        shown, _, assumed = capsys.readouterr().out.partition("Assumptions:")
        return shown, [line.strip() for line in assumed.splitlines() if line.strip().startswith("PVC")]

    return _planned


def claim(more: str = "") -> str:
    return CLAIM.replace(", MORE", f", {more}" if more else "")


@pytest.mark.parametrize(
    ("documents", "assumed"),
    [
        ([claim("storageClassName: gp3")], "PVC data: StorageClass gp3 is not in these files; assumed any zone"),
        ([claim()], "PVC data: no StorageClass is named and none in these files is the default; assumed any zone"),
        ([], "PVC data: no such claim is in these files; assumed any zone"),
        (
            [claim('storageClassName: ""')],
            "PVC data: only a PersistentVolume that is there already is taken; assumed any zone",
        ),
        ([claim("volumeName: disk")], "PVC data: PersistentVolume disk is not in these files; assumed any zone"),
    ],
)
def test_a_volume_that_is_not_known_may_be_in_any_zone(planned: Any, documents: list[str], assumed: str) -> None:
    shown, sentences = planned(POD, *documents)
    assert shown.startswith("1 pod: 1 placed on 1 new node")
    assert "us-east-1a, us-east-1b" in shown
    assert sentences == [assumed]


@pytest.mark.parametrize(
    ("documents", "assumed"),
    [
        ([claim("storageClassName: zonal"), CLASS], []),
        ([claim(), DEFAULT], []),
        ([claim("volumeName: disk"), VOLUME], []),
        (
            [claim("storageClassName: zonal"), IMMEDIATE],
            [
                "PVC data: StorageClass zonal makes its volume before the pod has a node; assumed any zone that it"
                " allows"
            ],
        ),
    ],
)
def test_a_volume_that_is_known_decides_the_zone(planned: Any, documents: list[str], assumed: list[str]) -> None:
    shown, sentences = planned(POD, *documents)
    assert shown.startswith("1 pod: 1 placed on 1 new node")
    assert "us-east-1b" in shown
    assert "us-east-1a" not in shown
    assert sentences == assumed


@pytest.mark.parametrize(("workload", "pods"), [(EPHEMERAL, 1), (STATEFUL_SET, 5)])
def test_claims_that_controllers_make_are_planned_for(planned: Any, workload: str, pods: int) -> None:
    shown, sentences = planned(workload, CLASS)
    assert f"{pods} placed" in shown
    assert "us-east-1b" in shown
    assert "us-east-1a" not in shown
    assert not sentences


def test_claims_with_the_same_assumption_share_a_sentence(planned: Any) -> None:
    assert planned(STATEFUL_SET)[1] == [
        "PVCs data-db-0, data-db-1, data-db-2 and 2 more: StorageClass zonal is not in these files; assumed any zone"
    ]
