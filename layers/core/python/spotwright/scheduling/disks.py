"""Where a pod's volumes can be attached, and how many more a node takes.

Source: Karpenter v1.14 ``scheduling/volumetopology.go`` and ``volumeusage.go``. There, a node takes any number of
volumes until its CSINode appears; here, until then, what its instance type can attach.
"""

from collections import Counter
from collections.abc import Container, Iterable
from itertools import product
from typing import Final

import msgspec

from spotwright.model.pod import Pod
from spotwright.model.requirements import RequirementError, Requirements, conjunction
from spotwright.model.volumes import Alternatives, Storage, StorageClass, Volume, VolumeClaim, slot
from spotwright.scheduling.hosts import Host

# Begins the name of a stand-in; no object's name may.
_STAND_IN: Final = "~"

type Attached = dict[str, frozenset[str]]
"""Driver → claims (``namespace/name``) attached through it."""


class Disks:
    """The storage of a snapshot, by name."""

    def __init__(self, storage: Storage) -> None:
        self._claims = {one.metadata.key: one for one in storage.claims}
        self._volumes = {one.metadata.name: one for one in storage.volumes}
        self._classes = {one.metadata.name: one for one in storage.classes}
        self._limits = {one.metadata.name: one.attachable for one in storage.nodes if not one.unreadable}

    def alike(self, pods: Iterable[Pod], every: Iterable[Pod]) -> list[Pod]:
        """The pods, those that alone use their claims with stand-ins for them: equal where the volumes may be attached
        in the same places, through the same driver. So the pods of a StatefulSet can be one class.

        ``every``: all pods that may use a claim. A claim of several pods stays: where they meet it is attached once.
        """
        shared = shared_claims(every)
        return [self._anonymous(pod, shared) if pod.volume_claims else pod for pod in pods]

    def _anonymous(self, pod: Pod, shared: Container[str]) -> Pod:
        names = list(dict.fromkeys(pod.volume_claims))
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
        return msgspec.structs.replace(pod, volume_claims=tuple(stand_ins))

    def _likeness(self, claim: VolumeClaim) -> str:
        """What decides where a claim's volume may be attached, and what it takes up there."""
        if not claim.volume:
            return f"class {claim.storage_class}"
        volume = self._volumes.get(claim.volume)
        told = (volume.driver, volume.reachable) if volume else claim.volume
        return "volume " + msgspec.json.encode(told).decode()

    def fault(self, pod: Pod) -> str:
        """Why no node could give the pod its volumes; "" if nothing is wrong with them."""
        return next(filter(None, (self._fault(pod, name) for name in pod.volume_claims)), "")

    def _fault(self, pod: Pod, name: str) -> str:
        claim = self._claims.get(f"{pod.metadata.namespace}/{name}")
        if claim is None:
            unread = "" if self._claims else ", or claims were not read"
            return f"PersistentVolumeClaim {name} does not exist{unread}"
        if claim.unreadable:
            return f"PersistentVolumeClaim {name} cannot be read: {claim.unreadable}"
        if claim.metadata.deleting is not None:
            return f"PersistentVolumeClaim {name} is being deleted"
        if claim.phase == "Lost":
            return f"PersistentVolumeClaim {name} is Lost"
        return self._bound_fault(claim) if claim.volume else self._unbound_fault(claim)

    def _bound_fault(self, claim: VolumeClaim) -> str:
        volume = self._volumes.get(claim.volume)
        if volume is None or volume.metadata.deleting is not None:
            return f"PersistentVolume {claim.volume} is missing or being deleted"
        if volume.unreadable:
            return f"PersistentVolume {claim.volume} cannot be read: {volume.unreadable}"
        if volume.reachable and not _readable(volume.reachable):
            return f"PersistentVolume {claim.volume} can be reached from no node: its node affinity contradicts itself"
        return "" if claim.bound else f"PersistentVolumeClaim {claim.metadata.name} is not bound to its volume yet"

    def _unbound_fault(self, claim: VolumeClaim) -> str:
        name = claim.metadata.name
        chosen = self._classes.get(claim.storage_class or "")
        if chosen is None:
            wanted = f"StorageClass {claim.storage_class} does not exist" if claim.storage_class else "no StorageClass"
            return f"PersistentVolumeClaim {name} is not bound and has {wanted}"
        if chosen.unreadable:
            return f"StorageClass {claim.storage_class} cannot be read: {chosen.unreadable}"
        if chosen.topologies and not _readable(chosen.topologies):
            return f"StorageClass {claim.storage_class} allows no node: its allowedTopologies contradict themselves"
        return "" if chosen.waits else f"PersistentVolumeClaim {name} waits for StorageClass {claim.storage_class}"

    def reachable(self, pod: Pod) -> tuple[Requirements, ...]:
        """Where all volumes can be attached: alternatives, of which one must hold; () = anywhere.

        If every combination contradicts itself, one that nothing meets is given.
        """
        each = [found for name in pod.volume_claims if (found := self._reachable(pod, name))]
        if not each:
            return ()
        combined = (conjunction(one for part in parts for one in part) for parts in product(*each))
        possible = tuple(one for one in combined if one is not None)
        return possible or (Requirements().intersection(one for parts in each for one in parts[0]),)

    def _reachable(self, pod: Pod, name: str) -> list[Requirements]:
        claim = self._claims.get(f"{pod.metadata.namespace}/{name}")
        if claim is None:
            return []
        home: Volume | StorageClass | None = self._volumes.get(claim.volume) if claim.volume else self._class_of(claim)
        if home is None:
            return []
        return _readable(home.reachable if isinstance(home, Volume) else home.topologies)

    def _class_of(self, claim: VolumeClaim) -> StorageClass | None:
        return self._classes.get(claim.storage_class or "")

    def attachments(self, pod: Pod, key: str = "") -> Attached:
        """What the pod attaches, by driver; volumes that need no attachment are left out.

        ``key``: of the pod among its equals, when it has got its place: from then on its stand-ins are its own.
        """
        found: dict[str, set[str]] = {}
        for name in pod.volume_claims:
            claim = f"{pod.metadata.namespace}/{name}"
            driver = self._driver(self._claims.get(claim))
            if driver:
                found.setdefault(driver, set()).add(claim + key if name.startswith(_STAND_IN) else claim)
        return {driver: frozenset(claims) for driver, claims in found.items()}

    def _driver(self, claim: VolumeClaim | None) -> str:
        if claim is None:
            return ""
        if claim.volume:
            volume = self._volumes.get(claim.volume)
            return volume.driver if volume else ""
        chosen = self._class_of(claim)
        return chosen.provisioner if chosen else ""

    def slots(self, pod: Pod, shared: Container[str]) -> dict[str, int]:
        """What the pod's volumes take up on a new node, as resources. ``shared``: claims of several pods, which are
        left out: wherever those pods are together, they attach them once."""
        return {
            slot(driver): count
            for driver, claims in sorted(self.attachments(pod).items())
            if (count := sum(claim not in shared for claim in claims))
        }

    def full(self, host: Host, before: Attached, more: Attached) -> bool:
        """True when a node cannot attach these beside what it has."""
        limits = self._limits.get(host.name, host.attachable)
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
        for name in set(pod.volume_claims)
        if not name.startswith(_STAND_IN)
    )
    return frozenset(claim for claim, count in users.items() if count > 1)


def together(one: Attached, other: Attached) -> Attached:
    drivers = {**one, **other}
    return {driver: one.get(driver, frozenset()) | other.get(driver, frozenset()) for driver in drivers}


def _readable(alternatives: Alternatives) -> list[Requirements]:
    found = []
    for term in alternatives:
        try:
            wanted = conjunction(one.requirement() for one in term)
        except RequirementError:
            continue
        if wanted is not None:
            found.append(wanted)
    return found


def attached(pods: Iterable[Pod], disks: Disks) -> Attached:
    """What the pods of a node attach between them."""
    total: Attached = {}
    for pod in pods:
        if pod.volume_claims:
            total = together(total, disks.attachments(pod))
    return total
