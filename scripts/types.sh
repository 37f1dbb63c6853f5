#!/usr/bin/env bash
# Checks types with the stubs of the extension that the last build wrote. `make lint` runs before a
# build and knows the extension as Any.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(scripts/lint_tools.sh)
if [ ! -f build/release/python/_ext.pyi ]; then
  echo "[types.sh] found no stubs in build/release/python; run: make build" >&2
  exit 1
fi
rm -rf build/types
mkdir -p build/types/python
cp -R python/mlx_lattice build/types/python/
cp -R examples pyproject.toml build/types/
cp build/release/python/_ext.pyi build/release/python/_build.py build/types/python/mlx_lattice/
cd build/types
"$tools/mypy" --no-error-summary
echo "types: clean"
