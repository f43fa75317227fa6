"""What an API server may write its answers in.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#alternate-representations-of-resources
"""

from typing import Final

JSON: Final = "application/json"
# JSON from whoever does not write Protobuf.
PROTOBUF: Final = "application/vnd.kubernetes.protobuf, application/json"
# What an answer in Protobuf begins with.
PROTOBUF_PREFIX: Final = b"k8s\x00"


def is_protobuf(content: bytes) -> bool:
    return content.startswith(PROTOBUF_PREFIX)
