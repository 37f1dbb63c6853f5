# Finds the Python interpreter: of the active virtual environment, else of .venv in this checkout,
# else of the system.
if(NOT DEFINED Python_EXECUTABLE AND NOT DEFINED ENV{VIRTUAL_ENV}
   AND EXISTS "${CMAKE_CURRENT_SOURCE_DIR}/.venv/bin/python")
  set(Python_EXECUTABLE "${CMAKE_CURRENT_SOURCE_DIR}/.venv/bin/python")
endif()
set(_components Interpreter)
if(LATTICE_BUILD_PYTHON)
  list(APPEND _components Development.Module)
endif()
find_package(Python 3.10 REQUIRED COMPONENTS ${_components})
