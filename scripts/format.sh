#!/usr/bin/env bash
# Formats every C++, Metal, CUDA and Python file; `format.sh --check` only reports, without Python.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(scripts/lint_tools.sh)
sources() {
  find lattice python/bindings tests bench examples \
    -name '*.h' -o -name '*.cpp' -o -name '*.metal' -o -name '*.cuh'
}
if [ "${1:-}" = --check ]; then
  sources | sort | xargs "$tools/clang-format" --dry-run --Werror
else
  sources | sort | xargs "$tools/clang-format" -i
  "$tools/ruff" format --quiet .
  "$tools/ruff" check --quiet --fix --exit-zero .
fi
