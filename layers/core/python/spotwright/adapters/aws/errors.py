"""AWS error codes and their exceptions; any other code is a plain ApiError."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from botocore.exceptions import BotoCoreError, ClientError

from spotwright.errors import ApiError, Conflict, Denied, InvalidRequest, NotFound, Throttled, Unavailable

_CODES: Final[Mapping[str, type[ApiError]]] = {
    "ConditionalCheckFailedException": Conflict,
    "TransactionConflictException": Conflict,
    "TransactionCanceledException": Conflict,
    # The same transaction, whose answer was lost, is still being written.
    "TransactionInProgressException": Unavailable,
    "IdempotentParameterMismatch": InvalidRequest,
    "PreconditionFailed": Conflict,
    "ResourceInUseException": Conflict,
    "EntityAlreadyExists": Conflict,
    "InvalidLaunchTemplateName.AlreadyExistsException": Conflict,
    "ResourceNotFoundException": NotFound,
    "NoSuchEntity": NotFound,
    # What KMS says.
    "NotFoundException": NotFound,
    # What ECR says.
    "ImageNotFoundException": NotFound,
    "RepositoryNotFoundException": NotFound,
    # What Service Quotas says.
    "NoSuchResourceException": NotFound,
    "NoSuchKey": NotFound,
    "404": NotFound,
    "ParameterNotFound": NotFound,
    "InvalidCapacityReservationId.NotFound": NotFound,
    "InvalidInstanceID.NotFound": NotFound,
    "InvalidPlacementGroup.Unknown": NotFound,
    "InvalidLaunchTemplateName.NotFoundException": NotFound,
    "InvalidLaunchTemplateId.NotFound": NotFound,
    "RequestLimitExceeded": Throttled,
    "Throttling": Throttled,
    "ThrottlingException": Throttled,
    "ProvisionedThroughputExceededException": Throttled,
    "SlowDown": Throttled,
    "TooManyRequestsException": Throttled,
    "AccessDenied": Denied,
    "AccessDeniedException": Denied,
    "UnauthorizedOperation": Denied,
    "ExpiredToken": Denied,
    "ExpiredTokenException": Denied,
    # What EC2 says of credentials that have expired.
    "RequestExpired": Denied,
    # What a service says that does not know a role's new credentials yet.
    "InvalidClientTokenId": Denied,
    "UnrecognizedClientException": Denied,
    "ValidationException": InvalidRequest,
    "ValidationError": InvalidRequest,
    "InvalidParameterValue": InvalidRequest,
    "InvalidParameterException": InvalidRequest,
    "InvalidRequestException": InvalidRequest,
    # A missing bucket or queue of Spotwright's own is no evidence about its content.
    "NoSuchBucket": Unavailable,
    "AWS.SimpleQueueService.NonExistentQueue": Unavailable,
    "QueueDoesNotExist": Unavailable,
    "InternalError": Unavailable,
    "InternalServerError": Unavailable,
    "ServiceUnavailable": Unavailable,
}


# Why DynamoDB cancelled a transaction, of each row: what somebody else did counts before the rest.
_CANCELLATION_REASONS: Final[Mapping[str, type[ApiError]]] = {
    "ConditionalCheckFailed": Conflict,
    "TransactionConflict": Conflict,
    "ThrottlingError": Throttled,
    "ProvisionedThroughputExceeded": Throttled,
    "ValidationError": InvalidRequest,
    "ItemCollectionSizeLimitExceeded": InvalidRequest,
}


def _kind(error: ClientError, code: str) -> type[ApiError] | None:
    reasons: Any = error.response.get("CancellationReasons") or ()
    codes = {reason.get("Code") for reason in reasons}
    known = (kind for reason, kind in _CANCELLATION_REASONS.items() if reason in codes)
    return next(known, _CODES.get(code))


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Turns errors of AWS calls into those of ``spotwright.errors``; ``what`` begins the message."""
    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        kind = _kind(error, code) or (Unavailable if status >= 500 else ApiError)
        raise kind(f"{what}: {error}", code=code) from error
    except BotoCoreError as error:
        raise Unavailable(f"{what}: {error}", code=type(error).__name__) from error
