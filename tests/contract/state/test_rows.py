"""Rows of a StatePort: created, saved, listed and found by their time; the fake and DynamoDB obey one suite."""

import time

import msgspec
import pytest

from spotwright.errors import Conflict, InvalidRequest
from spotwright.workflows.ports.rows import CommandRow, NominationRow, NoticeRow, sort_key
from spotwright.workflows.ports.state import ROWS_TOGETHER, StatePort
from tests.contract.state.rows import NOW_MS, launch

# So long a row may be missing in an index: the local AWS, too, shows it up to a second and a half later.
INDEX_SECONDS = 120.0


def test_a_row_beyond_400_kb_is_refused_and_the_row_before_it_stays(state: StatePort) -> None:
    too_large = "x" * 400 * 1024
    with pytest.raises(InvalidRequest, match=r"[Ii]tem size"):
        state.create(launch(state, node=too_large))
    assert state.launch("one") is None
    state.create(launch(state))
    with pytest.raises(InvalidRequest, match=r"[Ii]tem size"):
        state.save(launch(state, request=too_large))
    row = state.launch("one")
    assert row is not None
    assert (row.request, row.version) == ("", 0)
    assert state.save(launch(state, request="x" * 380 * 1024)).version == 1


def test_rows_that_are_created_together_are_there_all_or_none(state: StatePort) -> None:
    rows = [launch(state, f"row-{number}") for number in range(ROWS_TOGETHER)]
    assert state.create_together(rows)
    assert {row.id for row in state.launches()} == {row.id for row in rows}
    assert not state.create_together([launch(state, "new"), launch(state, "row-7", decision="another")])
    assert state.launch("new") is None
    assert state.launch("row-7") == rows[7]


def test_rows_that_are_saved_together_are_replaced_under_their_versions_all_or_none(state: StatePort) -> None:
    rows = [launch(state, f"row-{number}") for number in range(3)]
    assert state.create_together(rows)
    assert state.save_together([msgspec.structs.replace(row, phase="claimed") for row in rows])
    found = state.launch("row-2")
    assert found is not None
    assert (found.phase, found.version) == ("claimed", 1)
    assert not state.save_together([msgspec.structs.replace(found, phase="launched"), rows[0]]), "an old version"
    assert not state.save_together([found, launch(state, "missing")])
    assert state.launch("row-2") == found
    assert state.save(found).version == 2


def test_rows_are_created_with_those_that_are_saved_all_or_none(state: StatePort) -> None:
    """A hundred in all, the most that a transaction takes."""
    before = [launch(state, f"row-{number:02}") for number in range(ROWS_TOGETHER)]
    assert state.create_together(before[:40])
    saved = [msgspec.structs.replace(row, phase="claimed") for row in before[:40]]
    assert not state.save_together(saved[1:], created=[before[0]]), "one exists"
    assert not state.save_together([*saved, before[40]], created=before[41:]), "one is missing"
    assert not state.save_together(saved, created=[*before[40:], launch(state, "one too many")])
    assert not state.save_together(saved, created=[saved[0]]), "twice"
    assert state.launches() == tuple(before[:40])
    assert state.save_together(saved, created=before[40:])
    assert [(row.phase, row.version) for row in state.launches()] == [("claimed", 1)] * 40 + [("planned", 0)] * 60
    assert not state.save_together(saved, created=[launch(state, "late")]), "an old version"
    assert state.launch("late") is None


def test_rows_that_are_too_large_or_too_many_together_are_left_to_be_written_alone(state: StatePort) -> None:
    large = [launch(state, f"row-{number}", node="x" * 390 * 1024) for number in range(11)]
    too_large = launch(state, "too-large", node="x" * 400 * 1024)
    assert not state.create_together([launch(state, "small"), too_large])
    assert not state.create_together(large), "more than 4 MB"
    assert not state.create_together([launch(state, f"row-{number}") for number in range(ROWS_TOGETHER + 1)])
    assert not state.create_together([launch(state, "twice"), launch(state, "twice")])
    assert state.launches() == ()
    assert state.create_together(large[:3])


def test_rows_created_together_wait_in_the_index_as_others_do(state: StatePort) -> None:
    rows = [launch(state, f"row-{number}", due=NOW_MS + number) for number in range(2)]
    assert state.create_together(rows)
    deadline = time.monotonic() + INDEX_SECONDS
    while len(state.due_rows(NOW_MS + 5)) < len(rows) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert state.due_rows(NOW_MS + 5) == tuple(rows)


def test_a_row_is_created_once_and_saved_only_on_its_version(state: StatePort) -> None:
    row = launch(state)
    assert state.create(row)
    assert not state.create(row)
    saved = state.save(msgspec.structs.replace(row, phase="claimed"))
    with pytest.raises(Conflict):
        state.save(msgspec.structs.replace(row, phase="failed"))
    assert state.launch("one") == saved
    assert saved.version == row.version + 1


def test_a_finished_row_is_history_that_can_still_be_read(state: StatePort) -> None:
    row = launch(state)
    state.create(row)
    assert state.launches() == (row,)
    done = state.save(msgspec.structs.replace(row, phase="done"))
    assert state.launches() == ()
    assert state.launch("one") == done


def test_commands_are_read_by_their_ids(state: StatePort) -> None:
    """More than DynamoDB reads in a request; one that is finished, and one that does not exist."""
    ids = [f"{number:03}" for number in range(120)]
    for id in ids:
        state.create(CommandRow(id, state.cluster().cluster, "d", "Empty", ("a",), {}, created=1))
    done = state.command("007")
    assert done is not None
    state.save(msgspec.structs.replace(done, phase="done"))
    assert [row.id for row in state.commands_by_id([*ids, "nobody", "000"])] == ids
    assert state.commands_by_id([]) == ()


def test_notices_are_read_by_their_instances(state: StatePort) -> None:
    """More than DynamoDB reads in a request; one that is finished, and one that does not exist."""
    instances = [f"i-{number:03}" for number in range(120)]
    for instance in instances:
        state.create(NoticeRow(instance, state.cluster().cluster, "spot_interrupted"))
    done = state.notice("i-007")
    assert done is not None
    done = state.save(msgspec.structs.replace(done, phase="done"))
    rows = state.notices_of([*reversed(instances), "i-nobody", "i-000"])
    assert [row.instance_id for row in rows] == instances
    assert rows[7] == done
    assert state.notices_of([]) == ()


def test_finished_rows_are_read_with_the_open_ones_if_they_are_recent(state: StatePort) -> None:
    for id, created, phase in (("old", 1_000_000, "done"), ("new", 9_000_000, "done"), ("open", 1, "claimed")):
        state.create(launch(state, id, created=created, phase=phase))
    assert [row.id for row in state.launches()] == ["open"]
    assert [row.id for row in state.launches(created_after=5_000_000)] == ["new", "open"]
    assert [row.id for row in state.launches(created_after=9_000_000)] == ["open"]
    assert state.commands(created_after=0) == ()


def due_rows_become(state: StatePort, *expected: str) -> bool:
    """Whether exactly these rows are due at 5,000, at last: an index shows later what was written."""
    until = time.monotonic() + INDEX_SECONDS
    while {sort_key(row) for row in state.due_rows(5_000)} != set(expected):
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def test_rows_that_wait_are_found_by_their_time(state: StatePort) -> None:
    cluster = state.cluster().cluster
    state.create(launch(state, "early", due=1_000))
    state.create(launch(state, "late", due=9_000))
    state.create(launch(state, "never"))
    state.create(NoticeRow(instance_id="i-1", cluster=cluster, kind="spot_interrupted", due=2_000))
    assert due_rows_become(state, "launch#early", "notice#i-1")


def test_a_nomination_is_open_until_its_last_phase_and_found_by_its_time(state: StatePort) -> None:
    cluster = state.cluster().cluster
    row = NominationRow("default-a", cluster, {"default/web-0": "uid-1"}, created=1, due=1_000)
    assert state.create(row)
    assert state.nomination("default-a") == row
    assert state.nomination("default-b") is None
    assert due_rows_become(state, sort_key(row))
    nominated = state.save(msgspec.structs.replace(row, phase="nominated", node="n", due=2_000))
    assert state.nominations() == (nominated,)
    with pytest.raises(Conflict):
        state.save(msgspec.structs.replace(row, phase="failed", due=0))
    state.save(msgspec.structs.replace(nominated, phase="done", due=0))
    assert state.nominations() == ()
    assert due_rows_become(state)
