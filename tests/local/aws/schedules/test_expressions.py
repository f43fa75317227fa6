"""When a schedule fires, by its expression."""

from datetime import UTC, datetime

import pytest

from local.aws.schedules.expressions import At, Cron, Rate, parse_expression

NOW = datetime(2026, 11, 20, 10, 30, tzinfo=UTC)  # a Friday


@pytest.mark.parametrize(
    ("expression", "following"),
    [
        ("cron(0 12 * * ? *)", "2026-11-20T12:00"),
        ("cron(15,45 * * * ? *)", "2026-11-20T10:45"),
        ("cron(0/20 10 * * ? *)", "2026-11-20T10:40"),
        ("cron(0 8 1 * ? *)", "2026-12-01T08:00"),
        ("cron(0 8 ? * MON-WED *)", "2026-11-23T08:00"),
        ("cron(0 0 29 2 ? *)", "2028-02-29T00:00"),
        ("cron(0 0 1 JAN ? 2030)", "2030-01-01T00:00"),
    ],
)
def test_cron_finds_the_next_time(expression: str, following: str) -> None:
    when = parse_expression(expression)
    assert isinstance(when, Cron)
    found = when.next_after(NOW)
    assert found is not None
    assert found.isoformat()[:16] == following


def test_cron_in_the_past_never_fires() -> None:
    when = parse_expression("cron(0 0 1 1 ? 2020)")
    assert isinstance(when, Cron)
    assert when.next_after(NOW) is None


def test_rates_and_moments() -> None:
    assert parse_expression("rate(5 minutes)") == Rate(300)
    assert parse_expression("rate(1 day)") == Rate(86400)
    moment = parse_expression("at(2026-11-20T19:30:00)", "Asia/Seoul")
    assert isinstance(moment, At)
    assert moment.moment == NOW


@pytest.mark.parametrize(
    "expression",
    ["rate(1 minutes)", "rate(5 minute)", "rate(0 minutes)", "cron(* * * * * *)", "cron(61 * * * ? *)", "soon"],
)
def test_wrong_expressions_are_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_expression(expression)
