#!/usr/bin/env bash
# Makes a wheel for the Python of .venv that needs neither a compiler nor a system library, and uses
# it in a new environment as a stranger would: build/wheels. Also checks the source distribution.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh demo
. scripts/environment.sh
tools=$PWD/build/tools/bin root=$PWD
rm -rf build/wheels build/raw_wheel
PYTHONPATH=$(echo .venv/lib/python3*/site-packages) "$tools/check-sdist" --no-isolation >build/sdist.log || { tail -30 build/sdist.log; exit 1; }

python -m pip wheel -v --disable-pip-version-check --no-build-isolation --no-deps . \
  -w build/raw_wheel --config-settings=build-dir=build/release 2>&1 |
  python scripts/progress.py "building the wheel" build/wheel.log
if [ "$(uname -s)" = Darwin ]; then
  "$tools/delocate-wheel" --exclude libmlx -w build/wheels build/raw_wheel/*.whl
else
  # MLX's own wheels are manylinux_2_35: an older tag would promise more than MLX keeps.
  PATH="$tools:$PATH" auditwheel repair --exclude libmlx.so --only-plat \
    --plat "manylinux_2_35_$(uname -m)" -w build/wheels build/raw_wheel/*.whl
fi

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python -m venv "$folder/env"
"$folder/env/bin/pip" install -q --disable-pip-version-check \
  "lattice-mlx[cpu] @ file://$(ls "$root"/build/wheels/*.whl)"
cd "$folder"
in_wheel() { env -i PATH="$folder/env/bin" HOME="$folder" "$@"; }  # no compiler on PATH
in_wheel python "$root/scripts/try_wheel.py" "$root/README.md"
in_wheel mlx-lattice selftest --quick
in_wheel mlx-lattice demo --quick --output demo.html
echo "tried: $(ls "$root"/build/wheels/*.whl) works in a new environment without a compiler"
