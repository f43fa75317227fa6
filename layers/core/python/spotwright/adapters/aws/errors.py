"""AWS error codes and their exceptions; any other code is a plain ApiError."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

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


@contextmanager
def translate_errors(what: str) -> Iterator[None]:
    """Turns errors of AWS calls into those of ``spotwright.errors``; ``what`` begins the message."""
    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        kind = _CODES.get(code, Unavailable if status >= 500 else ApiError)
        raise kind(f"{what}: {error}", code=code) from error
    except BotoCoreError as error:
        raise Unavailable(f"{what}: {error}", code=type(error).__name__) from error
