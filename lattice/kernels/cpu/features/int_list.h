// The kernels of int_conv: their arguments, and the choice among them.
//
//   sums[out[e] - first, :] += x[in[e], :] W
//   y[o, :] = convert(sums[o, :] + factor * residual[o, :])
//
// In one step, 4 bytes of each of M rows (four bytes or two int16 values) are multiplied by 4 bytes
// of weights of each of 32 output columns. The packed weights are the same for every instruction
// set.
#pragma once

#include <cstdint>
#include <vector>

namespace lattice::cpu {

inline constexpr int64_t kIntPanel = 32;  // output columns of a packed block
enum class IntType { u8, s8, i16, f32 };  // of rows; s8 is kept as a byte with 128 added

// How the sums of a panel become rows of the result: residual, scale, clamp, rounding, table.
struct IntEnd {
  const float* scale;     // of the columns of the panel
  const int32_t* factor;  // of the residual, or null
  int64_t columns;        // of the panel that exist
  int64_t pitch;          // columns of y
  const int32_t* order;   // position -> row, or null
  const void* residual;   // at the first column of the panel, or null
  IntType residual_type, out;
  bool relu;
  const uint8_t* table;
  void* y;  // at the first column of the panel
};
// Rows [0, n) of sums belong to the output positions first, first + 1, ...
using IntEndKernel = void (*)(const IntEnd& end, const int32_t* sums, int64_t first, int64_t n);

struct IntListCall {
  const uint8_t* x = nullptr;
  int64_t pitch = 0;  // bytes of a row of x
  const int32_t* in = nullptr;
  const int32_t* out = nullptr;
  int64_t n = 0;
  int64_t bytes = 0;  // that are read of each row, a multiple of 16
  const uint8_t* w = nullptr;
  int32_t* sums = nullptr;
  int32_t first = 0;
  const int32_t* start = nullptr;  // see IntStart
  const IntEnd* end = nullptr;     // see ends_in_registers
};

// What the sums of an edge begin with: the sums so far, or `start`, so that memory is written but
// not read, or both added.
enum class IntStart { sums, given, both };

// once: no two edges of the list share an output row, so that blocks of edges are independent.
using IntListKernel = void (*)(const IntListCall&, bool once);

// How bytes are multiplied.
//   plain    C++, one value at a time
//   avx2     pairs with saturation at 16 bits, two or four pairs added there: the lane rule
//   vnni256  AVX-VNNI: four products and their sum in one instruction
//   vnni512  AVX-512 VNNI: the same, twice as wide
//   sdot     NEON: the same of signed bytes, so that 128 is taken off every input
enum class IntDot { plain, avx2, vnni256, vnni512, sdot };
const char* name(IntDot dot);
// Whether this machine and this build have it. LATTICE_SIMD limits these kernels like all others.
bool has(IntDot dot);
// The available ones, best first; `plain` is always the last.
std::vector<IntDot> int_dots();

// The form of the rows and sums of a list: bytes or int16 values, and the bytes of a whole row.
// int_list_kernel() gives the kernel for a form, or null where the build has none.
struct IntListForm {
  bool bytes;
  int64_t row_bytes;
  IntStart start;
  const IntEnd* end = nullptr;  // of a list that ends in registers, or null
};
IntListKernel int_list_kernel(IntDot dot, const IntListForm& form);

IntEndKernel int_end_kernel(IntDot dot, const IntEnd& end);

// Whether a list of IntStart::given can write finished rows, so that no sums are in memory: whole
// panels of bytes without a table. A pointwise layer of 64 channels runs 1.2 times as fast.
inline bool ends_in_registers(const IntEnd& end) {
  return end.columns == kIntPanel && end.out == IntType::u8 && !end.table &&
         (!end.residual || end.residual_type == IntType::u8);
}

// One of each per instruction set, in a file of its own.
IntListKernel avx2_list(const IntListForm& form);
IntListKernel vnni256_list(const IntListForm& form);
IntListKernel vnni512_list(const IntListForm& form);
IntListKernel sdot_list(const IntListForm& form);
IntEndKernel avx2_end(const IntEnd& end);
IntEndKernel vnni512_end(const IntEnd& end);
IntEndKernel sdot_end(const IntEnd& end);
bool machine_has_avx_vnni();
bool machine_has_avx512_vnni();
bool machine_has_sdot();

}  // namespace lattice::cpu
