"""How resource types reach AWS: boto3 against this very process, with the stack's role and name rules."""

import secrets
import string
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from botocore.exceptions import ClientError

from local.aws import loopback
from local.aws.cloudformation.intrinsics import PhysicalResource
from local.aws.emulator import Emulator
from local.aws.sts import callers

_ALPHABET = string.ascii_uppercase + string.digits


class ResourceFailed(Exception):
    """A resource could not be made, changed or deleted; `resource` is what exists nevertheless."""

    def __init__(self, reason: str, resource: PhysicalResource | None = None) -> None:
        super().__init__(reason)
        self.resource = resource


@dataclass
class Session:
    """One stack operation's way to AWS: clients with the role's rights (the administrator's without role)."""

    emulator: Emulator
    role: str
    _clients: dict[str, Any] = field(default_factory=dict)
    _credentials: callers.Credentials | None = None

    def client(self, service: str) -> Any:
        if self.role and self._credentials is None:
            self._credentials = callers.create_role_session(self.emulator, self.role, "AWSCloudFormation")
        if service not in self._clients:
            self._clients[service] = loopback.create_client(self.emulator, service, self._credentials)
        return self._clients[service]


@dataclass(frozen=True)
class HandlerRequest:
    """One resource's operation: who asks, and for which resource of which stack."""

    session: Session
    stack_name: str
    stack_id: str
    logical_id: str
    resource_type: str
    tags: Mapping[str, str]

    @property
    def emulator(self) -> Emulator:
        return self.session.emulator

    def client(self, service: str) -> Any:
        return self.session.client(service)

    def physical_name(self, max_length: int = 64) -> str:
        """A physical name as CloudFormation makes them: stack, logical id, twelve random characters."""
        suffix = "".join(secrets.choice(_ALPHABET) for _ in range(12))
        room = max_length - len(suffix) - 2
        stack = self.stack_name[: max(room - len(self.logical_id), room // 2)]
        return f"{stack}-{self.logical_id[: room - len(stack)]}-{suffix}"

    def tag_list(self, properties: Mapping[str, Any], key: str = "Key", value: str = "Value") -> list[dict[str, str]]:
        """The resource's tags over the stack's, as a list."""
        return [{key: name, value: text} for name, text in self.tag_map(properties).items()]

    def tag_map(self, properties: Mapping[str, Any]) -> dict[str, str]:
        own = properties.get("Tags", {})
        if isinstance(own, list):
            own = {tag["Key"]: tag["Value"] for tag in own}
        return {**self.tags, **own}


class ResourceType(Protocol):
    """Makes, changes and deletes resources of one type. Errors are ClientError or ResourceFailed.

    `supported_properties` are the properties it passes on; any other one is an error, not silently dropped.
    """

    @property
    def supported_properties(self) -> frozenset[str]: ...

    def create(self, request: HandlerRequest, properties: Mapping[str, Any]) -> PhysicalResource: ...

    def update(
        self,
        request: HandlerRequest,
        resource: PhysicalResource,
        properties: Mapping[str, Any],
        before: Mapping[str, Any],
    ) -> PhysicalResource: ...

    def delete(self, request: HandlerRequest, resource: PhysicalResource, properties: Mapping[str, Any]) -> None: ...


def pick(properties: Mapping[str, Any], *names: str) -> dict[str, Any]:
    """The named properties that are set."""
    return {name: properties[name] for name in names if name in properties}


def ignore_error(code: str, call: Callable[..., Any], **arguments: Any) -> None:
    """Call, and take the error with this code (prefix) for success: the thing is already gone."""
    try:
        call(**arguments)
    except ClientError as error:
        if not error.response["Error"]["Code"].startswith(code):
            raise


@contextmanager
def partial_creation(resource: PhysicalResource) -> Iterator[None]:
    """Further steps of a creation: when one fails, `resource` exists already and must be deleted."""
    try:
        yield
    except ClientError as error:
        raise ResourceFailed(failure_reason(error), resource) from None


def failure_reason(error: Exception) -> str:
    """An error as CloudFormation tells it in an event."""
    if isinstance(error, ClientError):
        answer = error.response
        code, request = answer["Error"].get("Code"), answer.get("ResponseMetadata", {}).get("RequestId", "")
        message = answer["Error"].get("Message", "")
        return f"{message} (Operation: {error.operation_name}; Error Code: {code}; Request ID: {request})"
    return str(error) or type(error).__name__


def update_tags(
    client_tag: Callable[[dict[str, str]], Any],
    client_untag: Callable[[list[str]], Any],
    before: Mapping[str, str],
    after: Mapping[str, str],
) -> None:
    """Bring tags from `before` to `after` with the service's tag and untag calls."""
    new = {name: text for name, text in after.items() if before.get(name) != text}
    gone = sorted(before.keys() - after.keys())
    if new:
        client_tag(new)
    if gone:
        client_untag(gone)
