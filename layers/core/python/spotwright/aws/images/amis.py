"""Which images a class means, one per architecture and variant, and which of them an instance type starts from."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from spotwright.aws.images import aliases
from spotwright.aws.images.aliases import ImageParameter
from spotwright.aws.refusal import Refusal
from spotwright.model import labels
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.karpenter.nodeclass import AMI, SelectorTerm
from spotwright.model.requirements import NodeSelectorRequirement, Operator, Requirements, from_expressions


class Image(msgspec.Struct, frozen=True):
    """An image as EC2 describes it. ``architecture``: x86_64 | arm64.

    ``creation_date``, ``deprecation_time``: ISO 8601 times, the latter "" when none is set.
    """

    id: str
    name: str
    creation_date: str
    architecture: str
    deprecation_time: str = ""

    def is_deprecated(self, now: datetime) -> bool:
        return bool(self.deprecation_time) and datetime.fromisoformat(self.deprecation_time) <= now


class ImageQuery(msgspec.Struct, frozen=True):
    """What SSM and EC2 must be asked to resolve the amiSelectorTerms of an EC2NodeClass.

    ``parameters``: SSM parameters whose value is an image id; requirements () = the image's architecture decides.
    ``ids``: images named by id. ``terms``: all other terms, a DescribeImages query for each.
    """

    parameters: tuple[ImageParameter, ...] = ()
    ids: tuple[str, ...] = ()
    terms: tuple[SelectorTerm, ...] = ()


def image_query(terms: Iterable[SelectorTerm], kubernetes_version: str) -> ImageQuery | Refusal:
    """What to ask SSM and EC2 for AMI selector terms; a Refusal for an alias that stands for no image."""
    named: list[ImageParameter] = []
    ids: list[str] = []
    rest: list[SelectorTerm] = []
    for term in terms:
        if term.alias:
            aliased = aliases.alias_parameters(term.alias, kubernetes_version)
            if isinstance(aliased, Refusal):
                return aliased
            named.extend(aliased)
        elif term.ssm_parameter:
            named.append(ImageParameter(term.ssm_parameter, ()))
        elif term.id:
            ids.append(term.id)
        else:
            rest.append(term)
    return ImageQuery(tuple(named), tuple(ids), tuple(rest))


def resolve_amis(
    query: ImageQuery, values: Mapping[str, str], images: Iterable[Image], *, now: datetime
) -> tuple[AMI, ...]:
    """The class' images from the answers. ``values``: SSM parameter → image id; other values are skipped."""
    requirements_by_id: dict[str, list[tuple[NodeSelectorRequirement, ...]]] = {}
    for parameter in query.parameters:
        if values.get(parameter.path, "").startswith("ami-"):
            requirements_by_id.setdefault(values[parameter.path], []).append(parameter.requirements)
    candidates = [
        (image, requirements or architecture_requirements(image.architecture))
        for image in images
        for requirements in requirements_by_id.get(image.id, [()])
    ]
    return select_newest(candidates, now=now)


def select_newest(
    candidates: Iterable[tuple[Image, tuple[NodeSelectorRequirement, ...]]], *, now: datetime
) -> tuple[AMI, ...]:
    """One image per requirement set: not deprecated before deprecated, then newest, then name; newest first."""
    best: dict[tuple[NodeSelectorRequirement, ...], Image] = {}
    for image, requirements in candidates:
        if requirements not in best or _rank(image, now) < _rank(best[requirements], now):
            best[requirements] = image
    ordered = sorted(best.items(), key=lambda item: (_newest_first(item[1].creation_date), item[1].id))
    return tuple(AMI(image.id, image.name, image.is_deprecated(now), requirements) for requirements, image in ordered)


def _rank(image: Image, now: datetime) -> tuple[bool, tuple[int, ...], str, str]:
    return (image.is_deprecated(now), _newest_first(image.creation_date), image.name, image.id)


def _newest_first(created: str) -> tuple[int, ...]:
    """A sort key that puts the later of two ISO 8601 times first."""
    return tuple(-ord(letter) for letter in created)


def architecture_requirements(architecture: str) -> tuple[NodeSelectorRequirement, ...]:
    """What an image that a user named by id or tags requires of instance types: only its architecture."""
    return (
        NodeSelectorRequirement(labels.ARCH, Operator.IN, (aliases.ARCHITECTURES.get(architecture, architecture),)),
    )


def ami_for_type(amis: Sequence[tuple[AMI, Requirements]], instance_type: InstanceType) -> AMI | None:
    """The first image, in the order given, whose requirements the type meets; None when there is none."""
    return next((ami for ami, wanted in amis if instance_type.requirements.is_compatible(wanted)), None)


def amis_with_requirements(amis: Iterable[AMI]) -> tuple[tuple[AMI, Requirements], ...]:
    """Images with their requirements decoded, as ``ami_for_type`` takes them."""
    return tuple((ami, from_expressions(ami.requirements)) for ami in amis)
