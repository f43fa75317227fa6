"""What the account pays instead of the list price."""

import pytest

from spotwright.adapters.aws.s3.account_prices import AccountPrices, parse
from spotwright.aws.instance_types import price_file
from spotwright.aws.instance_types.price_file import PriceFileError
from spotwright.errors import NotFound
from tests.unit.aws.samples import ZONES, region

LISTED = region("m5.large", "c5.large", "t4g.small")
DOLLAR = 10**12


def paid(text: str) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    after = price_file.apply_prices(LISTED, price_file.parse_price_file(parse(text.encode())))
    assert after.spot is not None
    return after.on_demand, after.spot


def test_a_discount_is_taken_off_everything_that_it_names() -> None:
    on_demand, spot = paid("rules: [{discountPercent: 10, instanceTypes: ['m5.*'], capacityTypes: [on-demand]}]")
    assert on_demand["m5.large"] == 86_400_000_000
    assert on_demand["c5.large"] == LISTED.on_demand["c5.large"]
    assert spot == LISTED.spot


def test_discounts_follow_each_other_upon_the_last_stated_price() -> None:
    on_demand, _ = paid(
        """
        rules:
        - {discountPercent: "50"}
        - {instanceTypes: [m5.large], capacityTypes: [on-demand], pricePerHour: "1"}
        - {instanceTypes: [m5.large], pricePerHour: 0.1}
        - {discountPercent: 10.5, instanceTypes: [m5.large]}
        """
    )
    assert on_demand["m5.large"] == DOLLAR * 895 // 20_000
    assert on_demand["c5.large"] == LISTED.on_demand["c5.large"] // 2


def test_a_spot_price_may_be_of_one_zone() -> None:
    rules = f'{{"rules": [{{"capacityTypes": ["spot"], "zones": ["{ZONES[0]}"], "pricePerHour": "0.01"}}]}}'
    _, spot = paid(rules)
    assert spot["m5.large"][ZONES[0]] == DOLLAR // 100
    assert LISTED.spot is not None
    assert spot["m5.large"][ZONES[1]] == LISTED.spot["m5.large"][ZONES[1]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "expected a map with a list of rules"),
        ("rules: 3", "expected a map with a list of rules"),
        ("{rules: [], more: 1}", "more: unknown field"),
        ("rules: [3]", "rules[0]: expected a map, found '3'"),
        ("rules: [{discount: 3}]", "rules[0].discount: unknown field; allowed are instanceTypes"),
        ("rules: [{}]", "rules[0]: expected either discountPercent or pricePerHour"),
        ("rules: [{discountPercent: 1, pricePerHour: 1}]", "rules[0]: expected either"),
        ("rules: [{discountPercent: 100}]", "rules[0].discountPercent: '100' is not from 0 to below 100"),
        ("rules: [{discountPercent: ten}]", "rules[0].discountPercent: 'ten' is not a number"),
        ("rules: [{pricePerHour: 0}]", "rules[0].pricePerHour: '0' is not a price per hour above 0"),
        ("rules: [{discountPercent: 1, capacityTypes: [reserved]}]", "'reserved' is none of on-demand, spot"),
        ("rules: [{discountPercent: 1, zones: [a]}]", "rules[0].zones: only with capacityTypes [spot]"),
        ("rules: [{discountPercent: 1, instanceTypes: m5.large}]", "expected a list of texts"),
        ("rules: [{discountPercent: 1, instanceTypes: []}]", "an empty list is about nothing"),
        ("rules: [", "line 1: not YAML"),
    ],
)
def test_a_file_that_cannot_be_used_says_why(text: str, words: str) -> None:
    with pytest.raises(PriceFileError) as error:
        price_file.parse_price_file(parse(text.encode()))
    assert words in str(error.value)


class Bucket:
    def __init__(self, **bodies: str) -> None:
        self.bodies = bodies

    def key(self, kind: str, body: bytes) -> str:
        raise NotImplementedError

    def put(self, kind: str, body: bytes) -> str:
        raise NotImplementedError

    def get(self, key: str) -> bytes:
        if key not in self.bodies:
            raise NotFound(key)
        return self.bodies[key].encode()


def test_the_file_is_the_clusters_own_and_a_bad_one_is_not_used() -> None:
    def read(**bodies: str) -> tuple[price_file.PriceFile, str]:
        return AccountPrices(Bucket(**bodies), cluster="c").read()

    assert read() == (price_file.PriceFile(), "")
    prices, complaint = read(**{"prices/c.json": '{"rules": [{"discountPercent": 5}]}'})
    assert len(prices.rules) == 1
    assert complaint == ""
    prices, complaint = read(**{"prices/c.yaml": "rules: 1"})
    assert prices == price_file.PriceFile()
    assert complaint.startswith("prices/c.yaml is not used, prices are the list's: ")
