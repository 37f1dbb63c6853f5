# Compiler flags of all targets: lattice_flags(target).
#
# Release is -O3 for the generic architecture; instruction sets are chosen at run time by Highway.
# -ffp-contract=off: a*b + c is two roundings on every machine, unless a kernel asks for a fused
# multiply-add by name.

set(CMAKE_CXX_FLAGS_RELEASE "-O3 -DNDEBUG")

if(LATTICE_SANITIZE)
  add_compile_options(-fsanitize=${LATTICE_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${LATTICE_SANITIZE})
  # With sanitizers a vector kernel takes a minute to compile per instruction set: one of them is
  # enough, AVX2 on x86.
  add_compile_definitions(HWY_COMPILE_ONLY_STATIC)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    add_compile_options(-march=haswell)
  endif()
  if(LATTICE_SANITIZE MATCHES "address")
    # Unrolled loops are lambdas with thousands of temporaries. Watching the scope of each one takes
    # 221 s for conv.cpp instead of 13 s. Only the target `lattice` turns it on again.
    add_compile_options(-fno-sanitize-address-use-after-scope)
  endif()
  if(LATTICE_SANITIZE MATCHES "undefined")
    # AddressSanitizer finds null pointers and sizes too. Alignment costs a third of the compile
    # time, and no processor that MLX runs on demands it.
    add_compile_options(-fno-sanitize=null,object-size,vptr,alignment
      -fno-sanitize-recover=undefined)
  endif()
endif()

# Instruction sets: lattice/kernels/cpu/base/hwy_targets.h says what each value means.
set_property(CACHE LATTICE_SIMD PROPERTY STRINGS default all native)
if(LATTICE_SIMD STREQUAL "all")
  add_compile_definitions(LATTICE_SIMD_ALL)
elseif(LATTICE_SIMD STREQUAL "native")
  if(NOT CMAKE_CROSSCOMPILING)
    add_compile_options(-march=native)
  endif()
  add_compile_definitions(HWY_COMPILE_ONLY_STATIC)
elseif(NOT LATTICE_SIMD STREQUAL "default")
  message(FATAL_ERROR "LATTICE_SIMD is \"${LATTICE_SIMD}\"; expected default, all or native")
endif()

function(lattice_flags target)
  target_compile_options(${target} PRIVATE -Wall -Wextra -Wpedantic -ffp-contract=off)
  set_target_properties(${target} PROPERTIES
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # False alarm on "[" + std::string (GCC bug 105651).
    target_compile_options(${target} PRIVATE -Wno-restrict)
  endif()
endfunction()
