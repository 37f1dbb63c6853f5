#!/usr/bin/env bash
# Builds, imports and tests the project with another MLX, in a copy of its own:
#   try_mlx_version.sh 0.32.3 | newest
# A failure names what moved: the part that failed and the first words of the compiler or the test.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:-}
if [ "$version" = newest ]; then
  version=$("${PYTHON:-python3}" -m pip index versions mlx 2>/dev/null |
    sed -nE '1s/^mlx \((.*)\)$/\1/p')
  if [ "$version" = "$(cat cmake/mlx_version.txt)" ]; then
    echo "the newest MLX is $version, which the project uses"
    exit 0
  fi
fi
copy=build/mlx-$version
mkdir -p "$copy"
git -c safe.directory='*' ls-files -z | xargs -0 tar -c | tar -x -C "$copy"
cd "$copy"
scripts/set_mlx_version.sh "$version"
step() {  # step <what> <command...>
  local what=$1
  shift
  "$@" && return
  echo "[try_mlx_version.sh] MLX $version: $what failed; the words above say what moved." >&2
  exit 1
}
step "installing MLX and the tools" scripts/setup.sh test
. scripts/environment.sh
step "building the library and the extension" scripts/build.sh demo
step "passing mx.array to the extension (has MLX moved to another nanobind?)" python -c "
import mlx.core as mx, mlx_lattice as ml
assert ml.backend_info()['mlx']['running'] == '$version'
ml.SparseTensor(mx.zeros((1, 4), mx.int32), mx.ones((1, 2)))"
step "the self test" python -m mlx_lattice selftest --quick
step "the Python tests" python -m pytest tests/python -x -n 2
echo "MLX $version: builds, imports, passes its tests"
