// Cases with known answers for every operation in the route table: what selftest() and the route
// tests run.
//
// The answer is computed edge by edge in float64 from the relation's public edges, which no fast
// kernel reads.
#pragma once

#include <string>
#include <vector>

#include "lattice/kernels/cpu/base/splitmix64.h"
#include "lattice/routes/table.h"

namespace lattice {

struct OracleCase {
  std::string label;              // "submanifold 5 -> 7 float16"
  Call call;                      // device and stream are set by whoever runs it
  std::vector<double> expected;   // of the result, row-major
  std::vector<double> magnitude;  // sum of |terms|, to bound the float32 rounding of a sum
};

// All relation kinds, float32, float16 and bfloat16, odd channel counts, groups, bias, empty sets.
// The same on every machine.
std::vector<OracleCase> oracle_cases();

// The same numbers everywhere.
struct Random {
  uint64_t state;
  uint64_t next() { return cpu::splitmix64(state); }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  float real() { return static_cast<float>(next() >> 40) * 0x1p-23f - 1.0f; }
};

// Values and the array of a dtype that holds exactly these values.
struct Values {
  mx::array array;
  std::vector<double> exact;
};
Values random_values(Random& random, mx::Shape shape, mx::Dtype dtype);
// n distinct rows in two batches, x, y, z in [-extent, extent).
CoordinateSet random_coords(Random& random, int64_t n, int64_t extent);
// A relation of that kind on n random rows; custom: edges in any order, some of them twice.
Relation::Ptr make_relation(Random& random, RelationKind kind, int64_t n);

// Largest |result - expected| / tolerance over all elements, where tolerance = half a unit in the
// last place of one final rounding + part * magnitude. At most 1 is right. Evaluates the result.
// kTf32Part: operands lose up to 2^-10 each before they are multiplied.
inline constexpr double kFloat32Part = 0x1p-20, kTf32Part = 0x1p-9;
double oracle_error(const OracleCase& test, const mx::array& result, double part = kFloat32Part);
// The part for a row: what its products lose on the GPU of this machine.
double part_of(const Route& route, const Call& call);

// The cases of one file each; oracle_cases() is all of them.
void add_conv_cases(std::vector<OracleCase>& cases);
void add_pool_cases(std::vector<OracleCase>& cases);
void add_map_rows_cases(std::vector<OracleCase>& cases);
void add_per_edge_cases(std::vector<OracleCase>& cases);
void add_geometry_cases(std::vector<OracleCase>& cases);
void add_features_cases(std::vector<OracleCase>& cases);
void add_distance_cases(std::vector<OracleCase>& cases);
void add_attention_cases(std::vector<OracleCase>& cases);
void add_neighbor_attention_cases(std::vector<OracleCase>& cases);

}  // namespace lattice
