"""The smallest object of each kind before v1, and what conversion makes of one with some fields set."""

from typing import Any

import pytest

from spotwright.conversion.convert import ConversionResult, convert
from spotwright.conversion.remarks import ConversionError, Level

type Object = dict[str, Any]

SELECTED: Object = {"subnetSelector": {"a": "b"}, "securityGroupSelector": {"a": "b"}, "instanceProfile": "p"}
REFERENCE: Object = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"}


def provisioner(name: str = "a", **spec: Any) -> Object:
    """It refers to a template ``c`` unless it has a provider."""
    reference = {} if "provider" in spec else {"providerRef": {"name": "c"}}
    return {
        "apiVersion": "karpenter.sh/v1alpha5", "kind": "Provisioner", "metadata": {"name": name},
        "spec": {**reference, **spec},
    }  # fmt: skip


def template(name: str = "c", **spec: Any) -> Object:
    """``spec`` replaces fields; None takes one away."""
    fields = {key: value for key, value in {**SELECTED, **spec}.items() if value is not None}
    version = "karpenter.k8s.aws/v1alpha1"
    return {"apiVersion": version, "kind": "AWSNodeTemplate", "metadata": {"name": name}, "spec": fields}


def beta_pool(name: str = "a", *, claim: Object | None = None, **spec: Any) -> Object:
    """``claim``: fields of ``spec.template.spec``."""
    inner = {"nodeClassRef": {"name": "c"}, "requirements": [], **(claim or {})}
    version = "karpenter.sh/v1beta1"
    return {
        "apiVersion": version, "kind": "NodePool", "metadata": {"name": name},
        "spec": {"template": {"spec": inner}, **spec},
    }  # fmt: skip


def beta_class(name: str = "c", **spec: Any) -> Object:
    """``spec`` replaces fields; None takes one away."""
    defaults = {
        "amiFamily": "AL2023", "role": "r", "subnetSelectorTerms": [{"id": "subnet-1"}],
        "securityGroupSelectorTerms": [{"id": "sg-1"}],
    }  # fmt: skip
    fields = {key: value for key, value in {**defaults, **spec}.items() if value is not None}
    return {
        "apiVersion": "karpenter.k8s.aws/v1beta1",
        "kind": "EC2NodeClass",
        "metadata": {"name": name},
        "spec": fields,
    }


def spec_of(old: Object) -> Object:
    """``spec`` of the first object made."""
    spec: Object = convert([old]).objects[0][0]["spec"]
    return spec


def said(old: Object | ConversionResult, level: Level | None = None) -> dict[str, str]:
    """Remarks about the first object: field → text."""
    result = old if isinstance(old, ConversionResult) else convert([old])
    return {remark.path: remark.text for remark in result.remarks[0] if level in (None, remark.level)}


def refused(*objects: Object) -> str:
    """The error about the last of the objects."""
    with pytest.raises(ConversionError) as error:
        convert(objects)
    assert error.value.origin == len(objects) - 1
    return str(error.value)
