#!/usr/bin/env bash
# Gives every Metal kernel to Apple's compiler, which needs no GPU: check_metal.sh. On macOS with
# Xcode, after a build.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/environment.sh
rm -rf build/metal_texts
python scripts/metal_texts.py build/metal_texts
if ! command -v xcrun >/dev/null; then
  echo "[check_metal.sh] found no xcrun; the kernels were captured but not compiled." >&2
  exit 1
fi
include=$(python -c 'import mlx; print(list(mlx.__path__)[0] + "/include")')
newest=yes
echo | xcrun metal -fsyntax-only -std=metal4.0 -x metal - 2>/dev/null || newest=no
failed=0
for file in build/metal_texts/*.metal; do
  standards="metal3.1 metal3.2 metal4.0"
  grep -q MetalPerformancePrimitives "$file" && standards=metal4.0  # tensor operations
  for standard in $standards; do
    if [ "$standard" = metal4.0 ] && [ "$newest" = no ]; then
      echo "[check_metal.sh] this Xcode has no metal4.0: $file was not compiled as such" >&2
      continue
    fi
    xcrun metal -fsyntax-only "-std=$standard" -I "$include" "$file" || failed=$((failed + 1))
  done
done
[ "$failed" -eq 0 ] || { echo "[check_metal.sh] $failed compilations failed" >&2; exit 1; }
echo "metal: all kernels compile"
