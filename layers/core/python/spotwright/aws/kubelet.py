"""What is wrong with a class' kubelet configuration, as sentences.

Source: https://kubernetes.io/docs/reference/config-api/kubelet-config.v1beta1/ and the rules Karpenter documents for
``spec.kubelet``. Expressions (CEL) are not supported.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Final

from spotwright.model import quantity

SIGNALS: Final = frozenset(
    {
        "memory.available",
        "nodefs.available",
        "nodefs.inodesFree",
        "imagefs.available",
        "imagefs.inodesFree",
        "pid.available",
    }
)
RESERVABLE: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pid"})
_COUNTS: Final = ("maxPods", "podsPerCore", "evictionMaxPodGracePeriod")
_PERCENTAGES: Final = ("imageGCHighThresholdPercent", "imageGCLowThresholdPercent")


def problems(kubelet: Mapping[str, object]) -> tuple[str, ...]:
    """Every problem, each naming its field; empty = fine."""
    return (
        *_forbidden(kubelet),
        *_counts(kubelet),
        *_reserved(kubelet),
        *_evictions(kubelet),
        *_percentages(kubelet),
    )


def _forbidden(kubelet: Mapping[str, object]) -> Iterator[str]:
    if "registerWithTaints" in kubelet:
        yield "spec.kubelet.registerWithTaints: taints belong on the NodePool"


def _counts(kubelet: Mapping[str, object]) -> Iterator[str]:
    for name in _COUNTS:
        value = kubelet.get(name)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
            yield f"spec.kubelet.{name}: must be an integer that is not negative, found {value!r}"


def _reserved(kubelet: Mapping[str, object]) -> Iterator[str]:
    for name in ("kubeReserved", "systemReserved"):
        given = kubelet.get(name)
        if given is None:
            continue
        if not isinstance(given, Mapping):
            yield f"spec.kubelet.{name}: must be a map of amounts"
            continue
        for resource, value in given.items():
            if resource not in RESERVABLE:
                yield f"spec.kubelet.{name}.{resource}: allowed are {', '.join(sorted(RESERVABLE))}"
            elif not _is_amount(value):
                yield f"spec.kubelet.{name}.{resource}: {value!r} is not an amount such as 100m or 500Mi"


def _evictions(kubelet: Mapping[str, object]) -> Iterator[str]:
    for name in ("evictionHard", "evictionSoft", "evictionMinimumReclaim"):
        given = kubelet.get(name)
        if given is not None and not isinstance(given, Mapping):
            yield f"spec.kubelet.{name}: must be a map of thresholds"
            continue
        for signal, value in (given or {}).items() if isinstance(given, Mapping) else ():
            if signal not in SIGNALS:
                yield f"spec.kubelet.{name}.{signal}: allowed are {', '.join(sorted(SIGNALS))}"
            elif not _is_threshold(value):
                yield f"spec.kubelet.{name}.{signal}: {value!r} is neither an amount nor a percentage up to 100%"
    soft, grace = kubelet.get("evictionSoft") or {}, kubelet.get("evictionSoftGracePeriod") or {}
    if isinstance(soft, Mapping) and isinstance(grace, Mapping) and set(soft) != set(grace):
        yield "spec.kubelet.evictionSoft: needs the same signals as evictionSoftGracePeriod"


def _percentages(kubelet: Mapping[str, object]) -> Iterator[str]:
    given = {name: kubelet[name] for name in _PERCENTAGES if kubelet.get(name) is not None}
    for name, value in given.items():
        if not isinstance(value, int) or not 0 <= value <= 100:
            yield f"spec.kubelet.{name}: must be from 0 to 100, found {value!r}"
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
