"""One module a command: options in, an exit code out, everything said on stdout and stderr."""
