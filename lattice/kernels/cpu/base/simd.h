// Chooses the instruction set of the vector kernels.
//
// Highway chooses the best one that the machine and the build have. The environment variable
// LATTICE_SIMD limits the choice when the library is loaded: LATTICE_SIMD=AVX2 keeps AVX-512 out.
// So one machine can test and measure the kernels that another one would use.
#pragma once

#include <string>

namespace lattice::cpu {

// Highway's name of the target that kernels run on, e.g. "AVX3", "AVX2", "NEON". Throws
// std::invalid_argument when LATTICE_SIMD names nothing that this machine and this build have.
const char* simd_name();

// The names that limit_simd takes here, best first, separated by ", ".
std::string simd_names();

// From now on kernels run on the named target; an empty name lifts the limit. Throws
// std::invalid_argument for other names than simd_names(). No kernel may run meanwhile.
void limit_simd(const std::string& name);

// Throws what simd_name() throws; every kernel asks before its first use of threads.
void check_simd();

}  // namespace lattice::cpu
