#!/usr/bin/env bash
# All tests after a build. Each part runs even when one before it failed.
#   test.sh        C++ and Python, then C++ under AddressSanitizer and UBSan
#   test.sh fast   C++ and Python without what is marked slow
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/environment.sh
failed=()
not_slow=() not_marked=()
[ "${1:-}" = fast ] && not_slow=(-LE slow) not_marked=(-m "not slow")
ctest --test-dir build/release --output-on-failure "${not_slow[@]}" || failed+=(ctest)
python -m pytest -n "$CTEST_PARALLEL_LEVEL" --dist loadfile "${not_marked[@]}" || failed+=(pytest)
[ "${1:-}" = fast ] || make asan || failed+=(asan)
if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: ${failed[*]}" >&2
  exit 1
fi
echo "all tests passed"
