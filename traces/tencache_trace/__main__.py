"""Entry point of ``python -m tencache_trace``."""

import sys

from .cli import main

sys.exit(main())
