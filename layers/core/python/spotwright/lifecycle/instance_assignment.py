"""Which instance of a launch becomes which NodeClaim, and in which capacity reservation it runs."""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from spotwright.model import labels
from spotwright.model.ec2.fleet import FleetError, FleetResult, Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim


def is_awaiting_instance(claim: NodeClaim, uid: str) -> bool:
    """Whether the claim with this uid has no instance yet and is not being deleted."""
    return claim.metadata.uid == uid and claim.metadata.deletion_timestamp is None and not claim.provider_id


def assign_instances(
    claims: Collection[str], assigned: Mapping[str, str], instance_ids: Iterable[str]
) -> dict[str, str]:
    """``assigned`` (claim → instance) and the other instances: sorted ids go to sorted names of claims.

    Instances without a claim, and claims without an instance, are left out.
    """
    waiting_claims = sorted(set(claims) - set(assigned))
    new_instances = sorted(set(instance_ids) - set(assigned.values()))
    return dict(assigned) | dict(zip(waiting_claims, new_instances, strict=False))


def attribute_reservations(result: FleetResult, reservations: Mapping[str, str]) -> FleetResult:
    """The answer of CreateFleet with the capacity reservation of its instances and errors.

    ``reservations``: ``<type>/<zone>`` → id, as in the request; EC2 answers type and zone, and calls them on-demand.
    """
    if not reservations:
        return result
    instances = tuple(with_reservation(instance, reservations) for instance in result.instances)
    return FleetResult(instances, tuple(with_reservation(error, reservations) for error in result.errors))


def with_reservation[T: (Instance, FleetError)](answer: T, reservations: Mapping[str, str]) -> T:
    """The instance or error in the reservation of its type and zone, which a launch targets exclusively."""
    id = reservations.get(f"{answer.instance_type}/{answer.zone}", "")
    return msgspec.structs.replace(answer, capacity_type=labels.RESERVED, reservation_id=id) if id else answer
