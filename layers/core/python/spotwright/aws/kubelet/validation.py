"""What is wrong with a class' kubelet configuration, as sentences.

Source: https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ and the rules Karpenter documents for
``spec.kubelet``. Expressions (CEL) need Karpenter's feature gate NodeClassCEL.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Final

from spotwright.aws.kubelet import fields
from spotwright.model import quantity
from spotwright.model.quoting import quote

EVICTION_SIGNALS: Final = frozenset(
    {
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "imagefs.available",
        "imagefs.inodesFree",
        "pid.available",
    }
)
RESERVABLE_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pid"})
_RESERVED: Final = ("kubeReserved", "systemReserved")
_COUNTS: Final = ("maxPods", "podsPerCore", "evictionMaxPodGracePeriod")
_PERCENTAGES: Final = ("imageGCHighThresholdPercent", "imageGCLowThresholdPercent")


def kubelet_errors(kubelet: Mapping[str, object]) -> tuple[str, ...]:
    """Every problem, each naming its field; empty = fine."""
    return (
        *fields.field_errors(kubelet),
        *_forbidden_field_errors(kubelet),
        *_count_errors(kubelet),
        *_reserved_amount_errors(kubelet),
        *_eviction_errors(kubelet),
        *_percentage_errors(kubelet),
    )


def _forbidden_field_errors(kubelet: Mapping[str, object]) -> Iterator[str]:
    if "registerWithTaints" in kubelet:
        yield "spec.kubelet.registerWithTaints: taints belong on the NodePool"


def expression_fields(kubelet: Mapping[str, object]) -> tuple[str, ...]:
    """Fields that hold a formula in place of an amount, each with it."""
    max_pods = kubelet.get("maxPods")
    expressions = [f"spec.kubelet.maxPods: {quote(max_pods)}"] if isinstance(max_pods, str) else []
    for name in _RESERVED:
        amounts = kubelet.get(name)
        for resource, value in amounts.items() if isinstance(amounts, Mapping) else ():
            if isinstance(value, str) and not value.startswith("-") and not _is_amount(value):
                expressions.append(f"spec.kubelet.{name}.{resource}: {quote(value)}")
    return tuple(expressions)


def _count_errors(kubelet: Mapping[str, object]) -> Iterator[str]:
    for name in _COUNTS:
        value = kubelet.get(name)
        if isinstance(value, int) and value < 0:
            yield f"spec.kubelet.{name}: must not be negative, found {quote(value)}"


def _reserved_amount_errors(kubelet: Mapping[str, object]) -> Iterator[str]:
    for name in _RESERVED:
        for resource, value in _text_entries(kubelet, name):
            if resource not in RESERVABLE_RESOURCES:
                yield f"spec.kubelet.{name}.{resource}: allowed are {', '.join(sorted(RESERVABLE_RESOURCES))}"
            elif not _is_amount(value):
                yield f"spec.kubelet.{name}.{resource}: {quote(value)} is not an amount such as 100m or 500Mi"


def _text_entries(kubelet: Mapping[str, object], name: str) -> tuple[tuple[str, str], ...]:
    """The entries of a map of texts; ``field_errors`` reports values of another kind."""
    given = kubelet.get(name)
    if not isinstance(given, Mapping):
        return ()
    return tuple((key, value) for key, value in given.items() if isinstance(value, str))


def _eviction_errors(kubelet: Mapping[str, object]) -> Iterator[str]:
    for name in ("evictionHard", "evictionSoft", "evictionMinimumReclaim"):
        for signal, value in _text_entries(kubelet, name):
            if signal not in EVICTION_SIGNALS:
                yield f"spec.kubelet.{name}.{signal}: allowed are {', '.join(sorted(EVICTION_SIGNALS))}"
            elif not _is_threshold(value):
                yield f"spec.kubelet.{name}.{signal}: {quote(value)} is neither an amount nor a percentage up to 100%"
    for signal, value in _text_entries(kubelet, "evictionSoftGracePeriod"):
        if signal not in EVICTION_SIGNALS:
            yield f"spec.kubelet.evictionSoftGracePeriod.{signal}: allowed are {', '.join(sorted(EVICTION_SIGNALS))}"
        elif not fields.is_duration(value):
            yield f"spec.kubelet.evictionSoftGracePeriod.{signal}: {quote(value)} is not a duration such as 1m30s"
    soft, grace = kubelet.get("evictionSoft") or {}, kubelet.get("evictionSoftGracePeriod") or {}
    if isinstance(soft, Mapping) and isinstance(grace, Mapping) and set(soft) != set(grace):
        yield "spec.kubelet.evictionSoft: needs the same signals as evictionSoftGracePeriod"


def _percentage_errors(kubelet: Mapping[str, object]) -> Iterator[str]:
    given = {name: value for name in _PERCENTAGES if isinstance(value := kubelet.get(name), int)}
    for name, value in given.items():
        if not 0 <= value <= 100:
            yield f"spec.kubelet.{name}: must be from 0 to 100, found {quote(value)}"
            return
    high, low = (given.get(name) for name in _PERCENTAGES)
    if isinstance(high, int) and isinstance(low, int) and high <= low:
        yield "spec.kubelet.imageGCHighThresholdPercent: must be greater than imageGCLowThresholdPercent"


def _is_amount(value: object) -> bool:
    try:
        return not isinstance(value, bool) and quantity.parse(str(value)) >= 0
    except quantity.QuantityError:
        return False


def _is_threshold(value: object) -> bool:
    text = str(value)
    if not text.endswith("%"):
        return _is_amount(value)
    try:
        return 0 <= Fraction(text.removesuffix("%")) <= 100
    except (ValueError, ZeroDivisionError):
        return False
