#!/usr/bin/env bash
# Builds and runs the C++ tests of one preset: sanitize.sh asan | tsan
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh test
. scripts/environment.sh
echo "building into build/$1"
cmake --preset "$1" >/dev/null
cmake --build --preset "$1" -- --quiet
ctest --preset "$1"
