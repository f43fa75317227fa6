"""The parts of ``spec.kubelet`` that an instance type's capacity depends on, with expressions evaluated for the type.

``maxPods`` and reserved amounts may be expressions where the gate NodeClassCEL is on. Source: Karpenter's concepts
(NodeClasses, ``spec.kubelet``): cpu in millicores rounded up to 10m, memory in Mi rounded up to 16Mi,
ephemeral-storage in Gi, others as they are.
"""

from collections.abc import Mapping
from typing import Final

from spotwright.aws.kubelet import cel
from spotwright.aws.kubelet.cel_values import ExpressionError
from spotwright.model import quantity, resources
from spotwright.model.quoting import quote

# Resource → (steps it is rounded up to, unit it is written in).
_UNITS: Final = {
    resources.CPU: (10, "m"),
    resources.MEMORY: (16, "Mi"),
    resources.EPHEMERAL_STORAGE: (1, "Gi"),
}
_MOST_PODS: Final = 2**31 - 1
RESERVED_FIELDS: Final = ("kubeReserved", "systemReserved")


class KubeletError(ValueError):
    """A ``maxPods`` that has no usable value for an instance type; names type, expression and reason."""


class KubeletConfiguration:
    """A raw KubeletConfiguration for an instance type. ``variables`` None: expressions are ignored."""

    def __init__(self, raw: Mapping[str, object], variables: cel.Variables | None = None) -> None:
        self._raw, self._variables = raw, variables

    def max_pods(self) -> int | None:
        """None = not stated. Raises KubeletError for an expression without a usable value."""
        value = self._raw.get("maxPods")
        if not isinstance(value, str) or self._variables is None:
            return self.number("maxPods")
        try:
            pods = cel.evaluate(value, self._variables)
        except ExpressionError as error:
            raise KubeletError(f"spec.kubelet.maxPods for {self._variables.get('instance_type')}: {error}") from None
        if not 0 <= pods <= _MOST_PODS:
            name = self._variables.get("instance_type")
            raise KubeletError(
                f"spec.kubelet.maxPods for {name}: {quote(value)} is {pods}; allowed are 0 to {_MOST_PODS}"
            )
        return pods

    def number(self, name: str) -> int | None:
        value = self._raw.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def with_max_pods(self, pods: int) -> "KubeletConfiguration":
        """With the variable ``max_pods``, which expressions of reserved amounts may name."""
        if self._variables is None:
            return self
        return KubeletConfiguration(self._raw, {**self._variables, "max_pods": pods})

    def reserved_amounts(self, name: str) -> dict[str, int]:
        """A map of reserved amounts, e.g. kubeReserved, without expressions that have no value for the type."""
        return {resource: quantity.amount(resource, text) for resource, text in self.reserved_texts(name).items()}

    def reserved_texts(self, name: str) -> dict[str, str]:
        """The map of reserved amounts as the node's kubelet gets it."""
        given = self._raw.get(name)
        texts = {}
        for resource, value in (given if isinstance(given, Mapping) else {}).items():
            text = self._render(str(resource), str(value))
            if text is not None:
                texts[str(resource)] = text
        return texts

    def _render(self, resource: str, stated: str) -> str | None:
        if _is_amount(resource, stated):
            return stated
        if self._variables is None:
            return None
        try:
            result = cel.evaluate(stated, self._variables)
        except ExpressionError:
            return None
        step, unit = _UNITS.get(resource, (1, ""))
        text = f"{-(-result // step) * step}{unit}"
        return text if result >= 0 and _is_amount(resource, text) else None

    def expression_errors(self) -> tuple[str, ...]:
        """Reserved amounts that have no value for the type, as sentences; a negative result is no error."""
        if self._variables is None:
            return ()
        errors, name = [], self._variables.get("instance_type")
        for field, resource, text in self._expressions():
            try:
                cel.evaluate(text, self._variables)
            except ExpressionError as error:
                errors.append(f"spec.kubelet.{field}.{resource} for {name}: {error}")
        return tuple(errors)

    def _expressions(self) -> list[tuple[str, str, str]]:
        """(map, resource, text) of reserved amounts that are not plain amounts."""
        maps = [(name, given) for name in RESERVED_FIELDS if isinstance(given := self._raw.get(name), Mapping)]
        stated = ((name, str(key), str(text)) for name, given in maps for key, text in given.items())
        return [(name, key, text) for name, key, text in stated if not _is_amount(key, text)]

    @property
    def has_expressions(self) -> bool:
        """Whether a reserved amount is not a plain amount."""
        return bool(self._expressions())

    def eviction_threshold(self, signal: str) -> str | None:
        given = self._raw.get("evictionHard")
        value = given.get(signal) if isinstance(given, Mapping) else None
        return None if value is None else str(value)


def _is_amount(resource: str, text: str) -> bool:
    try:
        quantity.amount(resource, text)
    except quantity.QuantityError:
        return False
    return True


# Any instance type will do to learn whether an expression can be evaluated.
_EXAMPLE_TYPE: Final[cel.Variables] = {
    "vcpus": 64, "memory_mib": 2**18, "default_enis": 8, "ips_per_eni": 30, "max_pods": 110,
    "instance_type": "m5.16xlarge",
}  # fmt: skip


def substitute_expressions(raw: Mapping[str, object]) -> tuple[dict[str, object], tuple[str, ...]]:
    """The configuration with amounts in place of expressions, and expressions without a value, as sentences."""
    substituted, errors = dict(raw), list[str]()
    if isinstance(raw.get("maxPods"), str):
        substituted["maxPods"] = 0
        errors += _expression_error("maxPods", str(raw["maxPods"]))
    for name in RESERVED_FIELDS:
        amounts = raw.get(name)
        if isinstance(amounts, Mapping):
            kept = {
                key: value for key, value in amounts.items() if not isinstance(value, str) or _is_amount(key, value)
            }
            substituted[name] = dict.fromkeys(amounts, "0") | kept
            for key in amounts.keys() - kept.keys():
                errors += _expression_error(f"{name}.{key}", amounts[key])
    return substituted, tuple(sorted(errors))


def _expression_error(field: str, text: str) -> list[str]:
    try:
        cel.evaluate(text, _EXAMPLE_TYPE)
    except ExpressionError as error:
        return [f"spec.kubelet.{field}: {error}"]
    return []
