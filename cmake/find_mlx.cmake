# find_mlx(): finds the CMake package of MLX and makes the target `mlx` usable. This build uses it,
# and so does the installed latticeConfig.cmake.
#
# The order is: MLX_DIR or MLX_ROOT or CMAKE_PREFIX_PATH; the `mlx` folder beside
# LATTICE_PACKAGE_DIR, which the installed configuration sets; the environment of the Python
# interpreter. mlx.core is not imported: `mlx` is a namespace package, and its path is enough.

macro(find_mlx)
  if(NOT TARGET mlx)
    find_package(MLX CONFIG QUIET)
    if(NOT MLX_FOUND)
      set(_mlx_hints "")
      if(EXISTS "${LATTICE_PACKAGE_DIR}/../mlx/share/cmake/MLX/MLXConfig.cmake")
        set(_mlx_hints "${LATTICE_PACKAGE_DIR}/../mlx")
      endif()
      if(NOT _mlx_hints)
        find_package(Python 3.10 COMPONENTS Interpreter QUIET)
        if(Python_EXECUTABLE)
          execute_process(
            COMMAND "${Python_EXECUTABLE}" -c "import mlx; print(';'.join(mlx.__path__))"
            OUTPUT_VARIABLE _mlx_hints OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
        endif()
      endif()
      find_package(MLX CONFIG QUIET HINTS ${_mlx_hints})
    endif()
    if(NOT MLX_FOUND)
      message(FATAL_ERROR "MLX was not found. Install it with `pip install "
        "'mlx[cpu]==${LATTICE_MLX_PIN}'` (macOS: without [cpu]; NVIDIA: [cuda12] or [cuda13]) into "
        "the Python environment that is active, or set MLX_ROOT to the folder that holds MLX's "
        "include/, lib/ and share/.")
    endif()
    # Headers of MLX are not ours to warn about.
    get_target_property(_mlx_includes mlx INTERFACE_INCLUDE_DIRECTORIES)
    set_target_properties(mlx PROPERTIES INTERFACE_SYSTEM_INCLUDE_DIRECTORIES "${_mlx_includes}")
    if(APPLE) # the wheel names the frameworks of the machine that built it
      set_target_properties(mlx PROPERTIES INTERFACE_LINK_LIBRARIES
        "-framework Metal;-framework Foundation;-framework QuartzCore;-framework Accelerate")
    endif()
  endif()
endmacro()

# Version of the MLX that was found, from its header.
function(read_mlx_version result)
  list(GET MLX_INCLUDE_DIRS 0 _include)
  file(STRINGS "${_include}/mlx/version.h" _lines REGEX "#define MLX_VERSION_(MAJOR|MINOR|PATCH) ")
  string(REGEX MATCHALL "[0-9]+" _numbers "${_lines}")
  list(JOIN _numbers "." _version)
  set(${result} "${_version}" PARENT_SCOPE)
endfunction()
