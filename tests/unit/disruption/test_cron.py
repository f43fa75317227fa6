"""Schedules of budgets that cannot be read."""

import pytest

from spotwright.disruption import cron


@pytest.mark.parametrize(
    "schedule", ["9 0 * * mon-", "9" * 5000 + " * * * *", "*/" + "0" * 5000 + " * * * *", "² * * * *"]
)
def test_a_schedule_that_cannot_be_read_says_which_field(schedule: str) -> None:
    with pytest.raises(cron.CronError, match=r"minute|day of week"):
        cron.parse(schedule)
