"""python -m mlx_lattice <command>"""

import sys

from .cli import main

sys.exit(main())
