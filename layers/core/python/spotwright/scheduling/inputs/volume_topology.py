"""Where a pod's volumes can be attached, and how many more a node takes.

Source: Karpenter v1.14 ``scheduling/volumetopology.go`` and ``volumeusage.go``. There, a node takes any number of
volumes until its CSINode appears; here, until then, what its instance type can attach.
"""

from collections import Counter
from collections.abc import Container, Iterable
from itertools import product
from typing import Final

import msgspec

from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.volumes import (
    NodeSelectorTerms,
    PersistentVolume,
    PersistentVolumeClaim,
    Storage,
    StorageClass,
    volume_resource,
)
from spotwright.model.requirements import RequirementError, Requirements, conjunction
from spotwright.scheduling.inputs.state_nodes import StateNode

# Begins the name of a stand-in; no object's name may.
_STAND_IN: Final = "~"

type VolumesByDriver = dict[str, frozenset[str]]
"""Driver → claims (``namespace/name``) attached through it."""


class VolumeTopology:
    """The storage of a snapshot, by name."""

    def __init__(self, storage: Storage) -> None:
        self._claims = {volume_claim.metadata.key: volume_claim for volume_claim in storage.persistent_volume_claims}
        self._volumes = {
            persistent_volume.metadata.name: persistent_volume for persistent_volume in storage.persistent_volumes
        }
        self._classes = {storage_class.metadata.name: storage_class for storage_class in storage.storage_classes}
        self._limits = {
            csi_node.metadata.name: csi_node.attachable_volumes
            for csi_node in storage.csi_nodes
            if not csi_node.read_error
        }

    def anonymize_claims(self, pods: Iterable[Pod], every: Iterable[Pod]) -> list[Pod]:
        """The pods, those that alone use their claims with stand-ins for them: equal where the volumes may be attached
        in the same places, through the same driver. So the pods of a StatefulSet can be one class.

        ``every``: all pods that may use a claim. A claim of several pods stays: where they meet it is attached once.
        """
        shared = shared_claims(every)
        return [self._anonymous(pod, shared) if pod.volume_claim_names else pod for pod in pods]

    def _anonymous(self, pod: Pod, shared: Container[str]) -> Pod:
        names = list(dict.fromkeys(pod.volume_claim_names))
        if any(f"{pod.metadata.namespace}/{name}" in shared for name in names):
            return pod
        stand_ins: list[str] = []
        for name in names:
            claim = self._claims.get(f"{pod.metadata.namespace}/{name}")
            if claim is None:
                return pod
            stand_in = f"{_STAND_IN}{self._likeness(claim)}"
            numbered = f"{stand_in}/{sum(one.startswith(f'{stand_in}/') for one in stand_ins)}"
            stand_ins.append(numbered)
            self._claims[f"{pod.metadata.namespace}/{numbered}"] = claim
        return msgspec.structs.replace(pod, volume_claim_names=tuple(stand_ins))

    def _likeness(self, claim: PersistentVolumeClaim) -> str:
        """What decides where a claim's volume may be attached, and what it takes up there."""
        if not claim.volume_name:
            return f"class {claim.storage_class_name}"
        volume = self._volumes.get(claim.volume_name)
        told = (volume.driver, volume.node_affinity) if volume else claim.volume_name
        return "volume " + msgspec.json.encode(told).decode()

    def volume_error(self, pod: Pod) -> str:
        """Why no node could give the pod its volumes; "" if nothing is wrong with them."""
        return next(filter(None, (self._fault(pod, name) for name in pod.volume_claim_names)), "")

    def _fault(self, pod: Pod, name: str) -> str:
        claim = self._claims.get(f"{pod.metadata.namespace}/{name}")
        if claim is None:
            unread = "" if self._claims else ", or claims were not read"
            return f"PersistentVolumeClaim {name} does not exist{unread}"
        if claim.read_error:
            return f"PersistentVolumeClaim {name} cannot be read: {claim.read_error}"
        if claim.metadata.deletion_timestamp is not None:
            return f"PersistentVolumeClaim {name} is being deleted"
        if claim.phase == "Lost":
            return f"PersistentVolumeClaim {name} is Lost"
        return self._bound_fault(claim) if claim.volume_name else self._unbound_fault(claim)

    def _bound_fault(self, claim: PersistentVolumeClaim) -> str:
        volume = self._volumes.get(claim.volume_name)
        if volume is None or volume.metadata.deletion_timestamp is not None:
            return f"PersistentVolume {claim.volume_name} is missing or being deleted"
        if volume.read_error:
            return f"PersistentVolume {claim.volume_name} cannot be read: {volume.read_error}"
        if volume.node_affinity and not _readable(volume.node_affinity):
            name = claim.volume_name
            return f"PersistentVolume {name} can be reached from no node: its node affinity contradicts itself"
        return (
            ""
            if claim.bind_completed
            else f"PersistentVolumeClaim {claim.metadata.name} is not bound to its volume yet"
        )

    def _unbound_fault(self, claim: PersistentVolumeClaim) -> str:
        name = claim.metadata.name
        chosen = self._classes.get(claim.storage_class_name or "")
        if chosen is None:
            wanted = (
                f"StorageClass {claim.storage_class_name} does not exist"
                if claim.storage_class_name
                else "no StorageClass"
            )
            return f"PersistentVolumeClaim {name} is not bound and has {wanted}"
        if chosen.read_error:
            return f"StorageClass {claim.storage_class_name} cannot be read: {chosen.read_error}"
        if chosen.allowed_topologies and not _readable(chosen.allowed_topologies):
            return (
                f"StorageClass {claim.storage_class_name} allows no node: its allowedTopologies contradict themselves"
            )
        return (
            ""
            if chosen.waits_for_first_consumer
            else f"PersistentVolumeClaim {name} waits for StorageClass {claim.storage_class_name}"
        )

    def node_requirements(self, pod: Pod) -> tuple[Requirements, ...]:
        """Where all volumes can be attached: alternatives, of which one must hold; () = anywhere.

        If every combination contradicts itself, one that nothing meets is given.
        """
        each = [requirementses for name in pod.volume_claim_names if (requirementses := self._reachable(pod, name))]
        if not each:
            return ()
        combined = (conjunction(requirement for part in parts for requirement in part) for parts in product(*each))
        possible = tuple(requirements for requirements in combined if requirements is not None)
        return possible or (Requirements().intersection(requirement for parts in each for requirement in parts[0]),)

    def _reachable(self, pod: Pod, name: str) -> list[Requirements]:
        claim = self._claims.get(f"{pod.metadata.namespace}/{name}")
        if claim is None:
            return []
        home: PersistentVolume | StorageClass | None = (
            self._volumes.get(claim.volume_name) if claim.volume_name else self._class_of(claim)
        )
        if home is None:
            return []
        return _readable(home.node_affinity if isinstance(home, PersistentVolume) else home.allowed_topologies)

    def _class_of(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        return self._classes.get(claim.storage_class_name or "")

    def volumes(self, pod: Pod, key: str = "") -> VolumesByDriver:
        """What the pod attaches, by driver; volumes that need no attachment are left out.

        ``key``: of the pod among its equals, when it has got its place: from then on its stand-ins are its own.
        """
        found: dict[str, set[str]] = {}
        for name in pod.volume_claim_names:
            claim = f"{pod.metadata.namespace}/{name}"
            driver = self._driver(self._claims.get(claim))
            if driver:
                found.setdefault(driver, set()).add(claim + key if name.startswith(_STAND_IN) else claim)
        return {driver: frozenset(claims) for driver, claims in found.items()}

    def _driver(self, claim: PersistentVolumeClaim | None) -> str:
        if claim is None:
            return ""
        if claim.volume_name:
            volume = self._volumes.get(claim.volume_name)
            return volume.driver if volume else ""
        chosen = self._class_of(claim)
        return chosen.provisioner if chosen else ""

    def volume_requests(self, pod: Pod, shared: Container[str]) -> dict[str, int]:
        """What the pod's volumes take up on a new node, as resources. ``shared``: claims of several pods, which are
        left out: wherever those pods are together, they attach them once."""
        return {
            volume_resource(driver): count
            for driver, claims in sorted(self.volumes(pod).items())
            if (count := sum(claim not in shared for claim in claims))
        }

    def exceeds_limits(self, host: StateNode, before: VolumesByDriver, more: VolumesByDriver) -> bool:
        """True when a node cannot attach these beside what it has."""
        limits = self._limits.get(host.name, host.attachable_volumes)
        for driver, claims in more.items():
            attached = before.get(driver, frozenset())
            if driver in limits and len(attached | claims) > max(limits[driver], len(attached)):
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


def merge_volumes(volumes_by_driver: VolumesByDriver, other_volumes_by_driver: VolumesByDriver) -> VolumesByDriver:
    drivers = {**volumes_by_driver, **other_volumes_by_driver}
    return {
        driver: volumes_by_driver.get(driver, frozenset()) | other_volumes_by_driver.get(driver, frozenset())
        for driver in drivers
    }


def _readable(alternatives: NodeSelectorTerms) -> list[Requirements]:
    found = []
    for term in alternatives:
        try:
            wanted = conjunction(expression.requirement() for expression in term)
        except RequirementError:
            continue
        if wanted is not None:
            found.append(wanted)
    return found


def attached_volumes(pods: Iterable[Pod], volume_topology: VolumeTopology) -> VolumesByDriver:
    """What the pods of a node attach between them."""
    total: VolumesByDriver = {}
    for pod in pods:
        if pod.volume_claim_names:
            total = merge_volumes(total, volume_topology.volumes(pod))
    return total
