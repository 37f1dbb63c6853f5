#!/usr/bin/env bash
# Moves the project to another version of MLX: set_mlx_version.sh 0.32.5
# The version stands in cmake/mlx_version.txt, six times in pyproject.toml and in
# scripts/lint_requirements.txt; scripts/try_mlx_version.sh tries it.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! [[ "${1:-}" =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]]; then
  echo "[set_mlx_version.sh] found '${1:-}'; expected a version such as 0.32.5." >&2
  exit 1
fi
old=$(cat cmake/mlx_version.txt)
echo "$1" >cmake/mlx_version.txt
sed -i.old -E "s/\"(mlx(\[[a-z0-9]+\])?)==${old//./\\.}([\";])/\"\1==$1\3/" pyproject.toml
sed -i.old "s/^mlx==${old//./\\.}$/mlx==$1/" scripts/lint_requirements.txt
rm pyproject.toml.old scripts/lint_requirements.txt.old
echo "MLX $old -> $1"
