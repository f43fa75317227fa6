"""How long an installation waits for what takes effect late: new roles, policies and access entries."""

from collections.abc import Callable

from spotwright.errors import Conflict, Denied, Throttled, Unavailable
from spotwright.workflows.ports.installation import DeadlinePort

# Between attempts.
RETRY_SECONDS = 2.0
# IAM's changes are seen everywhere within seconds, rarely within a minute or two.
# https://docs.aws.amazon.com/IAM/latest/UserGuide/troubleshoot.html#troubleshoot_general_eventual-consistency
PERMISSION_SECONDS = 120.0


def retry[Answer](ask: Callable[[], Answer], deadline: DeadlinePort) -> Answer:
    """Repeat until it is granted and answered; what is denied for two minutes counts as denied.

    Raises Denied, Unavailable, Throttled or Conflict: the last refusal.
    """
    begin = deadline.remaining_seconds()
    while True:
        try:
            return ask()
        except Denied as refusal:
            waited = begin - deadline.remaining_seconds()
            if waited >= PERMISSION_SECONDS or deadline.remaining_seconds() <= RETRY_SECONDS:
                raise Denied(_still_denied(refusal, waited), code=refusal.code) from refusal
        except (Unavailable, Throttled, Conflict):
            if deadline.remaining_seconds() <= RETRY_SECONDS:
                raise
        deadline.pause(RETRY_SECONDS)


def _still_denied(refusal: Denied, waited_seconds: float) -> str:
    return (
        f"{refusal} (denied for {waited_seconds:.0f} s; new permissions take effect sooner. Look for a permissions"
        " boundary or a service control policy that denies it, and deploy again)"
    )
