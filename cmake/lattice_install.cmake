# cmake --install: lib/liblattice, include/lattice, lib/cmake/lattice. The wheel installs the
# components `lattice` and `python` into mlx_lattice/, with the CMake package in
# share/cmake/lattice.
if(LATTICE_KERNELS_ONLY)
  return()
endif()
include(CMakePackageConfigHelpers)

install(TARGETS lattice EXPORT lattice LIBRARY DESTINATION lib COMPONENT lattice
  ARCHIVE DESTINATION lib COMPONENT lattice RUNTIME DESTINATION bin COMPONENT lattice)
install(DIRECTORY "${PROJECT_SOURCE_DIR}/lattice" DESTINATION include COMPONENT lattice
  FILES_MATCHING PATTERN "*.h" PATTERN "*-inl.h" EXCLUDE)

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
