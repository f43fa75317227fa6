"""docs/memory.md and docs/cost.md say of each function's memory what the stack deploys, and add up."""

import re
from pathlib import Path

import pytest

from bench.memory_price import invocation
from infra.functions import INSTALL, QUEUE_FUNCTIONS

DOCS = Path(__file__).parents[2] / "docs"
DEPLOYED = {spec.name: spec.memory_mb for spec in (*QUEUE_FUNCTIONS, INSTALL)}
COST = (DOCS / "cost.md").read_text()
# | Lambda, <function>: what | <times> × <milliseconds> ms, <memory> MB | price | dollars |
LAMBDA_ROW = re.compile(r"^\| Lambda, (\w+): [^|]*\| ([\d,]+) × ([\d,]+) ms, ([\d,]+) MB \|[^|]*\| ([\d.]+) \|$", re.M)


def whole(text: str) -> int:
    return int(text.replace(",", ""))


def test_the_chosen_memory_is_deployed() -> None:
    chosen = (DOCS / "memory.md").read_text().partition("## Chosen")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `(\w+)` \| ([\d,]+) \|", chosen, re.M)
    assert {name: whole(memory) for name, memory in rows} == DEPLOYED


def test_the_readmes_cold_start_is_that_of_the_page() -> None:
    page = (DOCS / "memory.md").read_text().partition("A process that has nothing to do")[2].partition("An event")[0]
    rows = re.findall(r"^\| (\w+) \| (\d+) \| (\d+) \| (\d+) \|$", page, re.M)
    times = {name: dict(zip((512, 1024, 1769), map(int, cells), strict=True)) for name, *cells in rows}
    assert times.keys() == DEPLOYED.keys()
    whole_processor = [of_name[1769] for of_name in times.values()]
    as_deployed = [times[name][memory] for name, memory in DEPLOYED.items()]
    readme = (DOCS.parent / "README.md").read_text()
    assert f"| cold start | {min(whole_processor)} to {max(whole_processor)} ms |" in readme
    assert f"{min(as_deployed)} to {max(as_deployed)} ms with the memory that each has" in readme


def test_lambda_costs_what_its_rows_say() -> None:
    rows = LAMBDA_ROW.findall(COST)
    assert {name for name, *_ in rows} == {"sweep", "disrupt", "catalog", "lifecycle"}
    for name, times, milliseconds, memory, dollars in rows:
        assert whole(memory) == DEPLOYED[name]
        assert float(dollars) == pytest.approx(whole(times) * invocation(whole(milliseconds), whole(memory)), abs=0.005)


def test_the_sum_is_the_sum_of_the_rows() -> None:
    rows = re.findall(r"^\|(?! \| \|).*\| ([\d.]+) \|$", COST, re.M)
    (total,) = re.findall(r"^\| \| \| \| \*\*([\d.]+)\*\* \|$", COST, re.M)
    assert sum(round(float(row) * 100) for row in rows) == round(float(total) * 100)
