#include "lattice/ops/oracle_cases.h"

#include <mlx/ops.h>

#include <chrono>
#include <cmath>
#include <map>
#include <optional>
#include <stdexcept>

#include "lattice/graph/dtype.h"
#include "lattice/graph/metal_call.h"
#include "lattice/ops/distance_routes.h"
#include "lattice/ops/geometry_routes.h"
#include "lattice/ops/map_routes.h"
#include "lattice/ops/pool_cases.h"
#include "lattice/ops/quantize.h"
#include "lattice/ops/rulebook.h"
#include "lattice/ops/triplets_cases.h"

namespace lattice {

Values random_values(Random& random, mx::Shape shape, mx::Dtype dtype) {
  int64_t n = 1;
  for (int d : shape) n *= d;
  std::vector<float> values(static_cast<size_t>(n));
  for (float& v : values) v = random.real();
  mx::array rounded =
      mx::astype(mx::array(values.data(), std::move(shape), mx::float32), dtype, mx::Device::cpu);
  mx::array wide = mx::astype(rounded, mx::float32, mx::Device::cpu);
  wide.eval();
  std::vector<double> exact(static_cast<size_t>(n));
  for (size_t i = 0; i < exact.size(); ++i) exact[i] = double{wide.data<float>()[i]};
  return {rounded, exact};
}

CoordinateSet random_coords(Random& random, int64_t n, int64_t extent) {
  std::vector<std::array<int32_t, 4>> rows;
  while (static_cast<int64_t>(rows.size()) < n) {
    std::array<int32_t, 4> row = {static_cast<int32_t>(random.below(2)), 0, 0, 0};
    for (size_t a = 1; a < 4; ++a) row[a] = static_cast<int32_t>(random.below(2 * extent) - extent);
    if (std::find(rows.begin(), rows.end(), row) == rows.end()) rows.push_back(row);
  }
  return CoordinateSet(mx::array(n ? rows[0].data() : nullptr, {static_cast<int>(n), 4}, mx::int32),
                       "oracle_cases");
}

Relation::Ptr make_relation(Random& random, RelationKind kind, int64_t n) {
  const CoordinateSet in = random_coords(random, n, 3);
  switch (kind) {
    case RelationKind::target:
      return relate(kind, in, KernelSpec({3, 2, 3}, {2, 2, 1}, {1, 0, 1}, {1, 1, 1}),
                    random_coords(random, n, 2), "oracle_cases");
    case RelationKind::target_transposed:
      return relate(kind, in, KernelSpec({2, 3, 2}, {2, 2, 2}, {0, 1, 0}, {1, 1, 2}),
                    random_coords(random, n, 5), "oracle_cases");
    case RelationKind::forward:
      return relate(kind, in, KernelSpec({3, 3, 2}, {2, 1, 2}, {1, 0, 0}, {1, 2, 1}), std::nullopt,
                    "oracle_cases");
    case RelationKind::submanifold:
      return relate(kind, in, KernelSpec(), std::nullopt, "oracle_cases");
    case RelationKind::transposed:
      return relate(kind, in, KernelSpec({3, 2, 2}, {2, 2, 2}, {1, 0, 0}, {1, 1, 1}), std::nullopt,
                    "oracle_cases");
    case RelationKind::generative:
      return relate(kind, in, KernelSpec({2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1}), std::nullopt,
                    "oracle_cases");
    case RelationKind::custom:
      break;
  }
  // Any edges, in any order, some of them twice.
  const int64_t n_edges = 6 * n;
  std::vector<int32_t> ends[3];
  for (int64_t e = 0; e < n_edges; ++e) {
    ends[0].push_back(static_cast<int32_t>(random.below(n)));
    ends[1].push_back(static_cast<int32_t>(random.below(n + 3)));
    ends[2].push_back(static_cast<int32_t>(random.below(4)));
  }
  const auto column = [&](int i) {
    return mx::array(ends[i].data(), {static_cast<int>(n_edges)}, mx::int32);
  };
  return Relation::from_edges(column(0), column(1), column(2), n, n + 3, 4);
}

namespace {

struct Shape {
  int64_t c_in, c_out, groups;
  bool bias;
};

std::vector<float> floats(const mx::array& a) {
  mx::array wide =
      mx::contiguous(mx::astype(a, mx::float32, mx::Device::cpu), false, mx::Device::cpu);
  wide.eval();
  return {wide.data<float>(), wide.data<float>() + wide.size()};
}

// W[k][c][m] of packed codes, one code at a time: float32 product, float32 sum, rounded to the
// dtype.
std::vector<double> unpacked(const QuantizedWeight& q) {
  mx::array codes = q.weight();
  codes.eval();
  const std::vector<float> scales = floats(q.scales()), biases = floats(q.biases());
  const int64_t in = q.in_channels(), out = q.out_channels();
  const int64_t n_groups = q.storage_in_channels() / q.group_size(),
                words = q.storage_in_channels() * q.bits() / 32;
  const auto place = [&](int64_t k, int64_t m, int64_t i, int64_t n) {
    return static_cast<size_t>(q.n_k() == 1 ? m * n + i : (k * n + i) * out + m);
  };
  std::vector<float> exact;
  for (int64_t k = 0; k < q.n_k(); ++k)
    for (int64_t c = 0; c < in; ++c)
      for (int64_t m = 0; m < out; ++m) {
        const uint32_t word = codes.data<uint32_t>()[place(k, m, c * q.bits() / 32, words)];
        const auto code = static_cast<float>(word >> (c * q.bits() % 32) & ((1u << q.bits()) - 1));
        const size_t group = place(k, m, c / q.group_size(), n_groups);
        const float product = scales[group] * code;
        exact.push_back(product + biases[group]);
      }
  const mx::array all(exact.data(), {static_cast<int>(exact.size())}, mx::float32);
  const std::vector<float> rounded = floats(mx::astype(all, q.dtype(), mx::Device::cpu));
  return {rounded.begin(), rounded.end()};
}

// With `packing` the weight is packed, and transposed when that says so (one group only).
OracleCase conv_case(Random& random, const char* operation, const Relation::Ptr& r,
                     const Shape& shape, mx::Dtype dtype, const Packing& packing = {}) {
  const int64_t in_group = shape.c_in / shape.groups, out_group = shape.c_out / shape.groups;
  const int c_out = static_cast<int>(shape.c_out);
  const Values x =
      random_values(random, {static_cast<int>(r->n_in()), static_cast<int>(shape.c_in)}, dtype);
  Values w = random_values(
      random, {static_cast<int>(r->n_kernels()), static_cast<int>(in_group), c_out}, dtype);
  OracleCase test;
  test.call.inputs = {x.array, w.array};
  if (packing.bits) {
    if (packing.transposed) w.array = mx::transpose(w.array, {0, 2, 1}, mx::Device::cpu);
    const QuantizedWeight q =
        quantize_weight(w.array, packing.group_size, packing.bits, mx::Device::cpu);
    test.call.inputs = {x.array, q.weight(), q.scales(), q.biases()};
    test.call.packing = packing;
    test.call.storage = "packed";
    const std::vector<double> exact = unpacked(q);
    for (size_t i = 0; i < exact.size(); ++i) {
      const size_t rows = static_cast<size_t>(c_out), columns = static_cast<size_t>(in_group),
                   block = rows * columns;
      const size_t turned = i / block * block + i % columns * rows + i % block / columns;
      w.exact[packing.transposed ? turned : i] = exact[i];
    }
  }
  test.expected.assign(static_cast<size_t>(r->n_out() * c_out), 0.0);
  if (shape.bias) {
    const Values b = random_values(random, {c_out}, dtype);
    test.call.inputs.push_back(b.array);
    for (size_t i = 0; i < test.expected.size(); ++i)
      test.expected[i] = b.exact[i % static_cast<size_t>(c_out)];
  }
  test.magnitude = test.expected;
  for (double& v : test.magnitude) v = std::fabs(v);
  const Edges& edges = r->edges();
  for (int64_t e = 0; e < r->edge_count(); ++e) {
    const int64_t i = edges.in_rows.data<int32_t>()[e], o = edges.out_rows.data<int32_t>()[e],
                  k = edges.kernel_ids.data<int32_t>()[e];
    for (int64_t m = 0; m < c_out; ++m)
      for (int64_t c = 0; c < in_group; ++c) {
        const double term =
            x.exact[static_cast<size_t>(i * shape.c_in + m / out_group * in_group + c)] *
            w.exact[static_cast<size_t>((k * in_group + c) * c_out + m)];
        test.expected[static_cast<size_t>(o * c_out + m)] += term;
        test.magnitude[static_cast<size_t>(o * c_out + m)] += std::fabs(term);
      }
  }
  test.call.operation = operation;
  return test;
}

OracleCase outer_case(Random& random, const Relation::Ptr& r, const Shape& shape, mx::Dtype dtype) {
  const int64_t in_group = shape.c_in / shape.groups, out_group = shape.c_out / shape.groups,
                c_out = shape.c_out;
  const Values x =
      random_values(random, {static_cast<int>(r->n_in()), static_cast<int>(shape.c_in)}, dtype);
  const Values g =
      random_values(random, {static_cast<int>(r->n_out()), static_cast<int>(c_out)}, dtype);
  OracleCase test;
  test.call.inputs = {x.array, g.array};
  test.expected.assign(static_cast<size_t>(r->n_kernels() * in_group * c_out), 0.0);
  test.magnitude = test.expected;
  const Edges& edges = r->edges();
  for (int64_t e = 0; e < r->edge_count(); ++e) {
    const int64_t i = edges.in_rows.data<int32_t>()[e], o = edges.out_rows.data<int32_t>()[e],
                  k = edges.kernel_ids.data<int32_t>()[e];
    for (int64_t c = 0; c < in_group; ++c)
      for (int64_t m = 0; m < c_out; ++m) {
        const double term =
            x.exact[static_cast<size_t>(i * shape.c_in + m / out_group * in_group + c)] *
            g.exact[static_cast<size_t>(o * c_out + m)];
        test.expected[static_cast<size_t>((k * in_group + c) * c_out + m)] += term;
        test.magnitude[static_cast<size_t>((k * in_group + c) * c_out + m)] += std::fabs(term);
      }
  }
  test.call.operation = "outer";
  return test;
}

// Half a unit in the last place of `value` in a dtype with `bits` bits of significand and smallest
// exponent `lowest`.
double half_ulp(double value, int bits, int lowest) {
  const int exponent = value == 0 ? lowest : std::max(lowest, std::ilogb(value));
  return std::ldexp(0.5, exponent - bits + 1);
}

}  // namespace

std::vector<OracleCase> oracle_cases() {
  static constexpr RelationKind kKinds[] = {
      RelationKind::forward,    RelationKind::target,     RelationKind::submanifold,
      RelationKind::transposed, RelationKind::generative, RelationKind::target_transposed,
      RelationKind::custom};
  static constexpr Shape kShapes[] = {{1, 1, 1, true},  {3, 32, 1, false},  {16, 16, 1, true},
                                      {5, 7, 1, true},  {33, 17, 1, true},  {64, 48, 1, false},
                                      {12, 8, 4, true}, {24, 24, 24, true}, {40, 96, 2, false}};
  static constexpr Shape kPackedShapes[] = {{3, 7, 1, true}, {40, 17, 1, false}, {12, 8, 4, true}};
  std::vector<OracleCase> cases;
  Random random{42};
  const auto add = [&](OracleCase test, const Relation::Ptr& r, const Shape& shape, mx::Dtype dtype,
                       const std::string& what) {
    test.call.relation = r;
    test.call.c_in = shape.c_in;
    test.call.c_out = shape.c_out;
    test.call.groups = shape.groups;
    test.call.dtype = dtype;
    test.label = what + " " + std::to_string(shape.c_in) + " -> " + std::to_string(shape.c_out) +
                 (shape.groups > 1 ? "/" + std::to_string(shape.groups) : "") +
                 (shape.bias ? " + bias " : " ") + graph::dtype_name(dtype);
    cases.push_back(std::move(test));
  };
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16}) {
    for (const RelationKind kind : kKinds) {
      const Relation::Ptr r = make_relation(random, kind, 60);
      for (const Shape& shape : kShapes) {
        add(conv_case(random, "conv", r, shape, dtype), r, shape, dtype, kind_name(kind));
        add(outer_case(random, r, shape, dtype), r, shape, dtype, kind_name(kind));
      }
      // The reversed relation is what gradients run on; a submanifold's has routes of its own.
      for (const Shape& shape : kShapes)
        if (kind == RelationKind::submanifold || &shape == &kShapes[4])
          add(conv_case(random, "conv", r->reversed(), shape, dtype), r->reversed(), shape, dtype,
              std::string("reversed ") + kind_name(kind));
    }
    for (const RelationKind kind : kKinds) {
      const Relation::Ptr r = make_relation(random, kind, 60);
      for (const Packing& packing :
           {Packing{4, 32, false}, {8, 64, false}, {4, 32, true}, {8, 64, true}})
        for (const Shape& shape : kPackedShapes) {
          if (packing.transposed && shape.groups > 1) continue;
          add(conv_case(random, "conv", r, shape, dtype, packing), r, shape, dtype,
              std::string(packing.transposed ? "turned " : "") + "int" +
                  std::to_string(packing.bits) + " " + kind_name(kind));
        }
    }
    // Points that share the cells of a kernel.
    const Values points = random_values(random, {60, 3}, mx::float32);
    const PointSet set(points.array, std::nullopt, 0.8f);
    const Relation::Ptr crowd = build_rulebook(set, set, 3).relation;
    add(conv_case(random, "conv", crowd, kShapes[5], dtype), crowd, kShapes[5], dtype,
        "outputs_are_shared");
    for (const Shape& shape : {Shape{1, 65, 1, false}, Shape{7, 64, 1, false},
                               Shape{48, 80, 1, false}, Shape{6, 128, 2, false}})
      add(outer_case(random, crowd, shape, dtype), crowd, shape, dtype, "outputs_are_shared");
    const Relation::Ptr none = relate(RelationKind::submanifold, random_coords(random, 0, 3),
                                      KernelSpec(), std::nullopt, "oracle_cases");
    add(conv_case(random, "conv", none, kShapes[2], dtype), none, kShapes[2], dtype, "empty");
    add(outer_case(random, none, kShapes[2], dtype), none, kShapes[2], dtype, "empty");
    // Masks of more than one word.
    const Relation::Ptr wide = relate(RelationKind::submanifold, random_coords(random, 70, 3),
                                      KernelSpec({3, 3, 5}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}),
                                      std::nullopt, "oracle_cases");
    add(conv_case(random, "conv", wide, kShapes[2], dtype), wide, kShapes[2], dtype, "45 offsets");
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{300}})
      for (const Shape& shape : kShapes) {
        if (shape.groups > 1) continue;
        const Relation::Ptr same = Relation::identity(n);
        add(conv_case(random, "linear", same, shape, dtype), same, shape, dtype,
            std::to_string(n) + " rows");
        for (const bool turned : {false, true})
          add(conv_case(random, "linear", same, shape, dtype, {turned ? 8 : 4, 32, turned}), same,
              shape, dtype, (turned ? "int8 turned " : "int4 ") + std::to_string(n) + " rows");
      }
  }
  add_pool_cases(cases);
  add_map_cases(cases);
  add_triplets_cases(cases);
  add_geometry_cases(cases);
  add_distance_cases(cases);
  return cases;
}

double oracle_error(const OracleCase& test, const mx::array& result) {
  mx::array wide =
      mx::contiguous(mx::astype(result, mx::float32, mx::Device::cpu), false, mx::Device::cpu);
  wide.eval();
  if (static_cast<size_t>(wide.size()) != test.expected.size()) return INFINITY;
  const int bits = test.call.dtype == mx::float32 ? 24 : test.call.dtype == mx::float16 ? 11 : 8;
  const int lowest = test.call.dtype == mx::float16 ? -14 : -126;
  double worst = 0;
  for (size_t i = 0; i < test.expected.size(); ++i) {
    const double tolerance = half_ulp(test.expected[i], bits, lowest) + 0x1p-20 * test.magnitude[i];
    const double error = std::fabs(double{wide.data<float>()[i]} - test.expected[i]) / tolerance;
    worst = error <= worst ? worst : error;  // NaN counts as worse
    if (std::isnan(error)) return INFINITY;
  }
  return worst;
}

namespace {

// FNV-1a (Fowler, Noll, Vo) of the bytes.
uint64_t bits_of(const mx::array& result) {
  mx::array plain = mx::contiguous(result, false, mx::Device::cpu);
  plain.eval();
  uint64_t hash = 0xcbf29ce484222325ull;
  const auto* bytes = plain.data<uint8_t>();
  for (size_t i = 0; i < plain.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  return hash;
}

}  // namespace

std::vector<SelftestRow> selftest(const std::string& device, const std::string& prefix, int every) {
  if (!device.empty() && device != "cpu" && device != "gpu")
    throw std::invalid_argument("[selftest] device must be cpu or gpu, got '" + device + "'");
  if (every < 1)
    throw std::invalid_argument("[selftest] every must be positive, got " + std::to_string(every));
  std::vector<SelftestRow> rows;
  std::map<const Route*, int> seen;
  for (OracleCase& test : oracle_cases())
    for (const Route& route : routes()) {
      const bool hosted = route.device == mx::Device::gpu && graph::has_metal_host();
      if (route.operation != test.call.operation ||
          !(hosted || mx::is_available(mx::Device(route.device))))
        continue;
      if (!device.empty() && device != (route.device == mx::Device::gpu ? "gpu" : "cpu")) continue;
      if (route.name.compare(0, prefix.size(), prefix) != 0) continue;
      test.call.stream = hosted ? mx::Device::cpu : mx::Device(route.device);
      if (!route.check(test.call).fits() || seen[&route]++ % every != 0) continue;
      SelftestRow row;
      row.operation = test.call.operation, row.route = route.name, row.label = test.label;
      row.device = route.device == mx::Device::gpu ? "gpu" : "cpu";
      const auto start = std::chrono::steady_clock::now();
      try {
        mx::array result = route.launch(test.call);
        result.eval();
        row.seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        row.bits = bits_of(result);
        row.error = oracle_error(test, result);
      } catch (const std::exception& e) {
        row.failure = e.what();
      }
      rows.push_back(std::move(row));
    }
  return rows;
}

}  // namespace lattice
