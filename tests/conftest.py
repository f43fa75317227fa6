"""For every test: no example of a law fails for being slow on a busy machine."""

from hypothesis import settings

settings.register_profile("no-deadline", deadline=None)
settings.load_profile("no-deadline")
