"""The path of an object of the API server.

Names come from texts that the API server does not check, such as the claim of a pod's volume, and from a cluster state
that may lie. One with a slash, a question mark or dots alone would lead to another object.
"""

import re
from typing import Final

from spotwright.errors import NotFound
from spotwright.model.quoting import quote

# https://kubernetes.io/docs/concepts/overview/working-with-objects/names/#dns-subdomain-names
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")


def object_path(collection: str, name: str, namespace: str = "") -> str:
    """``collection``: the path of all objects of the kind. Raises NotFound for what cannot be a name."""
    for text in (namespace, name) if namespace else (name,):
        if not _NAME.fullmatch(text):
            raise NotFound(f"{collection}: no object has the name {quote(text)}", code="NotFound")
    root, _, plural = collection.rpartition("/")
    return f"{root}/namespaces/{namespace}/{plural}/{name}" if namespace else f"{collection}/{name}"
