#!/usr/bin/env bash
# Puts the libraries that a wheel needs (Highway) into it, all but MLX's own:
#   repair_wheel.sh <wheel> <folder for the result>
# Needs auditwheel and patchelf on Linux, delocate on macOS.
set -euo pipefail
wheel=$1 folder=$2
if [ "$(uname -s)" = Darwin ]; then
  delocate-wheel --exclude libmlx -w "$folder" -v "$wheel"
  exit
fi
# MLX's own wheels are manylinux_2_35: an older tag would promise more than MLX keeps.
platform=manylinux_2_35_$(uname -m)
auditwheel repair --exclude libmlx.so --plat "$platform" --only-plat -w "$folder" "$wheel"
repaired=$(ls "$folder/$(basename "${wheel%-*}")"-manylinux*.whl)
shown=$(auditwheel show "$repaired")
inside=$(python3 -m zipfile -l "$repaired" | grep -oE 'lib[A-Za-z0-9_+-]+\.so[.0-9]*' | sort -u)
outside=$(grep -oE '\blib[A-Za-z0-9_+-]+\.so[.0-9]*' <<<"$shown" | sort -u |
  grep -vE '^lib(c|m|stdc\+\+|gcc_s|pthread|dl|rt|mlx)\.so' | grep -vxF "$inside" || true)
if [ -n "$outside" ]; then
  echo "[repair_wheel.sh] $repaired needs ${outside//$'\n'/ }; expected only libmlx.so." >&2
  echo "$shown" >&2
  exit 1
fi
echo "repaired: $repaired needs only libmlx.so"
