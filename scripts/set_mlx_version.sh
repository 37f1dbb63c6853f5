#!/usr/bin/env bash
# Moves the project to another version of MLX: set_mlx_version.sh 0.32.5 | newest
# The version stands in cmake/mlx_version.txt, six times in pyproject.toml and in
# .pre-commit-config.yaml. `make test` then tells whether anything moved.
set -euo pipefail
cd "$(dirname "$0")/.."
new=${1:-}
[ "$new" != newest ] || new=$("${PYTHON:-python3}" -m pip index versions mlx 2>/dev/null |
  sed -nE '1s/^mlx \((.*)\)$/\1/p')
if ! [[ "$new" =~ ^[0-9]+\.[0-9]+\.[0-9]+$ ]]; then
  echo "[set_mlx_version.sh] found '$new'; expected a version such as 0.32.5, or newest." >&2
  exit 1
fi
old=$(cat cmake/mlx_version.txt)
echo "$new" >cmake/mlx_version.txt
sed -i.old -E "s/\b(mlx(\[[a-z0-9]+\])?)==${old//./\\.}/\1==$new/" pyproject.toml .pre-commit-config.yaml
rm pyproject.toml.old .pre-commit-config.yaml.old
echo "MLX $old -> $new"
