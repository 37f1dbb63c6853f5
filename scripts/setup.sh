#!/usr/bin/env bash
# Makes the tools ready: system packages, .venv in the checkout, packages of PyPI for build and
# tests. A second run finds everything in place and takes less than a second.
set -euo pipefail
cd "$(dirname "$0")/.."

debian=(build-essential python3-venv python3-dev
  libhwy-dev libgtest-dev libbenchmark-dev libopenblas-dev
  clang-19 libclang-rt-19-dev llvm-19)  # the last three run Metal kernels on the CPU, tests/metal
homebrew=(highway googletest google-benchmark)

install_debian() {
  local missing=() package
  for package in "${debian[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
      missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local as_root=()
  if [ "$(id -u)" -ne 0 ]; then
    if ! sudo -n true 2>/dev/null; then
      echo "missing packages; install them with: sudo apt-get install ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo -n)
  fi
  echo "installing: ${missing[*]}"
  "${as_root[@]}" apt-get update -qq
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

check_homebrew() {
  local missing=() formula
  for formula in "${homebrew[@]}"; do
    brew list --versions "$formula" >/dev/null 2>&1 || missing+=("$formula")
  done
  [ ${#missing[@]} -eq 0 ] && return
  echo "missing packages; install them with: brew install ${missing[*]}" >&2
  exit 1
}

case "$(uname -s)" in
  Darwin)
    check_homebrew
    mlx=mlx
    ;;
  *)
    if command -v dpkg-query >/dev/null; then
      install_debian
    else
      echo "not a Debian system: install Highway, GoogleTest and Google Benchmark by hand" >&2
    fi
    mlx='mlx[cpu]'
    ;;
esac

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  echo "found $("$python" --version 2>&1), expected Python 3.10 or later; set PYTHON=<path>" >&2
  exit 1
fi
[ -x .venv/bin/python ] || "$python" -m venv .venv

requirements=("$mlx==$(cat cmake/mlx_version.txt)"
  'scikit-build-core>=0.10' 'nanobind>=3.0.1,<4' cmake ninja
  'pytest>=8' 'hypothesis>=6' 'numpy>=1.26' 'scipy>=1.11' 'pillow>=10.1'
  'laspy>=2.5' 'lazrs>=0.6' 'plyfile>=1.0')
stamp=.venv/requirements
if [ "$(cat "$stamp" 2>/dev/null)" != "${requirements[*]}" ]; then
  .venv/bin/python -m pip install -q --disable-pip-version-check "${requirements[@]}"
  echo "${requirements[*]}" >"$stamp"
fi
