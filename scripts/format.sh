#!/usr/bin/env bash
# clang-format on every C++ file; `format.sh --check` only reports.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v clang-format >/dev/null; then
  echo "clang-format is missing: apt-get install clang-format, brew install clang-format or pip install clang-format" >&2
  exit 1
fi
mode=-i
[ "${1:-}" = --check ] && mode='--dry-run --Werror'
find lattice python/bindings tests bench examples -name '*.h' -o -name '*.cpp' | sort | xargs clang-format $mode
