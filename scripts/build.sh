#!/usr/bin/env bash
# Builds into build/release and installs the package into .venv: build.sh demo | test | bench
# A first `demo` compiles the kernels for the instruction set of this machine only, which takes half
# the time. `test` compiles them for all sets and adds the C++ tests, `bench` the tests and the
# benchmarks. The compiler's words go to build/build.log.
set -euo pipefail
cd "$(dirname "$0")/.."
stage=${1:-bench}
tests=ON bench=ON simd=default
[ "$stage" = bench ] || bench=OFF
cache=build/release/CMakeCache.txt
if [ "$stage" = demo ]; then
  tests=OFF
  # What was built for all sets stays so.
  if [ ! -f $cache ] || grep -q '^LATTICE_SIMD:.*=native' $cache; then simd=native; fi
fi
scripts/setup.sh "$stage"
. scripts/environment.sh
mkdir -p build
python -m pip install -v --disable-pip-version-check --no-build-isolation --no-deps . \
  --config-settings=build-dir=build/release \
  --config-settings=cmake.define.LATTICE_BUILD_TESTS=$tests \
  --config-settings=cmake.define.LATTICE_SIMD="$simd" \
  --config-settings=cmake.define.LATTICE_BUILD_BENCH=$bench 2>&1 |
  python scripts/progress.py "building into build/release" build/build.log
