// Operations of the older package's artifacts whose meaning no operation of ours has
// (docs/from/older.md): sparse tensors of physical coordinates, one row per edge in generative
// convolution, -inf for an empty maximum.
#include <mlx/ops.h>

#include <limits>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/ops/check.h"
#include "lattice/ops/conv.h"
#include "lattice/ops/points.h"
#include "lattice/ops/pool.h"
#include "lattice/program/ops_common.h"

namespace lattice::program {

namespace {

constexpr Operand kX{"x", "sparse"}, kFeats{"feats", "array"};

// The number of rows that count, which `active` (1,) int32 gives.
int active_rows(const mx::array& active, int rows, const char* operation) {
  if (active.ndim() != 1 || active.shape(0) != 1 || active.dtype() != mx::int32)
    fail(operation, "active must be int32 of shape (1,), got shape " + shape_text(active.shape()));
  const int n = evaluated(active, operation, "active").data<int32_t>()[0];
  if (n < 0 || n > rows)
    fail(operation,
         "active must be in 0.." + std::to_string(rows) + ", the rows, got " + std::to_string(n));
  return n;
}

// Physical coordinates are multiples of the stride; a tensor has the quotients.
Results run_make(const Call& call) {
  constexpr const char* kName = "sparse.make";
  const mx::array &coords = call.array("coords"), &feats = call.array("feats");
  if (coords.ndim() != 2 || coords.shape(1) != 4 || coords.dtype() != mx::int32)
    fail(kName, "coords must be int32 of shape (N, 4), got shape " + shape_text(coords.shape()));
  if (feats.ndim() != 2 || feats.shape(0) != coords.shape(0))
    fail(kName, "features must have the " + std::to_string(coords.shape(0)) +
                    " rows of the coordinates, got shape " + shape_text(feats.shape()));
  const int n = active_rows(call.array("active"), coords.shape(0), kName);
  const Triple stride = call.triple("stride");
  const mx::array given = evaluated(coords, kName, "coords");
  const int32_t* physical = given.size() ? given.data<int32_t>() : nullptr;
  cpu::Buffer<int32_t> index(int64_t{n} * 4);
  for (int64_t i = 0; i < int64_t{n} * 4; ++i) {
    const int64_t step = i % 4 ? stride[i % 4 - 1] : 1;
    if (physical[i] % step)
      fail(kName, "coordinates must be divisible by the stride " + triple_text(stride) +
                      ", got row " + std::to_string(i / 4) + " with " +
                      std::to_string(physical[i]) + "; give physical coordinates");
    index[i] = static_cast<int32_t>(physical[i] / step);
  }
  const mx::array kept =
      n == feats.shape(0) ? feats : mx::slice(feats, {0, 0}, {n, feats.shape(1)});
  SparseTensor made(adopt(std::move(index), {n, 4}), kept, stride);
  made.coordinate_set().unique_index(kName);  // throws for duplicates
  return {made};
}

Results run_decompose(const Call& call) {
  const SparseTensor& x = call.sparse("x");
  const mx::array coords = evaluated(x.coords(), "sparse.decompose", "x");
  cpu::Buffer<int32_t> physical(static_cast<int64_t>(coords.size()));
  for (int64_t i = 0; i < physical.size(); ++i) {
    const int64_t v = int64_t{coords.data<int32_t>()[i]} * (i % 4 ? x.stride()[i % 4 - 1] : 1);
    if (v != static_cast<int32_t>(v))
      throw std::overflow_error("[sparse.decompose] physical coordinates leave int32 at row " +
                                std::to_string(i / 4));
    physical[i] = static_cast<int32_t>(v);
  }
  return {adopt(std::move(physical), coords.shape()), x.feats(), x.active_rows()};
}

// index * stride + offset for each row and offset, row by row.
mx::array generated_coords(const SparseTensor& x, const KernelSpec& spec) {
  const mx::array coords = evaluated(x.coords(), "generative_conv_transpose3d", "input");
  const std::vector<Triple> offsets = kernel_offsets(spec.size, {1, 1, 1}, false);
  const int64_t n = x.capacity(), k = static_cast<int64_t>(offsets.size());
  if (n * k > std::numeric_limits<int32_t>::max())
    fail("generative_conv_transpose3d", "the result has more than 2^31 rows");
  cpu::Buffer<int32_t> out(n * k * 4);
  for (int64_t r = 0; r < n * k; ++r) {
    const int32_t* from = coords.data<int32_t>() + r / k * 4;
    out[r * 4] = from[0];
    for (int axis = 0; axis < 3; ++axis) {
      const int64_t v = from[axis + 1] * spec.stride[axis] + offsets[r % k][axis];
      if (v != static_cast<int32_t>(v))
        throw std::overflow_error("[generative_conv_transpose3d] coordinates leave int32");
      out[r * 4 + axis + 1] = static_cast<int32_t>(v);
    }
  }
  return adopt(std::move(out), {static_cast<int>(n * k), 4});
}

// One row for each pair of a row and an offset, also where several reach one place.
Results run_generative(const Call& call) {
  constexpr const char* kName = "generative_conv_transpose3d";
  const SparseTensor& x = call.sparse("x");
  const mx::array& weight = call.array("weight");  // (O, Kx, Ky, Kz, I)
  const KernelSpec spec = kernel_of(call);
  const int out = weight.ndim() ? weight.shape(0) : 0, taps = static_cast<int>(spec.volume());
  const int in = static_cast<int>(x.channels());
  if (weight.ndim() != 5 || weight.size() != static_cast<size_t>(out) * taps * in)
    fail(kName, "weight must have shape (C_out, " + std::to_string(spec.size[0]) + ", " +
                    std::to_string(spec.size[1]) + ", " + std::to_string(spec.size[2]) + ", " +
                    std::to_string(in) + "), got " + shape_text(weight.shape()));
  if (weight.dtype() != x.dtype()) fail(kName, "weight must have the dtype of the features");
  Triple stride = x.stride();
  for (int axis = 0; axis < 3; ++axis) {
    if (stride[axis] % spec.stride[axis])
      fail(kName, "stride " + triple_text(spec.stride) + " must divide the stride of the input, " +
                      triple_text(x.stride()));
    stride[axis] /= spec.stride[axis];
  }
  // In float32 up to the last step, which rounds once.
  const mx::array wide = mx::astype(weight, mx::float32);
  const mx::array by_tap = mx::transpose(mx::reshape(wide, {out, taps, in}), {1, 0, 2});
  const int rows = static_cast<int>(x.capacity()) * taps;
  mx::array y = mx::reshape(
      linear_features(mx::astype(x.feats(), mx::float32), mx::reshape(by_tap, {taps * out, in})),
      {rows, out});
  if (call.has("eps") && taps > 1) {
    const mx::array squares = sum_axis(mx::square(by_tap), 2, false);
    const mx::array norm =
        mx::rsqrt(mx::add(squares, mx::array(static_cast<float>(call.number("eps")))));  // (K, O)
    y = mx::reshape(mx::multiply(mx::reshape(y, {-1, taps, out}), norm), {rows, out});
  }
  if (call.given("bias")) {
    check_bias(kName, call.array("bias"), out);
    y = mx::add(y, mx::astype(call.array("bias"), mx::float32));
  }
  return {SparseTensor(generated_coords(x, spec), mx::astype(y, x.dtype()), stride)};
}

Results run_max_pool(const Call& call) {
  const SparseTensor& x = call.sparse("x");
  const KernelSpec spec = kernel_of(call);
  const SparseTensor pooled = pool3d(x, Reduction::max, spec);
  const mx::array ones = mx::ones({static_cast<int>(x.capacity()), 1}, mx::float32);
  const mx::array edges = pool3d(x.with_feats(ones), Reduction::sum, spec).feats();
  const mx::array least = mx::array(-std::numeric_limits<float>::infinity(), pooled.dtype());
  return {pooled.with_feats(mx::where(mx::equal(edges, mx::array(0.0f)), least, pooled.feats()))};
}

// Points behind the active ones get 0.
Results run_devoxelize(const Call& call) {
  constexpr const char* kName = "devoxelize";
  const mx::array &points = call.array("points"), &batch = call.array("batch_indices");
  const SparseTensor& voxels = call.sparse("voxels");
  if (points.ndim() != 2 || batch.ndim() != 1 || batch.shape(0) != points.shape(0))
    fail(kName, "batch_indices must have one number for each point, got shapes " +
                    shape_text(batch.shape()) + " and " + shape_text(points.shape()));
  const int p = points.shape(0), n = active_rows(call.array("active"), p, kName);
  const auto triple = [&](const char* name) -> std::array<double, 3> {
    const std::vector<double>& v = call.numbers(name);
    return {v[0], v[1], v[2]};
  };
  const mx::array y =
      devoxelize(mx::slice(points, {0, 0}, {n, points.shape(1)}), voxels,
                 {triple("voxel_size"), triple("origin"), mx::slice(batch, {0}, {n})},
                 parse_interpolation(call.text("interpolation"), kName));
  const mx::array rest = mx::zeros({p - n, y.shape(1)}, y.dtype());
  return {n == p ? y : mx::concatenate({y, rest}, 0)};
}

Results run_embedding(const Call& call) {
  const mx::array& table = call.array("table");
  if (table.ndim() != 2)
    fail("embedding_lookup", "weight must have shape (N, C), got " + shape_text(table.shape()));
  const mx::array rows =
      checked_rows(call.array("indices"), table.shape(0), "embedding_lookup", "indices");
  return {take_rows(mx::astype(table, mx::float32), rows)};
}

Results run_elementwise(const Call& call) {
  const mx::array& x = call.array("feats");
  if (call.text("kind") == "exp") return {mx::exp(x)};
  if (call.text("kind") == "round") return {mx::round(x, 0)};
  if (call.text("kind") == "softmax") return {mx::softmax(x, 1, true)};
  if (call.text("kind") == "gelu_fast")
    return {mx::multiply(x, mx::sigmoid(mx::multiply(x, mx::array(1.702f, x.dtype()))))};
  fail("elementwise",
       "kind must be exp, round, softmax or gelu_fast, got '" + call.text("kind") + "'");
}

}  // namespace

std::vector<Operation> older_operations() {
  const Operand active{"active", "array"}, coords{"coords", "array"};
  const Attribute size{"voxel_size", Type::numbers, false, 3},
      origin{"origin", Type::numbers, false, 3};
  return {
      {"older_make", 1, {coords, kFeats, active}, {kStride}, {"sparse"}, Phase::geometry, run_make},
      {"older_decompose", 1, {kX}, {}, {"array", "array", "array"}, Phase::features, run_decompose},
      {"older_generative",
       1,
       {kX, {"weight", "array"}, {"bias", "array", Form::optional}},
       {kKernelSize, kStride, {"eps", Type::number, true}},
       {"sparse"},
       Phase::features,
       run_generative},
      {"older_max_pool",
       1,
       {kX},
       {kKernelSize, kStride, kPadding, kDilation},
       {"sparse"},
       Phase::features,
       run_max_pool},
      {"older_devoxelize",
       1,
       {{"points", "array"}, {"voxels", "sparse"}, {"batch_indices", "array"}, active},
       {size, origin, {"interpolation", Type::text}},
       {"array"},
       Phase::points,
       run_devoxelize},
      {"older_embedding",
       1,
       {{"indices", "array"}, {"table", "array"}},
       {},
       {"array"},
       Phase::decision,
       run_embedding},
      {"older_elementwise",
       1,
       {kFeats},
       {{"kind", Type::text}},
       {"array"},
       Phase::features,
       run_elementwise},
  };
}

}  // namespace lattice::program
