#!/usr/bin/env bash
# Makes the source distribution in build/wheels and checks that it holds every file of the build:
# sdist.sh
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p build/wheels build/wheel
if [ ! -e build/wheel/sdist/ready ]; then
  "${PYTHON:-python3}" -m venv build/wheel/sdist
  build/wheel/sdist/bin/pip install -q --disable-pip-version-check build scikit-build-core
  touch build/wheel/sdist/ready
fi
rm -f build/wheels/*.tar.gz
build/wheel/sdist/bin/python -m build --sdist --no-isolation --skip-dependency-check \
  --outdir build/wheels . >build/wheel/sdist.log
build/wheel/sdist/bin/python scripts/check_sdist.py build/wheels/*.tar.gz
