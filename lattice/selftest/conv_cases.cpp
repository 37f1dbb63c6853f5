// Oracle cases of conv, linear and outer: every edge and channel in float64.
#include <mlx/ops.h>

#include <cmath>
#include <optional>

#include "lattice/graph/dtype.h"
#include "lattice/ops/quantize.h"
#include "lattice/ops/rulebook.h"
#include "lattice/routes/conv.h"
#include "lattice/selftest/cases.h"

namespace lattice {
namespace {

struct Shape {
  int64_t c_in, c_out, groups;
  bool bias;
};

std::vector<float> floats(const mx::array& a) {
  mx::array values =
      mx::contiguous(mx::astype(a, mx::float32, mx::Device::cpu), false, mx::Device::cpu);
  values.eval();
  return {values.data<float>(), values.data<float>() + values.size()};
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

routes::ConvProblem shape_of(const Relation::Ptr& r, const Shape& shape, mx::Dtype dtype) {
  return {r, shape.c_in, shape.c_out, shape.groups, dtype};
}

using ConvTable = routes::Table<routes::ConvAsked, mx::array>;
using routes::Packing;

// The same values as a view: which axis lies first in memory, which second, which last.
mx::array stored_as(const mx::array& w, const std::vector<int>& order) {
  std::vector<int> back(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    back[static_cast<size_t>(order[i])] = static_cast<int>(i);
  const mx::Device cpu = mx::Device::cpu;
  return mx::transpose(mx::contiguous(mx::transpose(w, order, cpu), false, cpu), back, cpu);
}

// A norm, and with `more` a residual and a ReLU, in the pass of a convolution.
void add_norm(Random& random, OracleCase& test, routes::ConvAsked& asked, bool more) {
  const int c_out = static_cast<int>(asked.c_out);
  const auto channels = [&] { return random_values(random, {c_out}, mx::float32); };
  const Values mean = channels(), given = channels(), weight = channels(), shift = channels();
  const mx::array var = mx::square(given.array, mx::Device::cpu);
  asked.norm = {mean.array, var, weight.array, shift.array, 0.25f, std::nullopt, more};
  const Values residual =
      random_values(random, {static_cast<int>(asked.n_out()), c_out}, asked.dtype());
  if (more) asked.norm->residual = residual.array;
  for (size_t i = 0; i < test.expected.size(); ++i) {
    const size_t m = i % static_cast<size_t>(c_out);
    const double scale = weight.exact[m] / std::sqrt(given.exact[m] * given.exact[m] + 0.25),
                 added = more ? residual.exact[i] : 0.0;
    const double y = (test.expected[i] - mean.exact[m]) * scale + shift.exact[m] + added;
    test.expected[i] = more ? std::fmax(y, 0.0) : y;
    test.magnitude[i] = (test.magnitude[i] + std::fabs(mean.exact[m])) * std::fabs(scale) +
                        std::fabs(shift.exact[m]) + std::fabs(added);
  }
}

// What a case has besides a relation and a shape.
struct Extra {
  Packing packing = {};             // the weight is packed, and transposed when that says so
  bool norm = false, more = false;  // as add_norm says
  std::vector<int> order = {};      // of the axes of a strided weight in memory
};

OracleCase conv_case(Random& random, const ConvTable& rows, const Relation::Ptr& r,
                     const Shape& shape, mx::Dtype dtype, const Extra& extra = {}) {
  const Packing& packing = extra.packing;
  const int64_t in_group = shape.c_in / shape.groups, out_group = shape.c_out / shape.groups;
  const int c_out = static_cast<int>(shape.c_out);
  const Values x =
      random_values(random, {static_cast<int>(r->n_in()), static_cast<int>(shape.c_in)}, dtype);
  Values w = random_values(
      random, {static_cast<int>(r->n_kernels()), static_cast<int>(in_group), c_out}, dtype);
  OracleCase test;
  routes::ConvAsked asked{shape_of(r, shape, dtype), x.array, {w.array}};
  if (packing.bits) {
    if (packing.transposed) w.array = mx::transpose(w.array, {0, 2, 1}, mx::Device::cpu);
    const QuantizedWeight q =
        quantize_weight(w.array, packing.group_size, packing.bits, mx::Device::cpu);
    asked.weight.w = q.weight();
    asked.weight.codes = {q.scales(), q.biases(), packing};
    const std::vector<double> exact = unpacked(q);
    for (size_t i = 0; i < exact.size(); ++i) {
      const size_t rows = static_cast<size_t>(c_out), columns = static_cast<size_t>(in_group),
                   block = rows * columns;
      const size_t transposed = i / block * block + i % columns * rows + i % block / columns;
      w.exact[packing.transposed ? transposed : i] = exact[i];
    }
  }
  test.expected.assign(static_cast<size_t>(r->n_out() * c_out), 0.0);
  if (shape.bias) {
    const Values b = random_values(random, {c_out}, dtype);
    asked.bias = b.array;
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
  if (extra.norm) add_norm(random, test, asked, extra.more);
  if (!extra.order.empty()) {
    asked.weight.w = stored_as(w.array, extra.order);
    asked.weight.strided = true;
  }
  test.question = question(rows, asked);
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
  test.question = question(routes::outer_rows(), {shape_of(r, shape, dtype), x.array, g.array});
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
  return test;
}

constexpr RelationKind kKinds[] = {RelationKind::forward,     RelationKind::target,
                                   RelationKind::submanifold, RelationKind::transposed,
                                   RelationKind::generative,  RelationKind::target_transposed,
                                   RelationKind::reached,     RelationKind::reached_transposed,
                                   RelationKind::custom};
constexpr Shape kShapes[] = {{1, 1, 1, true},  {3, 32, 1, false},  {16, 16, 1, true},
                             {5, 7, 1, true},  {33, 17, 1, true},  {64, 48, 1, false},
                             {12, 8, 4, true}, {24, 24, 24, true}, {40, 96, 2, false}};
constexpr Shape kCrowdShapes[] = {
    {1, 65, 1, false}, {7, 64, 1, true}, {48, 80, 1, false}, {6, 128, 2, false}};

// Cases of one dtype, labeled.
struct Labeled {
  std::vector<OracleCase>& cases;
  mx::Dtype dtype;
  void operator()(OracleCase test, const Shape& shape, const std::string& what) const {
    test.dtype = dtype;
    test.label = what + " " + std::to_string(shape.c_in) + " -> " + std::to_string(shape.c_out) +
                 (shape.groups > 1 ? "/" + std::to_string(shape.groups) : "") +
                 (shape.bias ? " + bias " : " ") + graph::dtype_name(dtype);
    cases.push_back(std::move(test));
  }
};

std::string name_of(const Packing& packing) {
  return std::string(packing.transposed ? "transposed " : "") + "int" +
         std::to_string(packing.bits) + " ";
}

void add_kinds(const Labeled& add, Random& random) {
  for (const RelationKind kind : kKinds) {
    const Relation::Ptr r = make_relation(random, kind, 60);
    for (const Shape& shape : kShapes) {
      add(conv_case(random, routes::conv_rows(), r, shape, add.dtype), shape, kind_name(kind));
      add(outer_case(random, r, shape, add.dtype), shape, kind_name(kind));
    }
    // The reversed relation is what gradients run on; a submanifold's has routes of its own.
    for (const Shape& shape : kShapes)
      if (kind == RelationKind::submanifold || &shape == &kShapes[4])
        add(conv_case(random, routes::conv_rows(), r->reversed(), shape, add.dtype), shape,
            std::string("reversed ") + kind_name(kind));
  }
}

void add_packed_kinds(const Labeled& add, Random& random) {
  // Channels that are a multiple of 8 on neither side, on one, and on both.
  static constexpr Shape kPackedShapes[] = {
      {3, 7, 1, true}, {40, 17, 1, false}, {12, 8, 4, true}, {24, 40, 1, true}};
  for (const RelationKind kind : kKinds) {
    const Relation::Ptr r = make_relation(random, kind, 60);
    for (const Packing& packing :
         {Packing{4, 32, false}, {8, 64, false}, {4, 32, true}, {8, 64, true}})
      for (const Shape& shape : kPackedShapes) {
        if (packing.transposed && shape.groups > 1) continue;
        add(conv_case(random, routes::conv_rows(), r, shape, add.dtype, {packing}), shape,
            name_of(packing) + kind_name(kind));
      }
  }
}

// Points that share the cells of a kernel.
Relation::Ptr make_crowd(Random& random) {
  const Values points = random_values(random, {60, 3}, mx::float32);
  const PointSet set(points.array, std::nullopt, 0.8f);
  return build_rulebook(set, set, 3).relation;
}

void add_special_relations(const Labeled& add, Random& random) {
  const Relation::Ptr crowd = make_crowd(random);
  add(conv_case(random, routes::conv_rows(), crowd, kShapes[5], add.dtype), kShapes[5],
      "outputs_are_shared");
  for (const Shape& shape : kCrowdShapes)
    add(outer_case(random, crowd, shape, add.dtype), shape, "outputs_are_shared");
  const Relation::Ptr none = relate(RelationKind::submanifold, random_coords(random, 0, 3),
                                    KernelSpec(), std::nullopt, "oracle_cases");
  add(conv_case(random, routes::conv_rows(), none, kShapes[2], add.dtype), kShapes[2], "empty");
  add(outer_case(random, none, kShapes[2], add.dtype), kShapes[2], "empty");
  // Masks of more than one word.
  const Relation::Ptr large =
      relate(RelationKind::submanifold, random_coords(random, 70, 3),
             KernelSpec({3, 3, 5}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}), std::nullopt, "oracle_cases");
  add(conv_case(random, routes::conv_rows(), large, kShapes[2], add.dtype), kShapes[2],
      "45 offsets");
}

void add_linear(const Labeled& add, Random& random) {
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{300}})
    for (const Shape& shape : kShapes) {
      if (shape.groups > 1) continue;
      const Relation::Ptr same = Relation::identity(n);
      const std::string rows = std::to_string(n) + " rows";
      add(conv_case(random, routes::linear_rows(), same, shape, add.dtype), shape, rows);
      for (const Packing& packing : {Packing{4, 32, false}, {8, 32, true}})
        add(conv_case(random, routes::linear_rows(), same, shape, add.dtype, {packing}), shape,
            name_of(packing) + rows);
    }
}

// What a training step and an evaluated network ask besides: norms in the same pass, weights that
// are read through strides, 96 columns, rows that meet themselves.
void add_steps(const Labeled& add, Random& random) {
  const Relation::Ptr same = make_relation(random, RelationKind::submanifold, 60),
                      up = make_relation(random, RelationKind::target_transposed, 60);
  const auto conv = [&](const Relation::Ptr& r, const Shape& shape, const std::string& what,
                        const Extra& extra) {
    add(conv_case(random, routes::conv_rows(), r, shape, add.dtype, extra), shape, what);
  };
  conv(same, {24, 96, 1, false}, "norm with residual, submanifold", {{}, true, true});
  conv(same, {5, 17, 1, true}, "norm, submanifold", {{}, true});
  conv(same, {12, 8, 4, false}, "norm with residual, submanifold", {{}, true, true});
  conv(same, {40, 17, 1, false}, "int4 norm, submanifold", {{4, 32, false}, true});
  conv(up, {16, 40, 1, false}, "norm with residual, upwards", {{}, true, true});
  // Stored as (C_out, K, C_in) and as (K, C_out, C_in): the gradients of layers of both layouts.
  conv(same->reversed(), {24, 16, 1, false}, "strided, reversed submanifold", {.order = {1, 0, 2}});
  conv(same->reversed(), {17, 33, 1, false}, "strided, reversed submanifold", {.order = {0, 2, 1}});
  conv(same->reversed(), {40, 96, 2, false}, "strided, reversed submanifold", {.order = {1, 0, 2}});
  conv(up->reversed(), {16, 24, 1, false}, "strided, reversed upwards", {.order = {0, 2, 1}});
  conv(same, {20, 96, 1, true}, "submanifold", {});
  conv(up, {96, 96, 1, false}, "upwards", {});
  const auto outer = [&](const Relation::Ptr& r, const Shape& shape, const std::string& what) {
    add(outer_case(random, r, shape, add.dtype), shape, what);
  };
  outer(same, {96, 96, 1, false}, "submanifold");
  outer(same, {33, 90, 1, false}, "submanifold");
  outer(Relation::identity(1100), {33, 17, 1, false}, "1100 rows with themselves");
  outer(Relation::identity(70), {96, 96, 1, false}, "70 rows with themselves");
}

}  // namespace

void add_conv_cases(std::vector<OracleCase>& cases) {
  static constexpr mx::Dtype kDtypes[] = {mx::float32, mx::float16, mx::bfloat16};
  Random random{42};
  for (const mx::Dtype dtype : kDtypes) {
    const Labeled add{cases, dtype};
    add_kinds(add, random);
    add_packed_kinds(add, random);
    add_special_relations(add, random);
    add_linear(add, random);
  }
  Random other{31};
  const Relation::Ptr crowd = make_crowd(other);
  for (const mx::Dtype dtype : kDtypes)
    for (const Shape& shape : kCrowdShapes) {
      const Labeled add{cases, dtype};
      add(conv_case(other, routes::conv_rows(), crowd, shape, dtype), shape, "outputs_are_shared");
      add(conv_case(other, routes::conv_rows(), crowd, shape, dtype, {{4, 32, false}}), shape,
          "int4 outputs_are_shared");
    }
  // The gradient of a submanifold convolution with packed weights.
  const Relation::Ptr back = make_relation(other, RelationKind::submanifold, 60)->reversed();
  for (const mx::Dtype dtype : kDtypes)
    for (const Shape& shape : {Shape{40, 17, 1, true}, Shape{16, 8, 1, false},
                               Shape{32, 24, 1, true}, Shape{16, 48, 1, false}}) {
      const Labeled add{cases, dtype};
      add(conv_case(other, routes::conv_rows(), back, shape, dtype), shape, "reversed submanifold");
      for (const Packing& packing : {Packing{4, 32, false}, {8, 64, true}})
        add(conv_case(other, routes::conv_rows(), back, shape, dtype, {packing}), shape,
            name_of(packing) + "reversed submanifold");
    }
  // As many channels as cpu.bf16 wants of a product of matrices.
  for (const Shape& many : {Shape{136, 128, 1, true}, Shape{128, 130, 1, false}})
    for (const int64_t rows : {0, 1, 2, 3, 6, 17})
      Labeled{cases, mx::bfloat16}(
          conv_case(other, routes::linear_rows(), Relation::identity(rows), many, mx::bfloat16),
          many, std::to_string(rows) + " rows");
  Random more{53};
  for (const mx::Dtype dtype : kDtypes) add_steps({cases, dtype}, more);
}

}  // namespace lattice
