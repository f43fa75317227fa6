"""``python -m spotwright.cli``."""

import sys

from spotwright.cli import main

sys.exit(main())
