# hwy::hwy and GTest for a cross build: headers and sources that do not belong to one processor.
# /usr/include itself must stay out: it is full of this machine's headers.
set(_include "${CMAKE_CURRENT_BINARY_DIR}/cross_include")
file(MAKE_DIRECTORY "${_include}")
file(CREATE_LINK /usr/include/hwy "${_include}/hwy" SYMBOLIC)
add_library(lattice_hwy STATIC "${PROJECT_SOURCE_DIR}/tests/arm/highway.cpp")
target_include_directories(lattice_hwy SYSTEM PUBLIC "${_include}")
target_compile_definitions(lattice_hwy PUBLIC HWY_STATIC_DEFINE)
add_library(hwy::hwy ALIAS lattice_hwy)

set(INSTALL_GTEST OFF CACHE BOOL "")
set(BUILD_GMOCK OFF CACHE BOOL "")
add_subdirectory(/usr/src/googletest "${CMAKE_CURRENT_BINARY_DIR}/googletest" EXCLUDE_FROM_ALL)
foreach(_target gtest gtest_main)
  if(NOT TARGET GTest::${_target})
    add_library(GTest::${_target} ALIAS ${_target})
  endif()
endforeach()
