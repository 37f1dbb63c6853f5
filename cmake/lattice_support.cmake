# tests/support: the oracle and the workloads, shared by tests/ and bench/. It knows no MLX.
file(GLOB _sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/support/*.cpp")
if(_sources)
  add_library(lattice_support STATIC ${_sources})
  lattice_flags(lattice_support)
  target_link_libraries(lattice_support PUBLIC lattice_internals)
else()
  add_library(lattice_support INTERFACE)
endif()
