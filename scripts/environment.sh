# shellcheck shell=bash
# Sourced by the other scripts in the folder of the project: .venv first, all cores, ccache where it
# is installed.
export PATH="$PWD/.venv/bin:$PATH" VIRTUAL_ENV="$PWD/.venv"
export CMAKE_BUILD_PARALLEL_LEVEL="${CMAKE_BUILD_PARALLEL_LEVEL:-$(getconf _NPROCESSORS_ONLN)}"
export CTEST_PARALLEL_LEVEL="${CTEST_PARALLEL_LEVEL:-$CMAKE_BUILD_PARALLEL_LEVEL}"
if command -v ccache >/dev/null; then
  export CMAKE_CXX_COMPILER_LAUNCHER="${CMAKE_CXX_COMPILER_LAUNCHER-ccache}"
  # Without these ccache keeps no object that was made with a precompiled header.
  sloppiness=pch_defines,time_macros,include_file_mtime,include_file_ctime
  export CCACHE_SLOPPINESS="${CCACHE_SLOPPINESS:-$sloppiness}"
fi
