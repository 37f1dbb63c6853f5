// Oracle cases of map_rows: sums, means and maxima with and without weights, empty rows, one long
// row, and transposed maps.
#include <algorithm>
#include <cmath>

#include "lattice/core/arrays.h"
#include "lattice/graph/dtype.h"
#include "lattice/routes/pool.h"
#include "lattice/selftest/cases.h"

namespace lattice {
namespace {

RowMap::Ptr random_map(Random& random, int64_t n_in, int64_t n_out, Reduction reduction,
                       bool weighted, bool once) {
  cpu::Buffer<int32_t> offsets(n_out + 1);
  std::vector<int32_t> rows;
  std::vector<float> weights;
  for (int64_t o = 0; o < n_out; ++o) {
    offsets[o] = static_cast<int32_t>(rows.size());
    const int64_t size = once ? 3 : o == 5 ? 60 : random.below(5);
    for (int64_t e = 0; e < size; ++e) {
      const int next = static_cast<int>(rows.size());
      if (once && next >= n_in) break;
      rows.push_back(once ? static_cast<int32_t>(n_in - 1 - next)
                          : static_cast<int32_t>(random.below(n_in)));
      weights.push_back(random.real());
    }
  }
  offsets[n_out] = static_cast<int32_t>(rows.size());
  const int n = static_cast<int>(rows.size());
  RowMap::Parts parts{n_in,
                      n_out,
                      mx::array(rows.data(), {n}, mx::int32),
                      adopt(std::move(offsets), {static_cast<int>(n_out) + 1}),
                      std::nullopt,
                      reduction};
  if (weighted) parts.weights = mx::array(weights.data(), {n}, mx::float32);
  return RowMap::make(std::move(parts));
}

OracleCase map_case(Random& random, const RowMap::Ptr& map, int64_t channels, mx::Dtype dtype,
                    const std::string& label) {
  const Values x =
      random_values(random, {static_cast<int>(map->n_in()), static_cast<int>(channels)}, dtype);
  OracleCase test;
  test.label = label + " " + std::to_string(channels) + " channels " + graph::dtype_name(dtype);
  test.question = question(routes::map_rows_rows(), {x.array, map});
  test.dtype = dtype;
  test.expected.assign(static_cast<size_t>(map->n_out() * channels), 0.0);
  test.magnitude = test.expected;
  for (int64_t o = 0; o < map->n_out(); ++o) {
    const int64_t from = map->offsets() ? map->offsets()[o] : o,
                  to = map->offsets() ? map->offsets()[o + 1] : o + 1;
    for (int64_t c = 0; c < channels; ++c) {
      double& sum = test.expected[static_cast<size_t>(o * channels + c)];
      double& size = test.magnitude[static_cast<size_t>(o * channels + c)];
      for (int64_t e = from; e < to; ++e) {
        if (map->rows()[e] < 0) continue;
        const double term = x.exact[static_cast<size_t>(map->rows()[e] * channels + c)] *
                            double{map->weights() ? map->weights()[e] : 1.0f};
        sum = map->reduction() != Reduction::max ? sum + term
              : e == from                        ? term
                                                 : std::max(sum, term);
        size += std::fabs(term);
      }
      if (map->reduction() == Reduction::mean && to > from) sum /= static_cast<double>(to - from);
    }
  }
  return test;
}

}  // namespace

void add_map_rows_cases(std::vector<OracleCase>& cases) {
  Random random{7};
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16})
    for (const int64_t channels : {1, 4, 7, 33, 64}) {
      const auto add = [&](const RowMap::Ptr& map, const char* label) {
        cases.push_back(map_case(random, map, channels, dtype, label));
      };
      add(random_map(random, 50, 40, Reduction::sum, false, false), "sum");
      add(random_map(random, 50, 40, Reduction::sum, true, false), "weighted sum");
      add(random_map(random, 50, 40, Reduction::mean, false, false), "mean");
      add(random_map(random, 50, 40, Reduction::max, false, true), "max");
      add(random_map(random, 50, 40, Reduction::mean, false, false)->transposed(),
          "transposed mean");
      const int32_t rows[] = {3, -1, 0, 3, 7};
      add(RowMap::make({8, 5, mx::array(rows, {5}, mx::int32), std::nullopt, std::nullopt}),
          "rows");
      add(random_map(random, 3, 0, Reduction::sum, true, false), "empty");
    }
}

}  // namespace lattice
