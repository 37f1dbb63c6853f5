#!/usr/bin/env bash
# make demo: builds what the demo needs, shows a first picture after seconds of training, then the
# real one.
set -euo pipefail
cd "$(dirname "$0")/.."
cores=$(getconf _NPROCESSORS_ONLN)
minutes=$(((5 + cores - 1) / cores))
echo "make demo installs what is missing, builds the library and the Python package for the"
echo "instruction set of this machine (about $minutes min on $cores cores, seconds when nothing"
echo "changed), and trains a small network (first picture after seconds, the end after 2 min)."
scripts/build.sh demo
case " $* " in
  *' --quick '* | *' --output'*) ;;
  *) .venv/bin/python -m mlx_lattice demo --quick --output build/demo.html --open
     echo
     echo "That was a first picture. The page is replaced when the real training is done." ;;
esac
exec .venv/bin/python -m mlx_lattice demo --output build/demo.html "$@"
