#!/usr/bin/env bash
# What a change must pass on Apple silicon: all tests, every kernel through Apple's compiler, the
# self test on the GPU. The report of the self test is build/selftest.json, also when a case failed.
set -euo pipefail
cd "$(dirname "$0")/.."
brew install highway googletest
make test
scripts/check_metal.sh
.venv/bin/mlx-lattice selftest --device gpu --report build/selftest.json
