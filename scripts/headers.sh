#!/usr/bin/env bash
# Proves that every file names what it uses: compiles every public header alone and everything
# without precompiled headers.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh test
. scripts/environment.sh
cmake --preset release -B build/headers -DLATTICE_BUILD_BENCH=OFF -DLATTICE_BUILD_PYTHON=ON \
  -DLATTICE_SIMD=native -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON >/dev/null
cmake --build build/headers --target headers_alone all -- --quiet
echo "headers: every file names what it uses"
