#!/usr/bin/env bash
# Makes the tools ready for one stage: packages of the system, .venv in the checkout, packages from
# PyPI.
#   setup.sh demo    a compiler, Highway and what the demo needs
#   setup.sh test    also what the tests need
#   setup.sh bench   also what the benchmarks need; the default
# A second run finds everything in place and takes less than a second.
set -euo pipefail
cd "$(dirname "$0")/.."

stage=${1:-bench}
case "$stage" in
  demo | test | bench) ;;
  *) echo "[setup.sh] found the stage '$stage'; expected demo, test or bench." >&2; exit 1 ;;
esac
mlx=mlx
[ "$(uname -s)" = Darwin ] || mlx='mlx[cpu]'

debian=(build-essential python3-venv python3-dev libhwy-dev)
homebrew=(highway)
python_packages=("$mlx==$(cat cmake/mlx_version.txt)"
  'scikit-build-core>=0.10' 'nanobind>=3.0.1,<4' cmake ninja
  'numpy>=1.26' 'pillow>=10.1' 'laspy>=2.5' 'lazrs>=0.6' "tomli>=2; python_version < '3.11'")
if [ "$stage" != demo ]; then
  debian+=(libgtest-dev
    clang-19 libclang-rt-19-dev llvm-19  # these three run Metal kernels on the CPU, tests/metal
    chromium  # tests of the viewer's page
    doxygen pkg-config)  # the C++ reference, and C++ programs that find the library
  homebrew+=(googletest)
  python_packages+=('pytest>=8' 'pytest-xdist>=3.5' 'hypothesis>=6' 'scipy>=1.11'
    'plyfile>=1.0')
  # NVRTC and its headers, 60 MB: tests/metal compiles the CUDA text, without a GPU.
  [ "$(uname -sm)" != 'Linux x86_64' ] || python_packages+=('nvidia-cuda-nvrtc>=13,<14'
    'nvidia-cuda-runtime>=13,<14' 'nvidia-cuda-crt>=13,<14' 'nvidia-cuda-cccl>=13,<14')
fi
if [ "$stage" = bench ]; then
  debian+=(libbenchmark-dev libopenblas-dev)
  homebrew+=(google-benchmark)
fi

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
      echo "[setup.sh] packages are missing; run: sudo apt-get install ${missing[*]}" >&2
      exit 1
    fi
    as_root=(sudo -n)
  fi
  echo "installing Debian packages: ${missing[*]}"
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
  echo "[setup.sh] packages are missing; install them with: brew install ${missing[*]}" >&2
  exit 1
}

if [ "$(uname -s)" = Darwin ]; then
  check_homebrew
elif command -v dpkg-query >/dev/null; then
  install_debian
else
  echo "[setup.sh] found no Debian system; install a C++20 compiler and ${homebrew[*]}." >&2
fi

python=${PYTHON:-python3}
if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))'; then
  found=$("$python" --version 2>&1)
  echo "[setup.sh] found $found; expected Python 3.10 or later. Set PYTHON=<path>." >&2
  exit 1
fi
[ -x .venv/bin/python ] || "$python" -m venv .venv

# The stamp lists what is installed, one requirement per line; a stage adds its own lines.
stamp=.venv/requirements
touch "$stamp"
missing=()
for requirement in "${python_packages[@]}"; do
  grep -qxF "$requirement" "$stamp" || missing+=("$requirement")
done
if [ ${#missing[@]} -gt 0 ]; then
  echo "installing Python packages into .venv: ${missing[*]}"
  .venv/bin/python -m pip install -q --disable-pip-version-check "${python_packages[@]}"
  printf '%s\n' "${python_packages[@]}" >"$stamp.new"
  grep -vE '^mlx(\[|=)' "$stamp" >>"$stamp.new" || true  # one line for MLX: the newest
  sort -u "$stamp.new" >"$stamp"
  rm "$stamp.new"
fi
