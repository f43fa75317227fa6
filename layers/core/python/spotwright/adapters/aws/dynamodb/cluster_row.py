"""The row of a cluster: version and newest decision, decisions to act on, requests for planning, planners at work."""

from contextlib import suppress
from typing import Any, Final

import msgspec

from spotwright.adapters.aws.dynamodb.items import Item, number_attribute, text_attribute
from spotwright.adapters.aws.dynamodb.table import Table
from spotwright.errors import Conflict
from spotwright.model.snapshot import LaunchedInMinute
from spotwright.workflows.ports.rows import ClusterRow, CommitPause
from spotwright.workflows.ports.state import FAILED_PLANS, LISTED_EVALUATIONS, LISTED_FOR_PODS, WRONG_CLOCK_MS

# The row that says who else provisions nodes in the cluster.
_PROVISIONER: Final = "provisioner"


class ClusterItem:
    """See StatePort; the method ``read`` is ``cluster`` there."""

    def __init__(self, table: Table, cluster: str) -> None:
        self._table, self._cluster = table, cluster
        # Nobody shortens or takes back the note of a throttle: it is not asked for again before its end.
        self._throttled_until: dict[str, int] = {}

    def read(self) -> ClusterRow:
        rows = self._table.get_rows(self._cluster, "cluster", "pause", _PROVISIONER)
        item, pause = rows.get("cluster", {}), rows.get("pause")
        return ClusterRow(
            cluster=self._cluster,
            version=number_attribute(item, "version"),
            head=text_attribute(item, "head"),
            pending_decisions=_unacted(item),
            planning_requests=number_attribute(item, "requested"),
            served_requests=number_attribute(item, "served"),
            paused=pause is not None and pause.get("provisioning", {}).get("BOOL", True),
            disruption_paused=pause is not None and pause.get("disruption", {}).get("BOOL", True),
            other_provisioner=text_attribute(rows.get(_PROVISIONER, {}), "running"),
            planner_until=number_attribute(item, _end("provision")),
            evaluations_pause_until=number_attribute(item, _end(LISTED_EVALUATIONS)),
            failed_plans_pause_until=number_attribute(item, _end(FAILED_PLANS)),
            listed_for_pods_until=number_attribute(item, _end(LISTED_FOR_PODS)),
            plans_pause_until=number_attribute(item, "plans_pause_until"),
            plans_pause_digest=text_attribute(item, "plans_pause_digest"),
            commit_pauses=msgspec.json.decode(
                text_attribute(item, "commit_pauses") or "[]", type=tuple[CommitPause, ...]
            ),
            launched=msgspec.json.decode(text_attribute(item, "launched") or "[]", type=tuple[LaunchedInMinute, ...]),
            pods_alike=_are_pods_alike(item),
        )

    def set_other_provisioner(self, name: str) -> None:
        item: Item = {"pk": {"S": self._cluster}, "sk": {"S": _PROVISIONER}, "schema": {"N": "1"}}
        self._table.put(item | {"running": {"S": name}})

    def request_planning(self) -> int:
        answer = self._update("ADD requested :one", {":one": {"N": "1"}}, returns="UPDATED_NEW")
        return int(answer["Attributes"]["requested"]["N"])

    def mark_served(self, requested: int, pause_until: int, pause_digest: str) -> None:
        expression, values = "SET served = :n REMOVE plans_pause_until, plans_pause_digest", _numbers(n=requested)
        if pause_until:
            expression = "SET served = :n, plans_pause_until = :u, plans_pause_digest = :d"
            values |= _numbers(u=pause_until) | {":d": {"S": pause_digest}}
        with suppress(Conflict):
            self._update(expression, values, condition="attribute_not_exists(served) OR served < :n")

    def pause_commits(self, pauses: tuple[CommitPause, ...]) -> None:
        self._update("SET commit_pauses = :p", {":p": {"S": msgspec.json.encode(pauses).decode()}})

    def begin_planning(self, work: str, *, now: int, until: int) -> bool:
        return self._note(work, now, until) is None

    def end_planning(self, work: str, *, until: int, served: int | None = None) -> bool:
        condition, values = "#end = :u", _numbers(u=until)
        if served is not None:
            condition += " AND (attribute_not_exists(requested) OR requested <= :s)"
            values |= _numbers(s=served)
        return self._try("REMOVE #end", values, condition=condition, work=work) is None

    def throttle(self, work: str, *, now: int, until: int) -> int:
        known = self._throttled_until.get(work, 0)
        if now < known <= until + WRONG_CLOCK_MS:
            return known
        row = self._note(work, now, until)
        self._throttled_until[work] = until if row is None else number_attribute(row, _end(work))
        return 0 if row is None else max(self._throttled_until[work], now + 1)

    def commit(
        self,
        *,
        expected_version: int,
        key: str,
        launched: tuple[LaunchedInMinute, ...] | None = None,
        pods_alike: bool | None = None,
    ) -> None:
        first = "attribute_not_exists(version) OR version = :v" if expected_version == 0 else "version = :v"
        counted: Item = {} if launched is None else {":l": {"S": msgspec.json.encode(launched).decode()}}
        alike: Item = {} if pods_alike is None else {":a": {"BOOL": pods_alike}}
        self._update(
            "SET version = :w, head = :h, unacted = list_append(if_not_exists(unacted, :none), :d)"
            + (", launched = :l" if counted else "")
            + (", alike = :a" if alike else ""),
            counted
            | alike
            | {
                ":v": {"N": str(expected_version)},
                ":w": {"N": str(expected_version + 1)},
                ":h": {"S": key},
                ":none": {"L": []},
                ":d": {"L": [{"S": key}]},
            },
            condition=first,
        )

    def pods_alike(self) -> bool:
        return _are_pods_alike(self._table.get(self._cluster, "cluster") or {})

    def note_other_pods(self) -> None:
        self._update("SET alike = :a", {":a": {"BOOL": False}})

    def mark_acted(self, key: str) -> None:
        # Decisions are acted on in their order, so that position 0 is tried before the row is read.
        position: int | None = 0
        for _ in range(5):
            if position is None:
                return
            try:
                self._update(
                    f"REMOVE unacted[{position}]",
                    {":d": {"S": key}},
                    condition=f"unacted[{position}] = :d",
                )
            except Conflict:
                unacted = _unacted(self._table.get(self._cluster, "cluster") or {})
                position = next((n for n, decision in enumerate(unacted) if decision == key), None)
                continue
            return
        raise Conflict(f"cluster row of {self._cluster}: too many writers at once", code="ConditionalCheckFailed")

    def _note(self, work: str, now: int, until: int) -> Item | None:
        """Note the work, unless an earlier note holds: None, or the row with that note."""
        return self._try(
            "SET #end = :u",
            _numbers(u=until, n=now, wrong=until + WRONG_CLOCK_MS),
            condition="attribute_not_exists(#end) OR #end <= :n OR #end > :wrong",
            work=work,
        )

    def _try(self, expression: str, values: Item, *, condition: str, work: str) -> Item | None:
        """Update the row, in which ``#end`` is the end of the work's note: None, or the row as the condition met it."""
        names = {"#end": _end(work)}
        return self._table.try_update(self._cluster, "cluster", expression, values, condition=condition, names=names)

    def _update(self, expression: str, values: Item, *, condition: str = "", returns: str = "NONE") -> Any:
        return self._table.update(self._cluster, "cluster", expression, values, condition=condition, returns=returns)


def _end(work: str) -> str:
    """The attribute with the end of a note."""
    return f"{work}_until"


def _are_pods_alike(item: Item) -> bool:
    return bool(item.get("alike", {}).get("BOOL"))


def _numbers(**values: int) -> Item:
    return {f":{name}": {"N": str(value)} for name, value in values.items()}


def _unacted(item: Item) -> tuple[str, ...]:
    return tuple(decision["S"] for decision in item.get("unacted", {}).get("L", ()))
