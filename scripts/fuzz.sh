#!/usr/bin/env bash
# Hostile inputs for every decoder under AddressSanitizer and UBSan, with no allocation above 256
# MB: fuzz.sh [inputs]
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/setup.sh test
. scripts/environment.sh
cmake --preset asan >/dev/null
cmake --build --preset asan --target kernels_coding_fuzz_test ops_codec_test -- --quiet
export LATTICE_FUZZ_INPUTS=${1:-1000000} ASAN_OPTIONS=max_allocation_size_mb=256
export LSAN_OPTIONS=suppressions=$PWD/tests/support/lsan.txt
build/asan/tests/kernels_coding_fuzz_test
build/asan/tests/ops_codec_test --gtest_filter=Codec.HostileFiles
