"""The first import of a function: nothing is collected while it starts.

Hundreds of modules are made and next to nothing is thrown away, yet the collector would look through all of them again
and again: a tenth of the start. Afterwards what is there stays for as long as the process, and is not looked at again.
"""

import gc

gc.disable()


def over() -> None:
    """The last line of a handler's imports: from here on things are thrown away."""
    gc.freeze()
    gc.enable()
