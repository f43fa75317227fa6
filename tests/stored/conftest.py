"""The fakes behind the handlers, as tests of the functions have them."""

from tests.functions.conftest import one_after_the_other, world

__all__ = ["one_after_the_other", "world"]
