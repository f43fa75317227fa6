"""Installing into a cluster, and uninstalling. Objects are plain documents here."""
