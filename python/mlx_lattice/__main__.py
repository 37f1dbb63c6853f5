"""python -m mlx_lattice <command>"""

import sys

from .cli.main import main

sys.exit(main())
