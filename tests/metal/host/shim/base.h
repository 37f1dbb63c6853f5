// Words and scalar types of the Metal Shading Language for clang's C++ for OpenCL, and what the
// runtime offers.
//
// OpenCL gives real address spaces, half, vectors with swizzles and float literals. What it spells
// otherwise is renamed here; what it cannot parse is rewritten by rewrite.py.
#pragma once
#pragma OPENCL EXTENSION cl_khr_fp16 : enable

// Reserved or predeclared in OpenCL, free in MSL.
#define local msl_name_local
#define global msl_name_global
#define generic msl_name_generic
#define read_only msl_name_read_only
#define write_only msl_name_write_only
#define read_write msl_name_read_write
#define atomic_int msl_name_atomic_int
#define atomic_uint msl_name_atomic_uint
#define atomic_bool msl_name_atomic_bool
#define atomic_float msl_name_atomic_float
#define atomic_ulong msl_name_atomic_ulong

#define device __global
#define threadgroup __local
#define thread __private
#define kernel msl_kernel  // rewrite.py looks for it

#define __METAL__ 1
#ifndef MSL_VERSION
#define MSL_VERSION 310
#endif
#define __METAL_VERSION__ MSL_VERSION
#define __METAL_FAST_MATH__ 1
#define __METAL_MAYBE_FAST_MATH__ 0
#define __METAL_PRECISE_MATH__ 0
#define METAL_FUNC inline __attribute__((__always_inline__))
#define METAL_CONST const
#define MSL_UNSEEN __attribute__((no_sanitize("thread", "address", "undefined")))

typedef unsigned char uchar;
typedef unsigned short ushort;
typedef unsigned int uint;
typedef unsigned long ulong;
typedef signed char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;
typedef __SIZE_TYPE__ size_t;
typedef __PTRDIFF_TYPE__ ptrdiff_t;
typedef __bf16 bfloat;

#define INFINITY __builtin_inff()
#define NAN __builtin_nanf("")
#define MAXFLOAT 3.402823466e+38f
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define HALF_MAX 65504.0h
#define INT_MAX 2147483647
#define INT_MIN (-2147483647 - 1)
#define UINT_MAX 4294967295u
#define M_PI_F 3.14159265358979323846264338327950288f
#define M_PI_2_F 1.57079632679489661923132169163975144f
#define M_PI_4_F 0.785398163397448309615660845819875721f
#define M_1_PI_F 0.318309886183790671537767526745028724f
#define M_2_SQRTPI_F 1.12837916709551257389615890312154517f
#define M_LOG2E_F 1.44269504088896340735992468100189214f
#define M_LN2_F 0.693147180559945309417232121458176568f
#define M_LN10_F 2.30258509299404568401799145468436421f
#define M_SQRT2_F 1.41421356237309504880168872420969808f
#define M_SQRT1_2_F 0.707106781186547524400844362104849039f

// The runtime (runtime/*.cpp). `site` is the position of the call in the text: all threads of a
// group must meet at one.
extern "C" {
void msl_threadgroup_barrier(uint flags, uint site);
void msl_simdgroup_barrier(uint flags, uint site);
// Every lane hands in `size` bytes; all[32 * size] receives those of every lane. Returns which
// lanes took part.
uint msl_exchange(size_t mine, uint size, size_t all, uint site);
// sums[0..1] += the two elements of a * b that belong to this lane.
void msl_multiply_matrices(float a0, float a1, float b0, float b1, size_t sums, uint site);
// Where the element j (0 or 1) of a simdgroup matrix in this lane is: 8 * row + column.
uint msl_matrix_place(uint j);
uint msl_tensor_layout(void);  // 0, 1 or 2: shim/tensor.h
void msl_count_matrix_flop(uint flop);
uint msl_lane(void);
uint msl_fails_for_no_reason(void);  // a weak compare-exchange may
void msl_atomic_access(size_t address, uint size, uint writes);
}
#define MSL_SITE \
  uint msl_site = ((uint) __builtin_LINE() << 10 | ((uint) __builtin_COLUMN() & 1023u))
