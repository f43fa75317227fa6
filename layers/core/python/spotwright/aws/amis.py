"""Which images a class means, one per architecture and variant, and which of them an instance type starts from."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from spotwright.aws import ami_parameters
from spotwright.aws.ami_parameters import Parameter
from spotwright.aws.refusal import Refusal
from spotwright.model import labels
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.karpenter.nodeclass import AMI, SelectorTerm
from spotwright.model.requirements import NodeSelectorRequirement, Operator, Requirements, from_expressions


class Image(msgspec.Struct, frozen=True):
    """An image as EC2 describes it. ``created``, ``deprecation``: ISO 8601 times, the latter "" when none is set.

    ``architecture``: x86_64 | arm64.
    """

    id: str
    name: str
    created: str
    architecture: str
    deprecation: str = ""

    def deprecated(self, now: datetime) -> bool:
        return bool(self.deprecation) and datetime.fromisoformat(self.deprecation) <= now


class Query(msgspec.Struct, frozen=True):
    """What has to be asked to resolve a class' AMI terms.

    ``parameters``: SSM parameters whose value is an image id; requirements () = whatever the image's architecture is.
    ``ids``: images named by id. ``terms``: the rest, one question each.
    """

    parameters: tuple[Parameter, ...] = ()
    ids: tuple[str, ...] = ()
    terms: tuple[SelectorTerm, ...] = ()


def query(terms: Iterable[SelectorTerm], version: str) -> Query | Refusal:
    """The questions behind AMI terms on Kubernetes ``version``; a Refusal for an alias that means nothing."""
    named: list[Parameter] = []
    ids: list[str] = []
    rest: list[SelectorTerm] = []
    for term in terms:
        if term.alias:
            aliased = ami_parameters.of_alias(term.alias, version)
            if isinstance(aliased, Refusal):
                return aliased
            named.extend(aliased)
        elif term.ssm_parameter:
            named.append(Parameter(term.ssm_parameter, ()))
        elif term.id:
            ids.append(term.id)
        else:
            rest.append(term)
    return Query(tuple(named), tuple(ids), tuple(rest))


def resolved(asked: Query, values: Mapping[str, str], images: Iterable[Image], *, now: datetime) -> tuple[AMI, ...]:
    """The class' images from the answers. ``values``: SSM parameter → image id; anything else there is skipped."""
    known: dict[str, list[tuple[NodeSelectorRequirement, ...]]] = {}
    for one in asked.parameters:
        if values.get(one.path, "").startswith("ami-"):
            known.setdefault(values[one.path], []).append(one.requirements)
    found = [
        (image, wanted or architecture_requirement(image.architecture))
        for image in images
        for wanted in known.get(image.id, [()])
    ]
    return chosen(found, now=now)


def chosen(found: Iterable[tuple[Image, tuple[NodeSelectorRequirement, ...]]], *, now: datetime) -> tuple[AMI, ...]:
    """One image per requirement set: not deprecated before deprecated, then newest, then name; newest first."""
    best: dict[tuple[NodeSelectorRequirement, ...], Image] = {}
    for image, requirements in found:
        if requirements not in best or _rank(image, now) < _rank(best[requirements], now):
            best[requirements] = image
    ordered = sorted(best.items(), key=lambda item: (_newest_first(item[1].created), item[1].id))
    return tuple(AMI(image.id, image.name, image.deprecated(now), requirements) for requirements, image in ordered)


def _rank(image: Image, now: datetime) -> tuple[bool, tuple[int, ...], str, str]:
    return (image.deprecated(now), _newest_first(image.created), image.name, image.id)


def _newest_first(created: str) -> tuple[int, ...]:
    """A sort key that puts the later of two ISO 8601 times first."""
    return tuple(-ord(letter) for letter in created)


def architecture_requirement(architecture: str) -> tuple[NodeSelectorRequirement, ...]:
    """What an image that a user named asks of instance types: only its architecture."""
    return (
        NodeSelectorRequirement(
            labels.ARCH, Operator.IN, (ami_parameters.ARCHITECTURES.get(architecture, architecture),)
        ),
    )


def for_type(amis: Sequence[tuple[AMI, Requirements]], instance_type: InstanceType) -> AMI | None:
    """The first image, in the order given, whose requirements the type meets; None when there is none."""
    return next((ami for ami, wanted in amis if instance_type.requirements.is_compatible(wanted)), None)


def demands(amis: Iterable[AMI]) -> tuple[tuple[AMI, Requirements], ...]:
    """Images with their requirements read, to ask ``for_type`` many times."""
    return tuple((ami, from_expressions(ami.requirements)) for ami in amis)
