"""The fakes behind the handlers, as tests of the functions have them."""

from tests.functions.conftest import world

__all__ = ["world"]
