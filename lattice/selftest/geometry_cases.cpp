// Oracle cases of the geometry operations: the answer from std::map and from comparing all pairs.
#include <mlx/ops.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>

#include "lattice/kernels/cpu/base/sort.h"
#include "lattice/routes/geometry.h"
#include "lattice/selftest/cases.h"

namespace lattice {
namespace {

using Row = std::array<int64_t, 4>;

constexpr int64_t kLow = std::numeric_limits<int32_t>::min(),
                  kHigh = std::numeric_limits<int32_t>::max();

// n rows in two batches, some of them twice. extent 0: the corners of the int32 range.
std::vector<Row> random_rows(Random& random, int64_t n, int64_t extent) {
  std::vector<Row> rows;
  for (int64_t i = 0; i < n; ++i) {
    Row row = {random.below(2), 0, 0, 0};
    for (size_t a = 1; a < 4; ++a)
      row[a] = extent ? random.below(2 * extent) - extent
                      : (random.below(2) ? kLow + random.below(3) : kHigh - random.below(3));
    rows.push_back(row);
  }
  return rows;
}

mx::array array_of(const std::vector<Row>& rows) {
  std::vector<int32_t> flat;
  for (const Row& row : rows)
    for (const int64_t v : row) flat.push_back(static_cast<int32_t>(v));
  return mx::array(flat.data(), {static_cast<int>(rows.size()), 4}, mx::int32);
}

std::map<Row, int64_t> first_rows(const std::vector<Row>& rows) {
  std::map<Row, int64_t> first;
  for (size_t r = 0; r < rows.size(); ++r) first.emplace(rows[r], static_cast<int64_t>(r));
  return first;
}

OracleCase finished(const std::string& label, std::shared_ptr<const Question> question,
                    std::vector<double> expected) {
  OracleCase test{{label, mx::float32, std::move(expected), {}}, std::move(question)};
  test.magnitude.assign(test.expected.size(), 0.0);
  return test;
}

CoordinateSet set_of(const std::vector<Row>& rows) {
  return CoordinateSet(array_of(rows), "oracle_cases");
}

OracleCase unique_case(const std::vector<Row>& rows, const std::string& label) {
  std::map<Row, double> number;
  std::vector<double> expected, first;
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto [at, fresh] = number.emplace(rows[r], static_cast<double>(number.size()));
    if (fresh) first.push_back(static_cast<double>(r));
    expected.push_back(at->second);
  }
  expected.insert(expected.end(), first.begin(), first.end());
  return finished(label, question(routes::unique_rows(), {set_of(rows)}), std::move(expected));
}

OracleCase lookup_case(const std::vector<Row>& rows, const std::vector<Row>& queries,
                       const std::string& label) {
  const auto first = first_rows(rows);
  std::vector<double> expected;
  for (const Row& q : queries)
    expected.push_back(first.contains(q) ? static_cast<double>(first.at(q)) : -1.0);
  return finished(label, question(routes::lookup_rows(), {set_of(rows), set_of(queries)}),
                  std::move(expected));
}

OracleCase relate_case(std::vector<Row> in, const std::vector<Row>& out, const KernelSpec& spec,
                       bool scatter, const std::string& label) {
  std::sort(in.begin(), in.end());
  in.erase(std::unique(in.begin(), in.end()), in.end());
  const auto first = first_rows(in);
  const std::vector<Triple> offsets = kernel_offsets(spec.size, spec.dilation, !scatter);
  std::vector<double> expected, of_masks;
  for (const Row& o : out) {
    std::vector<uint32_t> masks((offsets.size() + 31) / 32);
    for (size_t k = 0; k < offsets.size(); ++k) {
      Row place = {o[0], 0, 0, 0};
      bool divides = true;
      for (size_t a = 0; a < 3; ++a) {
        const int64_t s = spec.stride[a], p = spec.padding[a];
        const int64_t q = scatter ? o[a + 1] + p - offsets[k][a] : o[a + 1] * s + offsets[k][a] - p;
        divides = divides && (!scatter || q % s == 0);
        place[a + 1] = scatter ? q / s : q;
      }
      const auto found = divides ? first.find(place) : first.end();
      expected.push_back(found == first.end() ? -1.0 : static_cast<double>(found->second));
      if (found != first.end()) masks[k / 32] |= 1u << (k % 32);
    }
    of_masks.insert(of_masks.end(), masks.begin(), masks.end());
  }
  expected.insert(expected.end(), of_masks.begin(), of_masks.end());
  const RelationKind kind = scatter ? RelationKind::target_transposed : RelationKind::target;
  return finished(
      label, question(routes::relate_rows(), {kind, set_of(in), spec, set_of(out), "oracle_cases"}),
      std::move(expected));
}

float distance(const Row& a, const Row& b, bool points) {
  if (points) {
    float d[3];
    for (size_t i = 0; i < 3; ++i)
      d[i] = std::bit_cast<float>(static_cast<int32_t>(a[i + 1])) -
             std::bit_cast<float>(static_cast<int32_t>(b[i + 1]));
    return (d[0] * d[0] + d[1] * d[1]) + d[2] * d[2];
  }
  cpu::int128 sum = 0;
  for (size_t i = 1; i < 4; ++i) sum += cpu::int128{a[i] - b[i]} * (a[i] - b[i]);
  return static_cast<float>(sum);
}

// Rows as coordinates, or as points with their batches.
NeighborRows neighbor_rows_of(const std::vector<Row>& source, const std::vector<Row>& query,
                              bool points) {
  if (!points) return {array_of(source), array_of(query), std::nullopt, std::nullopt};
  const auto places = [](const std::vector<Row>& rows) {
    std::vector<float> flat;
    for (const Row& row : rows)
      for (size_t a = 1; a < 4; ++a)
        flat.push_back(std::bit_cast<float>(static_cast<int32_t>(row[a])));
    return mx::array(flat.data(), {static_cast<int>(rows.size()), 3}, mx::float32);
  };
  const auto batches = [](const std::vector<Row>& rows) {
    std::vector<int32_t> flat;
    for (const Row& row : rows) flat.push_back(static_cast<int32_t>(row[0]));
    return mx::array(flat.data(), {static_cast<int>(rows.size())}, mx::int32);
  };
  return {places(source), places(query), batches(source), batches(query)};
}

OracleCase neighbors_case(const std::vector<Row>& source, const std::vector<Row>& query,
                          const cpu::NeighborQuery& asked, bool points, const std::string& label) {
  std::vector<double> offsets = {0}, sources, distances;
  int64_t truncated = 0;
  for (const Row& q : query) {
    std::vector<std::pair<float, size_t>> found;
    for (size_t j = 0; j < source.size(); ++j)
      if (const float d2 = distance(q, source[j], points);
          source[j][0] == q[0] && (!asked.reach || d2 <= *asked.reach))
        found.emplace_back(d2, j);
    std::sort(found.begin(), found.end());
    const size_t kept = std::min(found.size(), static_cast<size_t>(asked.limit));
    if (asked.reach) truncated += static_cast<int64_t>(found.size() - kept);
    for (size_t e = 0; e < kept; ++e) {
      sources.push_back(static_cast<double>(found[e].second));
      distances.push_back(double{found[e].first});
    }
    offsets.push_back(static_cast<double>(sources.size()));
  }
  std::vector<double> expected = {static_cast<double>(truncated)};
  for (const auto* part : {&offsets, &sources, &distances})
    expected.insert(expected.end(), part->begin(), part->end());
  return finished(label,
                  question(routes::neighbors_rows(), {neighbor_rows_of(source, query, points),
                                                      asked, asked.limit, "oracle_cases"}),
                  std::move(expected));
}

// The same rows with x, y, z as the bits of float32 in -1 .. 1.
std::vector<Row> as_points(Random& random, std::vector<Row> rows) {
  for (Row& row : rows)
    for (size_t a = 1; a < 4; ++a) row[a] = std::bit_cast<int32_t>(random.real());
  return rows;
}

}  // namespace

void add_geometry_cases(std::vector<OracleCase>& cases) {
  Random random{11};
  for (const int64_t n : {0, 1, 2, 7, 8, 63, 64, 65, 300})
    for (const int64_t extent : {int64_t{3}, int64_t{0}}) {
      const std::vector<Row> rows = random_rows(random, n, extent),
                             others = random_rows(random, n + 1, extent);
      const std::string label =
          std::to_string(n) + " rows " + (extent ? "near" : "at the ends of int32");
      cases.push_back(unique_case(rows, label));
      cases.push_back(lookup_case(rows, others, label));
      cases.push_back(relate_case(rows, others, KernelSpec(), false, "gather " + label));
      cases.push_back(relate_case(rows, others,
                                  KernelSpec({3, 2, 6}, {2, 1, 3}, {1, 0, 2}, {1, 2, 1}), false,
                                  "strided " + label));
      cases.push_back(relate_case(rows, others,
                                  KernelSpec({2, 3, 2}, {2, 1, 2}, {0, 1, 0}, {1, 1, 2}), true,
                                  "scatter " + label));
      if (n > 65) continue;
      const std::vector<Row> sources = extent ? as_points(random, rows) : rows;
      const std::vector<Row> queries = extent ? as_points(random, others) : others;
      const std::string what = (extent ? "points " : "coordinates ") + label;
      const bool points = extent != 0;
      for (const int64_t k : {1, 5, 70})
        cases.push_back(neighbors_case(sources, queries, {k, std::nullopt}, points,
                                       std::to_string(k) + " nearest " + what));
      for (const int64_t limit : {int64_t{2}, kHigh})
        cases.push_back(neighbors_case(sources, queries, {limit, points ? 0.25f : 0x1p33f}, points,
                                       "radius " + std::to_string(limit) + " " + what));
    }
}

}  // namespace lattice
