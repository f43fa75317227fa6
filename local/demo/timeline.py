"""What happened, in order, read from where it is recorded: the local AWS's call log, decisions in S3, the API server.

Nothing here knows what the story expects; the story asks, and this answers from what it saw.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError

from local.cdk_deployment import administrator_session
from local.demo.cluster_objects import ClusterObjects
from local.demo.printer import Printer
from local.demo.timeline_entry import TimelineEntry
from local.stack import Stack

type Json = dict[str, Any]

# EC2 calls that change something, and those that show where time goes.
SHOWN_CALLS = frozenset({"CreateFleet", "TerminateInstances", "RunInstances", "CreateLaunchTemplate"})
CLAIM_CONDITIONS = ("Launched", "Registered", "Initialized", "Drained", "InstanceTerminating", "DisruptionReason")
# How soon after a change the sources are read again, so that what happens together is read together, and how long
# they are left alone while the cluster does not change.
SETTLE_SECONDS = 0.4
REST_SECONDS = 2.0


class Timeline:
    """Reads every source in a thread, remembers every entry, and hands new ones to the printer."""

    def __init__(self, stack: Stack, printer: Printer, *, outputs: Callable[[], dict[str, str]]) -> None:
        self._stack, self._printer, self._outputs = stack, printer, outputs
        self._changed = threading.Event()
        self._api = ClusterObjects(stack.kubeconfig, self._changed)
        account = administrator_session(stack)
        self._s3 = account.client("s3", endpoint_url=stack.aws_endpoint)
        self._table = account.client("dynamodb", endpoint_url=stack.aws_endpoint)
        self._seen: set[tuple[str, str, str]] = set()
        self._bodies: dict[str, Json] = {}
        self._where: dict[str, str] = {}
        self._next_call = 0
        self._stop = threading.Event()
        self._lock = threading.Condition()
        self.entries: list[TimelineEntry] = []
        self.objects: dict[str, dict[str, Json]] = {}
        self.last_error: str = ""
        self._thread = threading.Thread(target=self._run, daemon=True, name="watch")

    def __enter__(self) -> "Timeline":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._changed.set()
        self._thread.join(timeout=5)
        self._api.close()

    def wait_until(self, holds: Callable[["Timeline"], bool], *, seconds: float) -> bool:
        """Wait for something to be seen; False when it was not within ``seconds``."""
        deadline = time.monotonic() + seconds
        with self._lock:
            while not holds(self):
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._lock.wait(min(left, 1))
        return True

    def objects_of(self, kind: str) -> list[Json]:
        """Objects of a kind as the API server had them when the sources were last read."""
        return list(self.objects.get(kind, {}).values())

    def since(self, at: float, source: str = "", event: str = "") -> list[TimelineEntry]:
        """Entries from ``at`` on, in the order of their times."""
        chosen = (e for e in self.entries if e.at >= at and source in ("", e.source) and event in ("", e.event))
        return sorted(chosen, key=lambda entry: entry.at)

    def _run(self) -> None:
        while not self._stop.wait(SETTLE_SECONDS):
            self._changed.wait(REST_SECONDS)
            self._changed.clear()
            new: list[TimelineEntry] = []
            try:
                for source in (self._calls, self._decisions, self._cluster):
                    new.extend(source())
            except Exception as error:  # noqa: BLE001 a source that is away for a moment is looked at again
                self.last_error = f"{type(error).__name__}: {error}"
            with self._lock:
                fresh = sorted(new, key=lambda entry: entry.at)
                self.entries += fresh
                self._lock.notify_all()
            for entry in fresh:
                self._printer.entry(entry)

    def _calls(self) -> Iterator[TimelineEntry]:
        answer = self._stack.control("GET", f"/_local/calls?since={self._next_call}")
        self._next_call = answer["next"]
        for call in answer["calls"]:
            # A class is tried by calls that only ask.
            if call["action"] in SHOWN_CALLS and not call["request"].get("DryRun"):
                who = call.get("function") or call["principal"].rsplit("/", 1)[-1]
                error = f" → {call['error']}" if call.get("error") else ""
                yield TimelineEntry(
                    _seconds(call["time"]), "aws", who, call["action"], f"{call['action']}{_about(call)}{error}", call
                )

    def _decisions(self) -> Iterator[TimelineEntry]:
        """Decisions that became true: a body that lost its commit is never turned into rows."""
        # They stay what they are while the stack is there, and asking is dear.
        self._where = self._where or self._outputs()
        if not self._where:
            return
        try:
            yield from self._decided(self._where["BucketName"], self._acted_on(self._where["TableName"]))
        except ClientError:
            self._where = {}

    def _decided(self, bucket: str, acted: set[str]) -> Iterator[TimelineEntry]:
        for page in self._s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix="decisions/"):
            for item in page.get("Contents", ()):
                key = item["Key"]
                if key not in self._bodies:
                    self._bodies[key] = json.loads(self._s3.get_object(Bucket=bucket, Key=key)["Body"].read())
                body = self._bodies[key]
                if body["id"] in acted and self._first("decision", key, ""):
                    text = f"{body['kind']} {body['id']}: {body['why']}"
                    yield TimelineEntry(_seconds(body["now"]), "decision", body["kind"], "decided", text, body)

    def _acted_on(self, table: str) -> set[str]:
        """Ids of decisions that launch and command rows speak of."""
        pages = self._table.get_paginator("query").paginate(
            TableName=table,
            KeyConditionExpression="pk = :c",
            ExpressionAttributeValues={":c": {"S": self._stack.cluster}},
        )
        bodies = (json.loads(item["body"]["S"]) for page in pages for item in page["Items"] if "body" in item)
        return {body["decision"] for body in bodies if body.get("decision")}

    def _cluster(self) -> Iterator[TimelineEntry]:
        now = time.time()
        for kind, listed in self._api.by_kind().items():
            before = self.objects.get(kind, {})
            current = {
                resource["metadata"].get("namespace", "") + "/" + resource["metadata"]["name"]: resource
                for resource in listed
            }
            for key, resource in current.items():
                yield from self._changes(kind, key.strip("/"), resource, now)
            for key in before.keys() - current.keys():
                if kind in ("nodeclaims", "nodes"):
                    yield TimelineEntry(
                        now, kind, key.strip("/"), "gone", f"{kind[:-1]} {key.strip('/')} is gone", before[key]
                    )
                # A pod that left between two looks was never seen being deleted.
                if kind == "pods" and self._first(kind, before[key]["metadata"]["uid"], "deleting"):
                    node = before[key]["spec"].get("nodeName") or "the queue"
                    yield TimelineEntry(now, kind, key, "leaving", f"pod {key} leaves {node}", before[key])
            self.objects[kind] = current

    def _changes(self, kind: str, name: str, resource: Json, now: float) -> Iterator[TimelineEntry]:
        uid, status = resource["metadata"]["uid"], resource.get("status") or {}
        match kind:
            case "pods":
                yield from self._pod(uid, name, resource, status, now)
            case "nodeclaims":
                for condition in status.get("conditions") or ():
                    told = condition["status"] == "True" and condition["type"] in CLAIM_CONDITIONS
                    if told and self._first(kind, uid, condition["type"]):
                        yield TimelineEntry(
                            now, kind, name, condition["type"], f"nodeclaim {name} {condition['type']}", resource
                        )
                if resource["metadata"].get("deletionTimestamp") and self._first(kind, uid, "deleting"):
                    yield TimelineEntry(now, kind, name, "deleting", f"nodeclaim {name} is being deleted", resource)
            case "nodes":
                ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or ())
                if ready and self._first(kind, uid, "Ready"):
                    yield TimelineEntry(now, kind, name, "Ready", f"node {name} Ready", resource)
            case "events":
                source = (resource.get("source") or {}).get("component", "")
                # Transitions to True and Unknown are told by the objects themselves.
                transition = (
                    resource["message"].startswith("Status condition") and "-> False" not in resource["message"]
                )
                told = source == "spotwright" and not transition
                if told and self._first(kind, uid, str(resource.get("count"))):
                    subject = f"{resource['involvedObject']['kind']} {resource['involvedObject']['name']}"
                    text = f"{resource['type']} {resource['reason']} {subject}: {resource['message']}"
                    yield TimelineEntry(now, kind, subject, resource["reason"], text, resource)

    def _pod(self, uid: str, name: str, resource: Json, status: Json, now: float) -> Iterator[TimelineEntry]:
        conditions = {c["type"]: c for c in status.get("conditions") or ()}
        pending = conditions.get("PodScheduled", {}).get("reason") == "Unschedulable"
        if pending and self._first("pods", uid, "Pending"):
            yield TimelineEntry(now, "pods", name, "Pending", f"pod {name} is pending", resource)
        node = resource["spec"].get("nodeName", "")
        if status.get("phase") == "Running" and self._first("pods", uid, "Running"):
            yield TimelineEntry(now, "pods", name, "Running", f"pod {name} runs on {node}", resource)
        if resource["metadata"].get("deletionTimestamp") and self._first("pods", uid, "deleting"):
            yield TimelineEntry(now, "pods", name, "leaving", f"pod {name} leaves {node or 'the queue'}", resource)

    def _first(self, kind: str, subject: str, what: str) -> bool:
        key = (kind, subject, what)
        if key in self._seen:
            return False
        self._seen.add(key)
        return True


def _about(call: Json) -> str:
    """The part of a request that says what was asked for."""
    request = call.get("request") or {}
    match call["action"]:
        case "CreateFleet":
            target = request.get("TargetCapacitySpecification") or {}
            overrides = [o for c in request.get("LaunchTemplateConfigs") or () for o in c.get("Overrides") or ()]
            types = list(dict.fromkeys(o.get("InstanceType") for o in overrides))
            kind = target.get("DefaultTargetCapacityType")
            chosen_from = f"{len(types)} type{'' if len(types) == 1 else 's'}, {len(overrides)} offerings"
            return f" {target.get('TotalTargetCapacity')} × {kind} of {chosen_from}"
        case "TerminateInstances":
            return " " + ", ".join(request.get("InstanceIds") or ())
        case "CreateLaunchTemplate":
            return f" {request.get('LaunchTemplateName')}"
    return ""


def _seconds(moment: str | float) -> float:
    if isinstance(moment, int | float):
        return float(moment)
    return datetime.fromisoformat(moment).astimezone(UTC).timestamp()
