"""The messages of a queue: parsed one by one, handled by cluster, and exactly the failed ones reported.

Source: https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html (ReportBatchItemFailures)
"""

import warnings
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, Protocol

import msgspec
from aws_lambda_powertools import Logger, Metrics

from spotwright.adapters import time_limit
from spotwright.errors import InvalidRequest, error_code
from spotwright.model.quoting import quote
from spotwright.telemetry import log_lines
from spotwright.telemetry import metrics as telemetry
from spotwright.telemetry.emit import add_metric, log_line
from spotwright.workflows.ports.doorbells import Doorbell

SCHEMAS: Final = (1,)
# A doorbell names a cluster and an object, each with a Kubernetes name of 253 characters at most. SQS takes 256 KB; no
# API takes such a name: the state table refuses a key of more than 1,024 bytes.
LONGEST_MESSAGE: Final = 1024
# An invocation that is cut off would hold messages back for the visibility timeout, six times its own.
BEGIN_SECONDS: Final = 15
# What services say when the process's own credentials have expired; those of roles that it assumes are renewed.
_EXPIRED: Final = frozenset({"ExpiredToken", "ExpiredTokenException", "RequestExpired"})

# An invocation may have no metrics.
warnings.filterwarnings("ignore", message="No application metrics to publish")

# Of a cluster with its doorbells; the answer is which of them failed, and why.
type Work = Callable[[str, tuple[Doorbell, ...]], Mapping[Doorbell, Exception] | None]
type BatchResponse = dict[str, list[dict[str, str]]]


class LambdaContext(Protocol):
    """What is used of Lambda's context."""

    def get_remaining_time_in_millis(self) -> int: ...


def seconds_left(context: LambdaContext) -> float:
    """Until Lambda ends the invocation."""
    return context.get_remaining_time_in_millis() / 1000


def parse_doorbell(body: str, *, kinds: Collection[str], clusters: Collection[str]) -> Doorbell:
    """The doorbell in a message; raises InvalidRequest naming the field, its value and what is allowed."""
    if len(body) > LONGEST_MESSAGE:
        raise InvalidRequest(
            f"message: {len(body)} characters; a doorbell has at most {LONGEST_MESSAGE}: {quote(body)}"
        )
    try:
        bell = msgspec.json.decode(body, type=Doorbell)
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise InvalidRequest(f"message is not a doorbell: {error}: {quote(body)}") from None
    if bell.schema not in SCHEMAS:
        raise InvalidRequest(f"doorbell schema: {bell.schema} is not one of {', '.join(map(str, SCHEMAS))}")
    if bell.kind not in kinds:
        raise InvalidRequest(f"doorbell kind: {quote(bell.kind)} is not one of {', '.join(sorted(kinds))}")
    if bell.cluster != "*" and bell.cluster not in clusters:
        raise InvalidRequest(f"doorbell cluster: {quote(bell.cluster)} is not one of {', '.join(sorted(clusters))}")
    return bell


def process_by_cluster(
    event: Mapping[str, Any], *, kinds: Collection[str], clusters: Collection[str], work: Work, logger: Logger,
    metrics: Metrics, context: LambdaContext, ring_again: Work,
) -> BatchResponse:  # fmt: skip
    """Handle a batch: each cluster once with all its doorbells, each doorbell once.

    Clusters with few doorbells come first, so that a flood of one cluster holds up no other. Work on a further cluster
    is begun only with BEGIN_SECONDS left; otherwise its doorbells go to ``ring_again``, for another invocation. What is
    not a doorbell for this function fails alone. When the work on a cluster fails, exactly its messages fail, or those
    of the doorbells that the work names; they return after the visibility timeout. Raises SystemExit where the
    process's credentials have expired.
    """
    with time_limit.invocation_ends_in(seconds_left(context)):
        return _process(event, kinds, clusters, work, logger, metrics, context, ring_again)


def _process(
    event: Mapping[str, Any], kinds: Collection[str], clusters: Collection[str], work: Work, logger: Logger,
    metrics: Metrics, context: LambdaContext, ring_again: Work,
) -> BatchResponse:  # fmt: skip
    codes: list[str] = []
    failed: set[str] = set()
    messages_by_cluster: dict[str, dict[Doorbell, set[str]]] = {}
    for record in event.get("Records") or ():
        try:
            bell = parse_doorbell(record["body"], kinds=kinds, clusters=clusters)
        except InvalidRequest as error:
            log_line(logger, log_lines.REJECTED_MESSAGE, message_id=record["messageId"], error=str(error))
            failed.add(record["messageId"])
            continue
        for cluster in sorted(clusters) if bell.cluster == "*" else (bell.cluster,):
            doorbell = msgspec.structs.replace(bell, cluster=cluster)
            messages_by_cluster.setdefault(cluster, {}).setdefault(doorbell, set()).add(record["messageId"])
    in_order = sorted(messages_by_cluster.items(), key=lambda item: len(item[1]))
    for number, (cluster, bells) in enumerate(in_order):
        is_late = number > 0 and seconds_left(context) < BEGIN_SECONDS
        failures: Mapping[Doorbell, Exception] = {}
        logger.append_keys(cluster=cluster)
        metrics.add_dimension(name="cluster", value=cluster)
        try:
            failures = (ring_again if is_late else work)(cluster, tuple(bells)) or {}
            for failure in failures.values():
                raise failure
        except Exception as error:  # noqa: BLE001 the outermost loop: one cluster must not keep the others
            _report(cluster, error, logger, metrics)
            codes.append(error_code(error))
            failed.update(*(bells[bell] for bell in failures or bells))
        # Each cluster's metrics are written with its own dimension.
        if metrics.metric_set:
            metrics.flush_metrics()
        metrics.clear_metrics()
        logger.remove_keys(["cluster"])
    end_with_expired_credentials(codes, logger)
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in sorted(failed)]}


def end_with_expired_credentials(codes: Collection[str], logger: Logger) -> None:
    """Raise SystemExit if one of the codes of failures says so: Lambda then starts another process with new ones.

    All messages of the batch return; what is done already is done once only.
    """
    for code in sorted(_EXPIRED.intersection(codes)):
        log_line(logger, log_lines.CREDENTIALS_EXPIRED, code=code)
        raise SystemExit(1)


def _report(cluster: str, error: Exception, logger: Logger, metrics: Metrics) -> None:
    log_line(logger, log_lines.WORK_FAILED, cluster=cluster, code=error_code(error))
    add_metric(metrics, telemetry.WORK_FAILED, 1)
