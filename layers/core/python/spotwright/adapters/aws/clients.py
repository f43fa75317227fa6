"""AWS clients with the function's own role, or a cluster's *read* or *act* role; each is made once per process.

Only ``AWS_ENDPOINT_URL`` sets another endpoint. Credentials of a role are refreshed automatically.

Within an invocation of a function no try waits beyond its end: its timeout is shortened, and where no time is left, or
none for another try, OutOfTime is raised.
"""

from functools import cache, partial
from threading import RLock
from typing import TYPE_CHECKING, Any, Final

import botocore.session
from botocore.config import Config
from botocore.credentials import (
    AssumeRoleCredentialFetcher,
    CredentialProvider,
    CredentialResolver,
    DeferredRefreshableCredentials,
)
from botocore.exceptions import BotoCoreError, NoRegionError

from spotwright.adapters import time_limit
from spotwright.errors import BadConfiguration, MissingRegion, OutOfTime

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_eks.client import EKSClient
    from mypy_boto3_iam.client import IAMClient
    from mypy_boto3_pricing.client import PricingClient
    from mypy_boto3_ssm.client import SSMClient
    from mypy_boto3_sts.client import STSClient

CONNECT_SECONDS: Final = 2
READ_SECONDS: Final = 10
# An answer is waited for at least so long, by what is sent at all.
SHORTEST_READ_SECONDS: Final = 0.5
# So long before the end of an invocation AWS is not asked any more: a second after the API server, for rows; and SQS
# still later, for doorbells that say what there was no time for.
_CLOSING_SECONDS: Final = 2.0
_CLOSING_SECONDS_BY_SERVICE: Final = {"sqs": 0.5}
# The first try counts; `standard` waits with jitter between tries, at most 20 s.
ATTEMPTS: Final = 3
ROLE_SECONDS: Final = 3600
# As many as calls are made at once, so that none begins with a handshake.
KEPT_CONNECTIONS: Final = 50
_SESSION_NAME: Final = "spotwright"
# The name in a profile, the environment variables, a default, a conversion. botocore itself reads the second only.
_REGION: Final = ("region", ["AWS_REGION", "AWS_DEFAULT_REGION"], None, None)
# How botocore names credentials of the instance metadata service.
_OF_MACHINE: Final = "iam-role"
# A botocore session is for a single thread, a client for all threads. A fresh process makes clients in threads that
# read in parallel.
_MAKING: Final = RLock()

CONFIG: Final = Config(
    connect_timeout=CONNECT_SECONDS,
    read_timeout=READ_SECONDS,
    retries={"mode": "standard", "total_max_attempts": ATTEMPTS},
    max_pool_connections=KEPT_CONNECTIONS,
    user_agent_extra="spotwright",
)


class _AssumedRole(CredentialProvider):
    """Credentials of a role, which is assumed at the first call and again before they expire."""

    METHOD = "assume-role"

    def __init__(self, fetcher: AssumeRoleCredentialFetcher) -> None:
        super().__init__()
        self._fetcher = fetcher

    def load(self) -> DeferredRefreshableCredentials:
        return DeferredRefreshableCredentials(refresh_using=self._fetcher.fetch_credentials, method=self.METHOD)


@cache
def own_session() -> botocore.session.Session:
    """The session of the process's own credentials and region."""
    return botocore.session.Session(session_vars={"region": _REGION})


def has_own_credentials() -> bool:
    """Whether this process was given credentials: those of the machine that it runs on are not meant for it.

    Raises botocore's errors where credentials are promised and nobody gives them.
    """
    credentials = own_session().get_credentials()
    return credentials is not None and credentials.method != _OF_MACHINE


@cache
def role_session(role_arn: str) -> botocore.session.Session:
    """A session that acts as ``role_arn``.

    It shares handlers and service models with the process's own session: registering and reading them again would take
    longer than making a client.
    """
    own = own_session()
    fetcher = AssumeRoleCredentialFetcher(
        client_creator=_sts_creator(own),
        source_credentials=own.get_credentials(),
        role_arn=role_arn,
        extra_args={"RoleSessionName": _SESSION_NAME, "DurationSeconds": ROLE_SECONDS},
    )
    session = botocore.session.Session(
        session_vars={"region": _REGION}, event_hooks=own.get_component("event_emitter"), include_builtin_handlers=False
    )
    session.register_component("data_loader", own.get_component("data_loader"))
    session.register_component("credential_provider", CredentialResolver([_AssumedRole(fetcher)]))
    return session


def _sts_creator(session: botocore.session.Session) -> Any:
    def create(service: str, **arguments: Any) -> Any:
        with _MAKING:
            return _within_invocations(session.create_client(service, **(arguments | {"config": CONFIG})), READ_SECONDS)

    return create


def _within_invocations(made: Any, read_seconds: float) -> Any:
    """The client, which keeps to the end of an invocation."""
    closing_seconds = _CLOSING_SECONDS_BY_SERVICE.get(made.meta.service_model.service_name, _CLOSING_SECONDS)
    made.meta.events.register("before-send", partial(_shorten, read_seconds, closing_seconds))
    made.meta.events.register("needs-retry", partial(_end_tries, closing_seconds))
    return made


def _shorten(read_seconds: float, closing_seconds: float, request: Any, **_: object) -> None:
    """For each try: how long its answer is waited for. Raises OutOfTime where no time is left.

    ``request``: an AWSPreparedRequest, of whose context botocore takes ``read_timeout``.
    """
    left = time_limit.seconds_left(closing_seconds)
    if left <= 0:
        raise _out_of_time(request.url)
    # A connection may have to be made first.
    request.context["read_timeout"] = min(read_seconds, max(left - CONNECT_SECONDS, SHORTEST_READ_SECONDS))


def _end_tries(
    closing_seconds: float, request_dict: dict[str, Any], caught_exception: Exception | None, **_: object
) -> None:
    """After a try without an answer: raises OutOfTime where the time is over, instead of another try or the failure."""
    if caught_exception is not None and time_limit.seconds_left(closing_seconds) <= CONNECT_SECONDS:
        raise _out_of_time(request_dict["url"]) from caught_exception


def _out_of_time(url: str) -> OutOfTime:
    return OutOfTime(f"{url}: the invocation ends soon", code="OutOfTime")


@cache
def client(
    service: str,
    role_arn: str = "",
    region: str | None = None,
    attempts: int = ATTEMPTS,
    read_seconds: float = READ_SECONDS,
) -> Any:
    """A client of ``service`` as ``role_arn`` ("" = the function's own role); one per process and arguments.

    ``read_seconds``: how long an answer is waited for, and a connection at most.
    Raises MissingRegion when neither ``region`` nor the environment nor a profile names a region, BadConfiguration when
    one of them cannot be used.
    """
    config = CONFIG.merge(
        Config(
            connect_timeout=min(CONNECT_SECONDS, read_seconds),
            read_timeout=read_seconds,
            retries={"mode": "standard", "total_max_attempts": attempts},
        )
    )
    with _MAKING:
        session = role_session(role_arn) if role_arn else own_session()
        try:
            return _within_invocations(session.create_client(service, region_name=region, config=config), read_seconds)
        except NoRegionError as error:
            raise MissingRegion("no AWS region") from error
        except BotoCoreError as error:
            raise BadConfiguration(str(error)) from error


def ec2(role_arn: str = "") -> "EC2Client":
    ec2_client: EC2Client = client("ec2", role_arn)
    return ec2_client


def ec2_without_retries(role_arn: str = "") -> "EC2Client":
    """For calls that EC2 throttles strictly: the SDK does not retry a call that EC2 throttled."""
    ec2_client: EC2Client = client("ec2", role_arn, attempts=1)
    return ec2_client


def ec2_in_a_hurry() -> "EC2Client":
    """With the function's own role, for what can be done without: a single try, given up after two seconds at most."""
    ec2_client: EC2Client = client("ec2", attempts=1, read_seconds=1)
    return ec2_client


def eks(role_arn: str = "") -> "EKSClient":
    eks_client: EKSClient = client("eks", role_arn)
    return eks_client


def iam(role_arn: str = "") -> "IAMClient":
    iam_client: IAMClient = client("iam", role_arn)
    return iam_client


def ssm(role_arn: str = "") -> "SSMClient":
    ssm_client: SSMClient = client("ssm", role_arn)
    return ssm_client


def sts(role_arn: str = "") -> "STSClient":
    sts_client: STSClient = client("sts", role_arn)
    return sts_client


def pricing(role_arn: str = "", *, region: str) -> "PricingClient":
    """The Price List has endpoints in a few regions only: ``region`` is an endpoint's, not the cluster's."""
    pricing_client: PricingClient = client("pricing", role_arn, region)
    return pricing_client
