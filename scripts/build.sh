#!/usr/bin/env bash
# Builds library, extension, tests and benchmarks into build/release; installs the package into
# .venv.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH" VIRTUAL_ENV="$PWD/.venv"
export CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(getconf _NPROCESSORS_ONLN)}"
echo "building into build/release"
python -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps . \
  -C build-dir=build/release \
  -C cmake.define.LATTICE_BUILD_TESTS=ON -C cmake.define.LATTICE_BUILD_BENCH=ON
