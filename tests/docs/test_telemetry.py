"""The pages about events, log lines and metrics are those that the tables give."""

import pytest

from spotwright.telemetry.tables import event_rows
from tools import telemetry_docs


@pytest.mark.parametrize("name", telemetry_docs.pages())
def test_the_page_is_up_to_date(name: str) -> None:
    assert (telemetry_docs.DOCS / name).read_text() == telemetry_docs.pages()[name], "run `make docs`"


def test_every_kind_of_object_has_a_name() -> None:
    assert {kind for event in event_rows().values() for kind in event.objects} <= telemetry_docs.KINDS.keys()
