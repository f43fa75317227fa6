"""A module for each command: options in, an exit code out, output on stdout and stderr."""
