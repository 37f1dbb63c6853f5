#!/usr/bin/env bash
# Cross-compiles the kernels and their tests for 64-bit Arm (NEON) and runs them under qemu-user.
#   test_arm.sh                     the quick list: kernels of features that compute with vectors
#   test_arm.sh kernels/geometry    tests whose names match
# Emulation is 20 to 50 times slower than the machine, so that the list leaves large scenes out.
set -euo pipefail
cd "$(dirname "$0")/.."
tests=${1:-'kernels/(base/(simd|caches)|features/(bits|norm|adamw|int_conv))'}
for tool in aarch64-linux-gnu-g++ qemu-aarch64; do
  if ! command -v "$tool" >/dev/null; then
    echo "test_arm.sh: $tool is missing; install g++-aarch64-linux-gnu and qemu-user" >&2
    exit 3
  fi
done
if [ ! -d /usr/include/hwy ] || [ ! -d /usr/src/googletest ]; then
  echo "test_arm.sh: install libhwy-dev (headers) and googletest (sources)" >&2
  exit 3
fi
cmake -S . -B build/arm -G Ninja -DCMAKE_TOOLCHAIN_FILE="$PWD/cmake/aarch64.cmake" \
  -DCMAKE_BUILD_TYPE=Release -DLATTICE_KERNELS_ONLY=ON -DLATTICE_BUILD_TESTS=ON \
  -DLATTICE_SIMD=native >/dev/null
# Only what will run is built: kernels/features/bits_test is the target kernels_features_bits_test.
mapfile -t targets < <(ctest --test-dir build/arm -N -R "$tests" |
  sed -n 's|^ *Test *#[0-9]*: *||p' | tr / _)
[ ${#targets[@]} -gt 0 ] || { echo "test_arm.sh: no test matches \"$tests\"" >&2; exit 1; }
cmake --build build/arm --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(getconf _NPROCESSORS_ONLN)}" \
  --target "${targets[@]}"
ctest --test-dir build/arm -R "$tests" --output-on-failure
