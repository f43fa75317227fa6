"""The account's own prices: ``prices/<cluster>.yaml`` (or ``.json``), which the user puts into the cell's bucket."""

from typing import Any

from spotwright.aws.instance_types import price_file
from spotwright.aws.instance_types.price_file import PriceFile, PriceFileError
from spotwright.errors import NotFound
from spotwright.workflows.ports.state import BlobPort


class AccountPrices:
    """See AccountPricesPort."""

    def __init__(self, blobs: BlobPort, *, cluster: str) -> None:
        self._blobs, self._cluster = blobs, cluster

    def read(self) -> tuple[PriceFile, str]:
        for ending in ("yaml", "json"):
            key = f"prices/{self._cluster}.{ending}"
            try:
                body = self._blobs.get(key)
            except NotFound:
                continue
            try:
                return price_file.parse_price_file(parse(body)), ""
            except PriceFileError as error:
                return PriceFile(), f"{key} is not used, prices are the list's: {error}"
        return PriceFile(), ""


def parse(body: bytes) -> Any:
    """A YAML or JSON document with numbers as they are written; raises PriceFileError."""
    # Few clusters have such a file, and importing yaml takes a tenth of a cold start.
    import yaml

    try:
        return yaml.load(body, Loader=yaml.BaseLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}: " if mark else ""
        raise PriceFileError(f"{where}not YAML: {getattr(error, 'problem', None) or error}") from None
