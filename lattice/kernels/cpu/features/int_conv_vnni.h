// The list kernels of int_conv that use AVX-512 VNNI.
#pragma once

#include "lattice/kernels/cpu/features/int_list.h"

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define LATTICE_HAS_VNNI_CODE 1
#else
#define LATTICE_HAS_VNNI_CODE 0
#endif

namespace lattice::cpu {

#if LATTICE_HAS_VNNI_CODE
// Whether the processor has the instructions; AVX-512 itself is the caller's affair.
bool has_vnni();
// bytes: u8 rows, else int16.
IntListKernel vnni_kernel(bool bytes, bool put);
#endif

}  // namespace lattice::cpu
