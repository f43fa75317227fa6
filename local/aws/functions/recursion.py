"""Lambda's recursive loop detection: how often one chain of calls has passed through each function.

The lineage travels in the trace header, `...;Lineage=<function hash>:<count>,...`: the runtime hands it to
the function, the SDK sends it with every call, SQS keeps it as the message's AWSTraceHeader.
Source: https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html
"""

import hashlib
import secrets
import time
from collections.abc import Iterable

# "When your function is invoked approximately 16 times in the same chain of requests", the next is stopped.
LONGEST_CHAIN = 16


def lineage_counts(trace: str) -> dict[str, int]:
    """Invocations so far, keyed by function hash; empty for a header without lineage or a malformed one."""
    counts: dict[str, int] = {}
    for part in trace.split(";"):
        name, _, value = part.strip().partition("=")
        if name.lower() == "lineage":
            for entry in value.split(","):
                function, _, count = entry.rpartition(":")
                if function and count.isdigit():
                    counts[function] = int(count)
    return counts


def is_loop(trace: str, function_arn: str) -> bool:
    """Whether one more invocation of the function would make the chain too long."""
    return lineage_counts(trace).get(_hash(function_arn), 0) >= LONGEST_CHAIN


def trace_header(traces: Iterable[str], function_arn: str) -> str:
    """The trace header of an invocation caused by events with these headers (a batch may have many).

    The longest chain of each function counts.
    """
    counts: dict[str, int] = {}
    for trace in traces:
        for function, count in lineage_counts(trace).items():
            counts[function] = max(count, counts.get(function, 0))
    function = _hash(function_arn)
    counts[function] = counts.get(function, 0) + 1
    lineage = ",".join(f"{function}:{count}" for function, count in sorted(counts.items()))
    root = f"1-{int(time.time()):08x}-{secrets.token_hex(12)}"
    return f"Root={root};Parent={secrets.token_hex(8)};Sampled=0;Lineage={lineage}"


def _hash(function_arn: str) -> str:
    """Of the function, not of one version or alias of it."""
    return hashlib.sha256(":".join(function_arn.split(":")[:7]).encode()).hexdigest()[:8]
