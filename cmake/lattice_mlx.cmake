# MLX for this build: exactly the version of mlx_version.txt, because MLX changes its C++ ABI in
# patch releases.
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS
  "${CMAKE_CURRENT_LIST_DIR}/mlx_version.txt")
file(STRINGS "${CMAKE_CURRENT_LIST_DIR}/mlx_version.txt" LATTICE_MLX_PIN LIMIT_COUNT 1)
include("${CMAKE_CURRENT_LIST_DIR}/find_mlx.cmake")
find_mlx()
read_mlx_version(LATTICE_MLX_VERSION)
message(STATUS "MLX ${LATTICE_MLX_VERSION} (pinned ${LATTICE_MLX_PIN}) in ${MLX_LIBRARY_DIRS}")
if(NOT LATTICE_MLX_VERSION STREQUAL LATTICE_MLX_PIN AND NOT LATTICE_MLX_ANY_VERSION)
  message(FATAL_ERROR "found MLX ${LATTICE_MLX_VERSION}, expected ${LATTICE_MLX_PIN}. Install the "
    "expected version, or build for the installed one with -DLATTICE_MLX_ANY_VERSION=ON.")
endif()
