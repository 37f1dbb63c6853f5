#!/usr/bin/env bash
# Everything that only a Mac with a GPU can tell, one part after the other, each with its own
# status: mac_report.sh [texts | selftest | tests | speed]...
# Without arguments all parts run, also behind one that failed. What they print is kept in
# build/mac/*.txt. Send this folder back.
set -uo pipefail
cd "$(dirname "$0")/.." || exit
. scripts/environment.sh
mkdir -p build/mac

texts() {
  xcrun metal --version ||
    echo "no Metal compiler: install Xcode, then xcodebuild -downloadComponent MetalToolchain"
  python -m pytest tests/metal/test_apple_compiler.py -vv -rs  # ci.yml looks for PASSED
}
selftest() { mlx-lattice selftest --device gpu --report build/mac/selftest.json; }
tests() { make test; }
speed() {
  PYTHONPATH=tests python -m metal.step
  mlx-lattice bench train --device gpu --repeat 3
  mlx-lattice bench conv --device gpu
}

failed=()
for part in "${@:-texts selftest tests speed}"; do
  for one in $part; do
    case $one in
      texts | selftest | tests | speed) ;;
      *)
        echo "mac_report.sh: found $one, expected texts, selftest, tests or speed" >&2
        exit 2
        ;;
    esac
    echo "== $one"
    $one 2>&1 | tee "build/mac/$one.txt" || failed+=("$one")
  done
done
if [ ${#failed[@]} -gt 0 ]; then
  echo "mac_report.sh: failed: ${failed[*]}; see build/mac"
  exit 1
fi
echo "mac_report.sh: all parts passed; see build/mac"
