#!/usr/bin/env bash
# Installs a wheel into a new virtual environment and uses it, without a compiler on PATH:
# try_wheel.sh <wheel> [python]
set -euo pipefail
cd "$(dirname "$0")/.."
wheel=$(realpath "$1") python=${2:-python3} root=$PWD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
"$python" -m venv "$folder/env"
install="$folder/env/bin/python -m pip install -q --disable-pip-version-check"
$install "lattice-mlx[cpu] @ file://$wheel"
cd "$folder"
in_wheel() { env -i PATH="$folder/env/bin" HOME="$folder" "$@"; }
in_wheel python "$root/scripts/try_wheel.py" "$root/README.md"
in_wheel mlx-lattice selftest --quick
in_wheel mlx-lattice demo --quick --output "$folder/demo.html"
[ -s "$folder/demo.html" ]
echo "tried: $(basename "$wheel") works in a new environment without a compiler"
