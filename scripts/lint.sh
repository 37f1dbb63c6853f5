#!/usr/bin/env bash
# Checks form, not behavior: layout, common mistakes, types and text. Every check runs even when one
# before it failed. `make lint`, pre-commit and .ci/run call this script; `make format` mends
# layout.
set -uo pipefail
cd "$(dirname "$0")/.."
tools=$(scripts/lint_tools.sh) || exit 1
failed=()
check() {  # check <name> <command...>
  local name=$1
  shift
  "$@" || failed+=("$name")
}
check clang-format scripts/format.sh --check
check 'ruff format' "$tools/ruff" format --quiet --check .
check 'ruff check' "$tools/ruff" check --quiet .
check mypy "$tools/mypy" --no-error-summary
check clang-tidy scripts/tidy.py --quick --seconds 30
check text "$tools/python" scripts/check_text.py
if [ ${#failed[@]} -gt 0 ]; then
  echo "FAILED: ${failed[*]}" >&2
  exit 1
fi
echo "lint: clean"
