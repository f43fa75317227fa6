"""What is asked of the API server about an object: its path, and what may stand in selectors.

Names come from texts that the API server does not check, such as the claim of a pod's volume, and from a cluster state
that may lie. One with a slash, a question mark or dots alone would lead to another object; in a selector one with a
comma selects others, and one with an equals sign is refused.
"""

import re
from typing import Final

from spotwright.errors import NotFound
from spotwright.model.quoting import quote

# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")
# https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


def is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Of a label that says something: it may be empty as well."""
    return _LABEL_VALUE.fullmatch(text) is not None


def object_path(collection: str, name: str, namespace: str = "") -> str:
    """``collection``: the path of all objects of the kind. Raises NotFound for what cannot be a name."""
    for text in (namespace, name) if namespace else (name,):
        if not is_name(text):
            raise NotFound(f"{collection}: no object has the name {quote(text)}", code="NotFound")
    root, _, plural = collection.rpartition("/")
    return f"{root}/namespaces/{namespace}/{plural}/{name}" if namespace else f"{collection}/{name}"
