"""Who changes what is shipped changes the schema: an older forwarder would leave a new field at its default."""

import hashlib
from typing import Any

from msgspec import inspect

from spotwright.adapters.cluster_state.pod_columns import PodColumns
from spotwright.model.cluster_state import SCHEMA, ClusterObjects, ClusterStateHead

# Schema → what it is made of.
FIELDS = {1: "a700890cb590003b"}


def _describe(kind: Any, known: set[type]) -> str:
    """The wire form of a type: names and types of fields, in their order."""
    if isinstance(kind, inspect.StructType):
        if kind.cls in known:
            return kind.cls.__name__
        known.add(kind.cls)
        fields = ",".join(f"{field.encode_name}:{_describe(field.type, known)}" for field in kind.fields)
        return f"{kind.cls.__name__}({fields})"
    parts = [getattr(kind, name) for name in ("item_type", "key_type", "value_type") if hasattr(kind, name)]
    parts += [part for name in ("item_types", "types") for part in getattr(kind, name, ())]
    return f"{type(kind).__name__}[{','.join(_describe(part, known) for part in parts)}]"


def test_the_schema_changes_with_what_is_shipped() -> None:
    known = set[type]()
    described = [_describe(inspect.type_info(kind), known) for kind in (ClusterStateHead, ClusterObjects, PodColumns)]
    digest = hashlib.sha256("\n".join(described).encode()).hexdigest()[:16]
    assert FIELDS.get(SCHEMA) == digest, f"raise SCHEMA in model/cluster_state.py and add it here with {digest}"
