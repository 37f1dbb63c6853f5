# Precompiled headers for files that include MLX, nanobind or GoogleTest: those headers are most of
# what such a file costs.
#   lattice_precompile(target header...)       the target compiles with these headers
#   lattice_precompile_shared(name header...)  headers for many executables:
#     lattice_precompile_from(executable name)
#
# A precompiled header hides a forgotten #include. CMAKE_DISABLE_PRECOMPILE_HEADERS=ON builds
# without any, and the target `headers_alone` (tests/CMakeLists.txt) compiles every public header
# alone.

function(_lattice_precompile_options target)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # The first option lets ccache keep the objects. The second one is a false alarm on "[" +
    # std::string (GCC bug 105651) that GCC 12 raises only with precompiled headers.
    target_compile_options(${target} PRIVATE -fpch-preprocess -Wno-stringop-overflow)
  endif()
endfunction()

function(lattice_precompile target)
  _lattice_precompile_options(${target})
  target_precompile_headers(${target} PRIVATE ${ARGN})
endfunction()

# The object library holds one empty file. It has the flags of an executable (no -fPIC), which GCC
# demands.
function(lattice_precompile_shared name libraries)
  set(_file "${CMAKE_CURRENT_BINARY_DIR}/${name}.cpp")
  file(CONFIGURE OUTPUT "${_file}" CONTENT "// Carries the precompiled header ${name}.\n")
  add_library(${name} OBJECT "${_file}")
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  lattice_flags(${name})
  target_link_libraries(${name} PRIVATE ${libraries})
  lattice_precompile(${name} ${ARGN})
endfunction()

function(lattice_precompile_from target name)
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
  _lattice_precompile_options(${target})
  target_precompile_headers(${target} REUSE_FROM ${name})
endfunction()
