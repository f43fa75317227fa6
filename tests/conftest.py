"""For all tests: a property may take its time, since a busy machine is no bug."""

from hypothesis import settings

settings.register_profile("spotwright", deadline=None)
settings.load_profile("spotwright")
