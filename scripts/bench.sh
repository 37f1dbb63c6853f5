#!/usr/bin/env bash
# Runs benchmarks of the release build: bench.sh <topic or pattern> [arguments of Google Benchmark]
set -euo pipefail
cd "$(dirname "$0")/.."
pattern=${1:-*}
shift || true
found=0
for program in build/release/bench/${pattern}_bench; do
  [ -x "$program" ] || continue
  found=1
  echo "== $(basename "$program")"
  "$program" "$@"
done
if [ "$found" -eq 0 ]; then
  echo "found no benchmark ${pattern}_bench in build/release/bench" >&2
  exit 1
fi
