#!/usr/bin/env bash
# Builds and runs the C++ tests of one preset: sanitize.sh asan | tsan
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh
export PATH="$PWD/.venv/bin:$PATH" VIRTUAL_ENV="$PWD/.venv"
echo "building into build/$1"
cmake --preset "$1" >/dev/null
cores=${CMAKE_BUILD_PARALLEL_LEVEL:-$(getconf _NPROCESSORS_ONLN)}
cmake --build --preset "$1" --parallel "$cores" -- --quiet
ctest --preset "$1"
