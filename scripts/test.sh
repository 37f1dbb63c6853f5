#!/usr/bin/env bash
# All tests: C++ and Python on the release build, then C++ under AddressSanitizer and UndefinedBehaviorSanitizer.
set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PWD/.venv/bin:$PATH" VIRTUAL_ENV="$PWD/.venv"
ctest --test-dir build/release --output-on-failure
python -m pytest
scripts/sanitize.sh asan
