#!/usr/bin/env bash
# Hostile calls of every public callable, then a differential fuzz: attack.sh [calls] [seed].
# With LATTICE_ASAN=1 the library and the extension are built with AddressSanitizer and UBSan into
# build/asan_python, with the kernels of this machine's best instruction set, and attacked there;
# address space then has no limit, as the shadow needs it.
set -euo pipefail
cd "$(dirname "$0")/.."
calls=${1:-2000} seed=${2:-1}
. scripts/environment.sh
memory=8
if [ "${LATTICE_ASAN:-0}" = 1 ]; then
  python -m pip install -q --disable-pip-version-check --no-build-isolation --no-deps --upgrade \
    --target build/asan_python . --config-settings=build-dir=build/asan_ext \
    --config-settings=cmake.build-type=Sanitize \
    --config-settings=cmake.define.CMAKE_CXX_FLAGS_SANITIZE=-O1 \
    --config-settings=cmake.define.LATTICE_SANITIZE=address,undefined \
    --config-settings=cmake.define.LATTICE_SIMD=native \
    --config-settings=cmake.define.LATTICE_STUBS=OFF
  PYTHONPATH=$PWD/build/asan_python
  # The interpreter has no C++ library, and AddressSanitizer looks for its functions at the start.
  cxx=${CXX:-c++}
  LD_PRELOAD="$("$cxx" -print-file-name=libasan.so) $("$cxx" -print-file-name=libstdc++.so)"
  ASAN_OPTIONS=detect_leaks=0,allocator_may_return_null=1
  export PYTHONPATH LD_PRELOAD ASAN_OPTIONS
  memory=0
fi
python tests/attack/run.py --calls "$calls" --seed "$seed" --memory "$memory"
python tests/attack/fuzz.py --cases "$((calls / 20))" --seed "$seed"
