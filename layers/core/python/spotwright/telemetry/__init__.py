"""What Spotwright reports, declared once: Kubernetes Events, log lines, metrics.

Whatever reports something names its row of these tables; the dashboard, the alarms and the reference pages in docs/
are generated from them. The tables are data and import nothing that does I/O, so that decisions can return a row.
"""
