"""What tests of hostile calls share: a child process, a full disk, a small cloud."""

import resource
import signal
import subprocess
import sys
import textwrap

import numpy as np
from mlx_lattice import io

rng = np.random.default_rng


def survives(code):
    """Runs code in a child process; it must end by itself with status 0, within two minutes."""
    code = "import mlx.core as mx, mlx_lattice as ml, numpy as np\n" + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    return done.stdout


class full_disk:
    """Files of this process cannot grow beyond `size` bytes."""

    def __init__(self, size):
        self.size = size

    def __enter__(self):
        self.old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, resource.RLIM_INFINITY))

    def __exit__(self, *error):
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        signal.signal(signal.SIGXFSZ, self.old)


def cloud_of(n=300, seed=0, **columns):
    return io.PointCloud(rng(seed).random((n, 3)).astype(np.float32), columns)
