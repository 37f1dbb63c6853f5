# Highway, the vector library of the kernels: the CMake package, else pkg-config. Target hwy::hwy.
find_package(hwy CONFIG QUIET)
if(NOT TARGET hwy::hwy)
  find_package(PkgConfig QUIET)
  if(PkgConfig_FOUND)
    pkg_check_modules(libhwy IMPORTED_TARGET QUIET libhwy)
  endif()
  if(NOT TARGET PkgConfig::libhwy)
    message(FATAL_ERROR "Highway, the vector library that lattice needs, is not installed. "
      "Install it: `apt-get install libhwy-dev` (Debian, Ubuntu), `dnf install highway-devel` "
      "(Fedora) or `brew install highway` (macOS).")
  endif()
  add_library(hwy::hwy ALIAS PkgConfig::libhwy)
endif()
