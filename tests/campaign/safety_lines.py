"""Safety lines of the workflows, each taken out: what the campaign has to notice."""

import itertools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import msgspec

from spotwright.disruption import budgets, emptiness
from spotwright.lifecycle import node_repair
from spotwright.simulation.state import FakeState
from spotwright.workflows.lifecycle import actions, commands, workflow
from spotwright.workflows.lifecycle.launch import assignment, fleet
from spotwright.workflows.lifecycle.termination import drain, finalizer
from spotwright.workflows.lifecycle.termination.drain import Emptying
from spotwright.workflows.planning import nominated_pods
from spotwright.workflows.ports.rows import sort_key
from spotwright.workflows.sweep import poll


@contextmanager
def client_token_reused() -> Iterator[None]:
    """A stored request is sent with a client token of its own each time."""
    numbers = itertools.count()

    def loads(text: str) -> Any:
        return json.loads(text) | {"ClientToken": f"token-{next(numbers)}"}

    with patch.object(fleet, "json", SimpleNamespace(loads=loads)):
        yield


@contextmanager
def pods_evicted() -> Iterator[None]:
    """A pod whose eviction is refused is deleted."""

    def delete(ports: Any, node: Any, pod: Any, cause: str) -> bool:
        ports.cluster.delete("pods", pod.metadata)
        return True

    with patch.object(drain, "_delete_follower", delete):
        yield


@contextmanager
def drained_first() -> Iterator[None]:
    """Instances are terminated before their pods have left."""
    with patch.object(finalizer, "empty_nodes", lambda _, claim, *__: Emptying(claim)):
        yield


@contextmanager
def terminated_first() -> Iterator[None]:
    """The finalizer goes although the instance runs."""
    with patch.object(finalizer, "_find_instance", lambda *_: (None, True)):
        yield


@contextmanager
def commit_conditional() -> Iterator[None]:
    """A decision becomes true whatever was decided meanwhile."""
    commit = FakeState.commit

    def commit_anyway(state: FakeState, *, expected_version: int, **rest: Any) -> None:
        commit(state, expected_version=state.cluster_row.version, **rest)

    with patch.object(FakeState, "commit", commit_anyway):
        yield


@contextmanager
def rows_conditional() -> Iterator[None]:
    """A row is replaced whatever was written meanwhile."""
    save = FakeState.save

    def save_anyway(state: FakeState, row: Any) -> Any:
        stored = next((stored for stored in state.rows.values() if _is_same(stored, row)), None)
        return save(state, row if stored is None else msgspec.structs.replace(row, version=stored.version))

    with patch.object(FakeState, "save", save_anyway):
        yield


@contextmanager
def orphans_found() -> Iterator[None]:
    """An instance that neither a row nor a NodeClaim names is left."""
    with patch.object(workflow, "find_orphan", lambda *_: None):
        yield


@contextmanager
def surplus_terminated() -> Iterator[None]:
    """An instance of a launch that none of its NodeClaims uses is left."""
    with patch.object(assignment, "_terminate", lambda *_: 0):
        yield


@contextmanager
def uid_stated() -> Iterator[None]:
    """A NodeClaim is deleted by its name."""
    delete = actions.delete_claim

    def delete_by_name(ports: Any, claim: Any, cause: Any) -> None:
        about = msgspec.structs.replace(claim.metadata, uid="")
        delete(ports, msgspec.structs.replace(claim, metadata=about), cause)

    with (
        patch.object(commands, "delete_claim", delete_by_name),
        patch.object(actions, "delete_claim", delete_by_name),
    ):
        yield


@contextmanager
def emptiness_seen_twice() -> Iterator[None]:
    """A node is not looked at again when it is closed to pods."""
    with patch.object(emptiness, "keeps_node", lambda *_: False):
        yield


@contextmanager
def budgets_asked() -> Iterator[None]:
    """As many nodes go as are empty."""
    with patch.object(budgets, "remaining_disruptions", lambda *_, **__: budgets.UNLIMITED):
        yield


@contextmanager
def replacements_awaited() -> Iterator[None]:
    """A node goes when its replacements are launched, whether they have joined or not."""

    def all_there(row: Any, *_: Any) -> Any:
        return msgspec.structs.replace(row, initialized_replacements=row.replacements), ""

    with patch.object(commands, "_check_replacements", all_there):
        yield


@contextmanager
def repair_limited() -> Iterator[None]:
    """Nodes are repaired however many of them are unhealthy."""
    with patch.object(node_repair, "_obstacle", lambda *_: ""):
        yield


@contextmanager
def timers_rung() -> Iterator[None]:
    """The sweep does not ring for rows whose time has come."""
    with patch.object(poll, "_ring_due", lambda *_: None):
        yield


@contextmanager
def nominations_counted() -> Iterator[None]:
    """A pod that has a place on a node to come is planned again."""
    with patch.object(nominated_pods, "place_nominated_pods", lambda pods, *_, **__: tuple(pods)):
        yield


def _is_same(stored: Any, row: Any) -> bool:
    return sort_key(stored) == sort_key(row)
