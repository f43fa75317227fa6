"""docs/aws-facts.md says of each rule of the local AWS what the table in the code says."""

import re
from pathlib import Path

from local.aws.strictness import BEHAVIORS, Rule

PAGE = (Path(__file__).parents[2] / "docs" / "aws-facts.md").read_text()
CHAPTER = PAGE.partition("## How strict the local AWS is")[2].partition("\n## ")[0]
# | `rule` | seconds | what | source |
ROWS = re.findall(r"^\| `([\w-]+)` \|([^|]*)\| [^|]+ \| ([^\n]+) \|$", CHAPTER, re.M)


def test_each_rule_has_a_row_with_its_delay() -> None:
    limits = {rule: BEHAVIORS[rule].seconds for rule in Rule}
    wanted = {rule: "" if pair is None else f"{pair[0]:g} to {pair[1]:g}" for rule, pair in limits.items()}
    assert {name: seconds.strip() for name, seconds, _ in ROWS} == wanted


def test_each_row_names_its_source() -> None:
    assert [name for name, _, source in ROWS if not re.search(r"documented|reported|assumed", source)] == []
