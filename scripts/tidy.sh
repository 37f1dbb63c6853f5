#!/usr/bin/env bash
# clang-tidy on the C++ files that differ from the branch main; `tidy.sh --all` takes all files,
# which takes long. Needs a build, because clang-tidy reads its compile_commands.json.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$(scripts/lint_tools.sh)
build=${BUILD:-build/release}
if [ ! -f "$build/compile_commands.json" ]; then
  echo "found no $build/compile_commands.json; run \`make build\` first or set BUILD" >&2
  exit 1
fi
if [ "${1:-}" = --all ]; then
  files=$(git ls-files 'lattice/*.cpp' 'python/bindings/*.cpp')
else
  base=$(git merge-base HEAD origin/main 2>/dev/null || git rev-parse HEAD)
  files=$(git diff --name-only --diff-filter=d "$base" -- 'lattice/*.cpp' 'python/bindings/*.cpp')
fi
[ -z "$files" ] && { echo "no C++ file to check"; exit 0; }
echo "$files" | xargs -P "$(nproc)" -n 1 \
  "$tools/clang-tidy" --quiet -p "$build" --warnings-as-errors='*'
