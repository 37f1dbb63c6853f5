# cmake --install: lib/liblattice, include/lattice, lib/cmake/lattice, lib/pkgconfig. The wheel
# installs the components `lattice` and `python` into mlx_lattice/, with the CMake package in
# share/cmake/lattice.
if(LATTICE_KERNELS_ONLY)
  return()
endif()
include(CMakePackageConfigHelpers)

# The link liblattice.so without a version is for -llattice; a wheel holds no links.
install(TARGETS lattice EXPORT lattice
  LIBRARY DESTINATION lib COMPONENT lattice NAMELINK_COMPONENT cmake
  ARCHIVE DESTINATION lib COMPONENT lattice RUNTIME DESTINATION bin COMPONENT lattice
  FILE_SET HEADERS DESTINATION include COMPONENT lattice)

configure_file("${PROJECT_SOURCE_DIR}/cmake/latticeConfig.cmake.in" latticeConfig.cmake @ONLY)
write_basic_package_version_file(latticeConfigVersion.cmake COMPATIBILITY SameMinorVersion)

function(install_cmake_package destination)
  install(EXPORT lattice NAMESPACE lattice:: FILE latticeTargets.cmake
    DESTINATION "${destination}" ${ARGN})
  install(FILES "${PROJECT_BINARY_DIR}/latticeConfig.cmake"
    "${PROJECT_BINARY_DIR}/latticeConfigVersion.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/find_mlx.cmake" DESTINATION "${destination}" ${ARGN})
endfunction()
install_cmake_package(lib/cmake/lattice COMPONENT cmake)
install_cmake_package(share/cmake/lattice COMPONENT python EXCLUDE_FROM_ALL)

# The module of C for Swift.
install(FILES "${PROJECT_SOURCE_DIR}/cmake/module.modulemap" DESTINATION include/lattice
  COMPONENT cmake)

# lattice.pc for pkg-config, and lattice_c.pc for C programs. MLX has none: a C++ installation names
# where MLX was found; a wheel lies beside MLX's. Both name the file of the library, because a wheel
# has no link without a version.
function(install_pkg_config mlx)
  foreach(_name lattice lattice_c)
    set(_file "${PROJECT_BINARY_DIR}/pkgconfig/${ARGV2}/${_name}.pc")
    configure_file("${PROJECT_SOURCE_DIR}/cmake/${_name}.pc.in" "${_file}.in" @ONLY)
    file(GENERATE OUTPUT "${_file}" INPUT "${_file}.in" TARGET lattice)
    install(FILES "${_file}" DESTINATION lib/pkgconfig ${ARGN})
  endforeach()
endfunction()
if(NOT APPLE) # see latticeConfig.cmake.in
  set(keep "-Wl,--no-as-needed")
endif()
if(LATTICE_STATIC)
  set(more "-lhwy -lstdc++ -pthread -lm")
endif()
cmake_path(GET MLX_LIBRARY_DIRS PARENT_PATH _mlx)
install_pkg_config("${_mlx}" COMPONENT cmake)
install_pkg_config("\${prefix}/../mlx" COMPONENT python EXCLUDE_FROM_ALL)
