"""Where a pod's volumes can be attached, and how many more a node takes.

Source: Karpenter v1.14 ``scheduling/volumetopology.go`` and ``volumeusage.go``. There, a node takes any number of
volumes until its CSINode appears; here, until then, what its instance type can attach.
"""

from collections import Counter
from collections.abc import Container, Iterable
from typing import Final

import msgspec

from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.volumes import PersistentVolumeClaim, Storage, volume_resource
from spotwright.model.requirements import Requirements, conjunction
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.inputs.pod_classes import PodClass
from spotwright.scheduling.inputs.state_nodes import StateNode
from spotwright.scheduling.inputs.storage_index import StorageIndex, readable_terms

# Begins the name of a claim's stand-in; no object's name may.
_STAND_IN: Final = "~"

type VolumesByDriver = dict[str, frozenset[str]]
"""Driver → claims (``namespace/name``) attached through it."""


class VolumeTopology:
    """Claims of pods, and what they mean for nodes."""

    def __init__(self, storage: Storage) -> None:
        self.storage = StorageIndex(storage)
        self._limits = {
            csi_node.metadata.name: csi_node.attachable_volumes
            for csi_node in storage.csi_nodes
            if not csi_node.read_error
        }

    def anonymize_claims(self, pods: Iterable[Pod], all_pods: Iterable[Pod]) -> list[Pod]:
        """The pods, with a stand-in for each claim that one pod alone uses: the stand-ins are equal where the volumes
        may be attached in the same places, through the same driver. So the pods of a StatefulSet can be one class.

        ``all_pods``: all that may use a claim. A claim of more than one pod stays: where they meet it is attached once.
        """
        shared = shared_claims(all_pods)
        return [self._anonymize(pod, shared) if pod.volume_claim_names else pod for pod in pods]

    def _anonymize(self, pod: Pod, shared: Container[str]) -> Pod:
        stand_ins: list[str] = []
        claims: dict[str, PersistentVolumeClaim] = {}
        for name in dict.fromkeys(pod.volume_claim_names):
            claim = self.storage.claim(pod, name)
            if claim is None or f"{pod.metadata.namespace}/{name}" in shared:
                return pod
            stand_in = f"{_STAND_IN}{self._describe(claim)}"
            stand_ins.append(f"{stand_in}/{sum(taken.startswith(f'{stand_in}/') for taken in stand_ins)}")
            claims[f"{pod.metadata.namespace}/{stand_ins[-1]}"] = claim
        self.storage.claims |= claims
        return msgspec.structs.replace(pod, volume_claim_names=tuple(stand_ins))

    def _describe(self, claim: PersistentVolumeClaim) -> str:
        """What decides where a claim's volume may be attached, and what it takes up there."""
        if not claim.volume_name:
            return f"class {claim.storage_class_name}"
        volume = self.storage.volume(claim)
        decisive = (volume.driver, volume.node_affinity) if volume else claim.volume_name
        return "volume " + msgspec.json.encode(decisive).decode()

    def node_requirements(self, pod: Pod) -> tuple[Requirements, ...]:
        """Where all volumes can be attached: alternatives, of which one must hold; () = anywhere.

        If every combination contradicts itself, a combination that no node meets is given.
        """
        terms_of_volumes = [terms for name in pod.volume_claim_names if (terms := self._node_terms(pod, name))]
        if not terms_of_volumes:
            return ()
        possible = [Requirements()]
        for terms in terms_of_volumes:
            # What two volumes rule out is not combined with the places of further ones.
            combined = (conjunction((*before, *term)) for before in possible for term in terms)
            possible = [requirements for requirements in combined if requirements is not None]
        first = (requirement for terms in terms_of_volumes for requirement in terms[0])
        return tuple(possible) or (Requirements().intersection(first),)

    def _node_terms(self, pod: Pod, name: str) -> list[Requirements]:
        """Where the volume of a claim is, or may be created."""
        claim = self.storage.claim(pod, name)
        if claim is None:
            return []
        if claim.volume_name:
            volume = self.storage.volume(claim)
            return readable_terms(volume.node_affinity) if volume else []
        storage_class = self.storage.storage_class(claim)
        return readable_terms(storage_class.allowed_topologies) if storage_class else []

    def volumes(self, pod: Pod, key: str = "") -> VolumesByDriver:
        """What the pod attaches, by driver; volumes that need no attachment are left out.

        ``key``: of a pod that has its place, among equal pods: from then on its stand-ins are its own.
        """
        by_driver: dict[str, set[str]] = {}
        for name in pod.volume_claim_names:
            claim = f"{pod.metadata.namespace}/{name}"
            driver = self._driver(self.storage.claim(pod, name))
            if driver:
                by_driver.setdefault(driver, set()).add(claim + key if name.startswith(_STAND_IN) else claim)
        return {driver: frozenset(claims) for driver, claims in by_driver.items()}

    def _driver(self, claim: PersistentVolumeClaim | None) -> str:
        if claim is None:
            return ""
        if claim.volume_name:
            volume = self.storage.volume(claim)
            return volume.driver if volume else ""
        storage_class = self.storage.storage_class(claim)
        return storage_class.provisioner if storage_class else ""

    def volume_requests(self, pod: Pod, shared: Container[str]) -> dict[str, int]:
        """What the pod's volumes take up on a new node, as resources.

        ``shared``: claims of more than one pod, which are left out: pods on one node attach such a claim once.
        """
        return {
            volume_resource(driver): count
            for driver, claims in sorted(self.volumes(pod).items())
            if (count := sum(claim not in shared for claim in claims))
        }

    def exceeds_limits(self, state_node: StateNode, attached: VolumesByDriver, volumes: VolumesByDriver) -> bool:
        """True when a node cannot attach these volumes beside what it has."""
        limits = self._limits.get(state_node.name, state_node.attachable_volumes)
        for driver, claims in volumes.items():
            before = attached.get(driver, frozenset())
            if driver in limits and len(before | claims) > max(limits[driver], len(before)):
                return True
        return False


def shared_claims(pods: Iterable[Pod]) -> frozenset[str]:
    """Claims (``namespace/name``) of more than one pod; a stand-in is for another claim in every pod."""
    users = Counter(
        f"{pod.metadata.namespace}/{name}"
        for pod in pods
        for name in set(pod.volume_claim_names)
        if not name.startswith(_STAND_IN)
    )
    return frozenset(claim for claim, count in users.items() if count > 1)


def merge_volumes(volumes: VolumesByDriver, more: VolumesByDriver) -> VolumesByDriver:
    drivers = {**volumes, **more}
    return {driver: volumes.get(driver, frozenset()) | more.get(driver, frozenset()) for driver in drivers}


def attached_volumes(pods: Iterable[Pod], volume_topology: VolumeTopology) -> VolumesByDriver:
    """What the pods of a node attach between them."""
    total: VolumesByDriver = {}
    for pod in pods:
        if pod.volume_claim_names:
            total = merge_volumes(total, volume_topology.volumes(pod))
    return total


def request_volumes(
    classes: Iterable[PodClass],
    pods: Iterable[Pod],
    templates: Iterable[NodeClaimTemplate],
    volume_topology: VolumeTopology,
) -> None:
    """Volumes become requests of the classes where a type limits how many can be attached. ``pods``: of all classes."""
    with_volumes = [pod_class for pod_class in classes if pod_class.pod.volume_claim_names]
    if not with_volumes:
        return
    limited = {
        volume_resource(driver)
        for template in templates
        for instance_type in template.instance_types
        for driver in instance_type.attachable_volumes
    }
    shared = shared_claims(pods)
    for pod_class in with_volumes:
        requests = volume_topology.volume_requests(pod_class.pod, shared).items()
        pod_class.requests |= {name: count for name, count in requests if name in limited}
