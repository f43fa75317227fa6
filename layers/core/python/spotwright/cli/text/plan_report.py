"""A plan and what is said beside it."""

import msgspec

from spotwright.cli.text.workloads import Workloads
from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.scheduling.plan import Plan


class CatalogIdentity(msgspec.Struct, frozen=True):
    """Which instance types and prices a plan was made with.

    ``digest``: of the file or stored object they were read from, the first 16 hexadecimal digits of its SHA-256.
    """

    source: str = ""
    digest: str = ""


class PlanReport(msgspec.Struct, frozen=True):
    """``notes``: on the input, such as objects that were converted. ``assumptions``: what could not be known."""

    plan: Plan
    workloads: Workloads = Workloads(())
    catalog: CatalogIdentity = CatalogIdentity()
    notes: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


def price_text(picousd: int) -> str:
    """A price in USD: cents from a dollar on, else ten-thousandths of a dollar."""
    usd = picousd / PICOUSD
    return f"${usd:,.2f}" if usd >= 1 else f"${usd:.4f}"
