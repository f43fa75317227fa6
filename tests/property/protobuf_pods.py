"""Pods as an API server writes them in Protobuf."""

from datetime import datetime
from typing import Any, Final

from google.protobuf.message import Message

from spotwright.adapters.kubernetes.codecs import protobuf_messages
from spotwright.adapters.kubernetes.codecs.media_types import PROTOBUF_PREFIX

type Object = dict[str, Any]

# What comes before the list: its apiVersion and kind.
PAGE_BEGIN: Final = PROTOBUF_PREFIX + b"\x0a\x0d\x0a\x02v1\x12\x07PodList"


def page_of(pods: list[Object], *, following: str = "next", created: int | None = None) -> bytes:
    """Raises TypeError, ValueError and the like for pods that no API server holds, such as with fields of other types.

    ``created``: when the pods were made, in seconds of Unix; None = as they say.
    """
    answer = _message("PodList", {"metadata": {"continue": following, "resourceVersion": "7"}, "items": pods})
    for number, pod in enumerate(answer.raw.items):
        # podIP, which is not read.
        pod.status.MergeFromString(b"\x32\x0810.0.%03d" % number)
        if created is not None:
            pod.metadata.creationTimestamp.seconds = created
    content: bytes = answer.SerializeToString()
    return PAGE_BEGIN + content


def status_of(reason: str, message: str) -> bytes:
    """A refusal."""
    content: bytes = _message("Status", {"reason": reason, "message": message}).SerializeToString()
    return PROTOBUF_PREFIX + content


def _message(kind: str, content: Object) -> Any:
    answer = protobuf_messages._CLASSES[f"{kind}Answer"]()
    _fill(answer, {"raw": content})
    return answer


def _fill(message: Any, content: Object) -> None:
    """Sets the fields of a message that JSON has; those that it does not know are left out, as a parser does."""
    if not isinstance(content, dict):
        raise TypeError(f"{content} is no object")
    if message.DESCRIPTOR.name == "Volume":
        content = {**content, "volumeSource": {key: value for key, value in content.items() if key != "name"}}
    for field in message.DESCRIPTOR.fields:
        of_message, current = field.message_type, getattr(message, field.name)
        if field.name not in content or (content[field.name] is None and field.name.endswith("Timestamp")):
            continue
        value = content[field.name]
        if of_message is not None and of_message.GetOptions().map_entry:
            for key, inner in value.items():
                if isinstance(current[key], Message):
                    _fill_leaf(current[key], inner)
                else:
                    current[key] = inner
        elif field.is_repeated and of_message is None:
            current.extend(value)
        elif field.is_repeated:
            for inner in value:
                _fill(current.add(), inner)
        elif of_message is not None:
            current.SetInParent()
            _fill_leaf(current, value)
        else:
            setattr(message, field.name, value)


def _fill_leaf(message: Any, value: Any) -> None:
    """A quantity or a time, which are texts in JSON, or any other message."""
    match message.DESCRIPTOR.name:
        case "Quantity":
            # A whole number is a text as well to an API server.
            message.string = str(value) if type(value) is int and 0 <= value < 2**63 else value
        case "Time":
            message.seconds = int(datetime.fromisoformat(value).timestamp())
        case "EphemeralVolumeSource" if "volumeClaimTemplate" not in value:
            raise ValueError("volumeClaimTemplate is required")
        case _:
            _fill(message, value)
