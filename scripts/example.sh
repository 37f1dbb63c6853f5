#!/usr/bin/env bash
# Builds and runs examples/cpp, a separate project, against an installed library: example.sh
# <prefix>
set -euo pipefail
cd "$(dirname "$0")/.."
rm -rf build/example
cmake -G Ninja -S examples/cpp -B build/example -DCMAKE_PREFIX_PATH="$(cd "$1" && pwd)" >/dev/null
cmake --build build/example -- --quiet
python examples/write_minkunet.py build/example/net
ctest --test-dir build/example --output-on-failure
