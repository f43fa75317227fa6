"""Which image a class means: an alias is a set of SSM parameters, each for one architecture and variant.

Source: https://docs.aws.amazon.com/eks/latest/userguide/retrieve-ami-id.html (SSM parameter paths) and
https://docs.aws.amazon.com/eks/latest/userguide/retrieve-ami-id-bottlerocket.html.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from spotwright.aws.refusal import Refusal
from spotwright.model import labels
from spotwright.model.instancetype import InstanceType
from spotwright.model.nodeclass import Ami, SelectorTerm
from spotwright.model.requirements import Operator, Requirements, Selector, from_selectors

GPU_COUNT: Final = labels.INSTANCE_PREFIX + "gpu-count"
ACCELERATOR_COUNT: Final = labels.INSTANCE_PREFIX + "accelerator-count"

_ALIAS: Final = re.compile(r"(?P<family>[a-z0-9]+)@(?P<version>\S+)")
_ARCHITECTURES: Final = {"x86_64": "amd64", "arm64": "arm64"}


class Parameter(msgspec.Struct, frozen=True):
    """An SSM parameter that holds an image id, and which instance types that image is for."""

    path: str
    requirements: tuple[Selector, ...]


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
            aliased = parameters(term.alias, version)
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


def resolved(asked: Query, values: Mapping[str, str], images: Iterable[Image], *, now: datetime) -> tuple[Ami, ...]:
    """The class' images from the answers. ``values``: SSM parameter → image id; anything else there is skipped."""
    known = {
        values[one.path]: one.requirements
        for one in reversed(asked.parameters)
        if values.get(one.path, "").startswith("ami-")
    }
    found = [(image, known.get(image.id) or architecture_requirement(image.architecture)) for image in images]
    return chosen(found, now=now)


def parameters(alias: str, version: str) -> tuple[Parameter, ...] | Refusal:
    """The parameters of an alias such as ``al2023@latest`` on Kubernetes ``version`` (major.minor)."""
    found = _ALIAS.fullmatch(alias)
    if found is None:
        return Refusal("UnsupportedAlias", f"alias {alias!r}: must look like al2023@latest or al2023@v20250821")
    match found["family"]:
        case "al2023":
            return _al2023(version, found["version"])
        case "bottlerocket":
            return _bottlerocket(version, found["version"])
        case "al2" if _number(version) >= (1, 33):
            return Refusal("UnsupportedAlias", f"alias {alias!r}: there is no AL2 image for Kubernetes {version}")
    return Refusal("UnsupportedAlias", f"alias {alias!r}: this family is not supported yet; use al2023@latest")


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _al2023(kubernetes: str, release: str) -> tuple[Parameter, ...]:
    root = f"/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023"
    made = []
    for architecture, variants in {"x86_64": ("standard", "nvidia", "neuron"), "arm64": ("standard", "nvidia")}.items():
        for variant in variants:
            name = f"amazon-eks-node-al2023-{architecture}-{variant}-{kubernetes}-{release}"
            leaf = "recommended" if release == "latest" else name
            path = f"{root}/{architecture}/{variant}/{leaf}/image_id"
            made.append(Parameter(path, variant_requirements(architecture, variant)))
    return tuple(made)


def _bottlerocket(kubernetes: str, release: str) -> tuple[Parameter, ...]:
    made = []
    for architecture in ("x86_64", "arm64"):
        for variant, suffix in (("standard", ""), ("nvidia", "-nvidia")):
            leaf = release.removeprefix("v")
            path = f"/aws/service/bottlerocket/aws-k8s-{kubernetes}{suffix}/{architecture}/{leaf}/image_id"
            made.append(Parameter(path, variant_requirements(architecture, variant)))
    return tuple(made)


def variant_requirements(architecture: str, variant: str) -> tuple[Selector, ...]:
    """The instance types a variant is for: standard has no GPU and no accelerator; sorted by length, then key."""
    arch = Selector(labels.ARCH, Operator.IN, (_ARCHITECTURES[architecture],))
    match variant:
        case "nvidia":
            return (arch, Selector(GPU_COUNT, Operator.EXISTS))
        case "neuron":
            return (arch, Selector(ACCELERATOR_COUNT, Operator.EXISTS))
    absent = Operator.DOES_NOT_EXIST
    return (arch, Selector(GPU_COUNT, absent), Selector(ACCELERATOR_COUNT, absent))


def chosen(found: Iterable[tuple[Image, tuple[Selector, ...]]], *, now: datetime) -> tuple[Ami, ...]:
    """One image per requirement set: not deprecated before deprecated, then newest, then name; newest first."""
    best: dict[tuple[Selector, ...], Image] = {}
    for image, requirements in found:
        if requirements not in best or _rank(image, now) < _rank(best[requirements], now):
            best[requirements] = image
    ordered = sorted(best.items(), key=lambda item: (_newest_first(item[1].created), item[1].id))
    return tuple(Ami(image.id, image.name, image.deprecated(now), requirements) for requirements, image in ordered)


def _rank(image: Image, now: datetime) -> tuple[bool, tuple[int, ...], str, str]:
    return (image.deprecated(now), _newest_first(image.created), image.name, image.id)


def _newest_first(created: str) -> tuple[int, ...]:
    """A sort key that puts the later of two ISO 8601 times first."""
    return tuple(-ord(letter) for letter in created)


def architecture_requirement(architecture: str) -> tuple[Selector, ...]:
    """What an image that a user named asks of instance types: only its architecture."""
    return (Selector(labels.ARCH, Operator.IN, (_ARCHITECTURES.get(architecture, architecture),)),)


def for_type(amis: Sequence[tuple[Ami, Requirements]], instance_type: InstanceType) -> Ami | None:
    """The first image, in the order given, whose requirements the type meets; None when there is none."""
    return next((ami for ami, wanted in amis if instance_type.requirements.compatible(wanted)), None)


def demands(amis: Iterable[Ami]) -> tuple[tuple[Ami, Requirements], ...]:
    """Images with their requirements read, to ask ``for_type`` many times."""
    return tuple((ami, from_selectors(ami.requirements)) for ami in amis)
