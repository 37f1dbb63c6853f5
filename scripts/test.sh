#!/usr/bin/env bash
# All tests: C++ and Python on the release build, then C++ under AddressSanitizer and UBSan. Each
# part runs even when one before it failed.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
failed=()
scripts/browser.sh
ctest --test-dir build/release --output-on-failure || failed+=(ctest)
python -m pytest -n "$CTEST_PARALLEL_LEVEL" --dist loadfile || failed+=(pytest)
scripts/sanitize.sh asan || failed+=(asan)
if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: ${failed[*]}" >&2
  exit 1
fi
echo "all tests passed: ctest, pytest, asan"
