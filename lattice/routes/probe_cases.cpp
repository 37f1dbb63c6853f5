// Small cases for probes. Values are multiples of 1/16, so that sums are exact in float32.
#include <mlx/ops.h>

#include <array>

#include "lattice/core/arrays.h"
#include "lattice/routes/attention.h"
#include "lattice/routes/conv.h"
#include "lattice/routes/distance.h"
#include "lattice/routes/geometry.h"
#include "lattice/routes/norm.h"
#include "lattice/routes/optimizer.h"
#include "lattice/routes/pool.h"

namespace lattice::routes {
namespace {

constexpr int kIn = 24, kOut = 40, kRows = 96;

int as_int(int64_t n) { return static_cast<int>(n); }

// n values in [-1, 1], the same for one seed.
mx::array values(const mx::Shape& shape, uint32_t seed, mx::Dtype dtype) {
  size_t n = 1;
  for (const int extent : shape) n *= static_cast<size_t>(extent);
  std::vector<float> all(n);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t mixed = (static_cast<uint32_t>(i) + seed) * 2654435761u;
    all[i] = static_cast<float>(static_cast<int>((mixed >> 16) % 33) - 16) / 16;
  }
  return mx::array(all.data(), shape, dtype);
}

mx::array integers(const std::vector<int32_t>& all, const mx::Shape& shape) {
  return new_array(all.data(), shape, mx::int32);
}

// kRows cells of a block of 6 x 6 x 4 in batch 0.
std::vector<std::array<int, 3>> cells() {
  std::vector<std::array<int, 3>> all;
  for (int cell = 0; cell < 144; ++cell) {
    const int x = cell % 6, y = cell / 6 % 6, z = cell / 36;
    if ((x + 2 * y + z) % 3 != 0) all.push_back({x, y, z});
  }
  return all;
}

CoordinateSet cell_set() {
  std::vector<int32_t> rows;
  for (const auto& [x, y, z] : cells()) rows.insert(rows.end(), {0, x, y, z});
  return CoordinateSet(integers(rows, {kRows, 4}), "probe");
}

Relation::Ptr related(RelationKind kind, const Triple& size, const Triple& stride) {
  return relate(kind, cell_set(), KernelSpec(size, stride, {0, 0, 0}, {1, 1, 1}), std::nullopt,
                "probe");
}

// Edges that share an output row and an offset, 50 per offset.
Relation::Ptr custom() {
  std::vector<int32_t> in, out, k;
  for (int e = 0; e < 200; ++e)
    in.push_back(e * 7 % kRows), out.push_back(e * 5 % 71 / 2), k.push_back(e % 4);
  return Relation::from_edges(integers(in, {200}), integers(out, {200}), integers(k, {200}), kRows,
                              36, 4);
}

// A relation of each kind that rows tell apart.
std::vector<Relation::Ptr> relations() {
  const Relation::Ptr same = related(RelationKind::submanifold, {3, 3, 3}, {1, 1, 1});
  return {same, same->reversed(), related(RelationKind::generative, {2, 2, 2}, {2, 2, 2}),
          related(RelationKind::transposed, {3, 2, 2}, {2, 2, 2}), custom()};
}

ConvProblem shape_on(const Relation::Ptr& relation, mx::Dtype dtype) {
  return {relation, kIn, kOut, 1, dtype};
}
mx::array rows_in(const ConvProblem& z) {
  return values({as_int(z.n_in()), as_int(z.c_in)}, 1, z.dtype());
}

// Codes, scales and biases as core/weights.h has them.
void pack(ConvAsked& asked, const Packing& packing) {
  const int n_k = as_int(asked.n_k()), in = packing.transposed ? kOut : kIn,
            out = packing.transposed ? kIn : kOut;
  const int size = as_int(packing.group_size), groups = (in + size - 1) / size,
            words = groups * size * as_int(packing.bits) / 32;
  const auto shape = [&](int n) {
    return n_k == 1 ? mx::Shape{1, out, n} : mx::Shape{n_k, n, out};
  };
  std::vector<uint32_t> codes(static_cast<size_t>(n_k * words * out));
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint32_t>(i) * 2654435761u;
  asked.weight.w = new_array(codes.data(), shape(words), mx::uint32);
  const auto filled = [&](float value) {
    const std::vector<float> all(static_cast<size_t>(n_k * groups * out), value);
    return mx::array(all.data(), shape(groups), asked.dtype());
  };
  asked.weight.codes = {filled(1.0f / 16), filled(-0.5f), packing};
}

// Five groups of 400 rows; one is empty, one is long.
RowGroups::Ptr groups() {
  cpu::Buffer<int32_t> offsets(6);
  for (int i = 0; const int32_t end : {0, 3, 3, 40, 360, 400}) offsets[i++] = end;
  return RowGroups::contiguous(std::move(offsets));
}

// Two segments of 40 and 20 rows with the bias and masks of the question.
constexpr int kHeads = 2, kAll = 60, kPairs = 40 * 40 + 20 * 20;

AttentionAsked attention_case(const AttentionAsked& like) {
  const auto borders = [] {
    cpu::Buffer<int32_t> offsets(3);
    for (int i = 0; const int32_t end : {0, 40, kAll}) offsets[i++] = end;
    return offsets;
  };
  const auto rows = [&](uint32_t seed) {
    return values({kAll, kHeads, kIn}, seed, like.q.dtype());
  };
  AttentionAsked asked{like.attend, rows(1), rows(2), rows(3)};
  Attend& attend = asked.attend;
  attend.segments = SegmentPairs::create(borders(), borders());
  attend.scale = 0.25f;
  if (attend.positions) {
    std::vector<int32_t> places;
    const auto axes = attend.positions->bounds.size();
    for (size_t i = 0; i < kAll * axes; ++i) places.push_back(static_cast<int32_t>(i * 5 % 7));
    const mx::array all = integers(places, {kAll, as_int(static_cast<int64_t>(axes))});
    attend.positions = {all, all, attend.positions->bounds, attend.positions->joint};
    asked.bias = values({kHeads, like.bias->shape(1)}, 4, mx::float32);
  } else if (attend.biased) {
    asked.bias = values({kHeads * kPairs}, 4, mx::float32);
  }
  if (attend.mask) {
    std::vector<uint8_t> seen(kPairs);
    for (size_t i = 0; i < seen.size(); ++i) seen[i] = i % 3 != 0;
    attend.mask = mx::array(reinterpret_cast<const bool*>(seen.data()), {kPairs}, mx::bool_);
  }
  return asked;
}

}  // namespace

// Rows of linear take the relation of every row with itself, which comes last.
std::vector<ConvAsked> probe_cases(const ConvAsked& like) {
  std::vector<ConvAsked> cases;
  std::vector<Relation::Ptr> all = relations();
  all.push_back(Relation::identity(kRows));
  if (like.n_k() == 1) std::swap(all.front(), all.back());
  for (const Relation::Ptr& r : all) {
    const ConvProblem z = shape_on(r, like.dtype());
    ConvAsked asked{z, rows_in(z), {values({as_int(z.n_k()), kIn, kOut}, 2, z.dtype())}};
    if (like.weight.codes) pack(asked, like.weight.codes->packing);
    if (like.weight.strided) {
      asked.weight.w = mx::swapaxes(values({as_int(z.n_k()), kOut, kIn}, 2, z.dtype()), 1, 2);
      asked.weight.strided = true;
    }
    if (like.norm) {
      const auto channels = [](uint32_t seed) { return values({kOut}, seed, mx::float32); };
      asked.norm = {channels(6), mx::ones({kOut}), channels(7), channels(8), 0.0f,
                    {},          like.norm->relu};
      if (like.norm->residual) asked.norm->residual = values(asked.rows().shape, 9, z.dtype());
    }
    cases.push_back(std::move(asked));
  }
  return cases;
}
std::vector<OuterAsked> probe_cases(const OuterAsked& like) {
  std::vector<OuterAsked> cases;
  for (const Relation::Ptr& r : relations()) {
    const ConvProblem z = shape_on(r, like.dtype());
    cases.push_back({z, rows_in(z), values({as_int(z.n_out()), kOut}, 2, z.dtype())});
  }
  return cases;
}
std::vector<PerEdgeAsked> probe_cases(const PerEdgeAsked& like) {
  std::vector<PerEdgeAsked> cases;
  for (const Relation::Ptr& r : relations()) {
    const ConvProblem z = shape_on(r, like.dtype());
    cases.push_back({z, rows_in(z), values({as_int(z.n_k()), 1, kIn, kOut}, 2, z.dtype())});
  }
  return cases;
}

std::vector<PoolAsked> probe_cases(const PoolAsked& like) {
  return {{values({kRows, kIn}, 1, like.x.dtype()),
           related(RelationKind::submanifold, {3, 3, 3}, {1, 1, 1}), plain_mode(like.mode)}};
}
std::vector<SegmentsAsked> probe_cases(const SegmentsAsked& like) {
  return {{values({400, kIn}, 1, like.x.dtype()), groups(), like.mode}};
}
std::vector<ArgmaxAsked> probe_cases(const ArgmaxAsked& like) {
  ArgmaxAsked asked{.x = values({400, kIn}, 1, like.x.dtype()), .minimum = like.minimum};
  if (like.relation) {
    asked.x = values({kRows, kIn}, 1, like.x.dtype());
    asked.relation = related(RelationKind::submanifold, {3, 3, 3}, {1, 1, 1});
  } else {
    asked.groups = groups();
  }
  return {asked};
}
std::vector<GatherAsked> probe_cases(const GatherAsked& like) {
  return {{values({5, kIn}, 1, like.x.dtype()), groups(), like.fill}};
}
std::vector<MapRowsAsked> probe_cases(const MapRowsAsked& like) {
  std::vector<int32_t> rows, offsets = {0};
  for (int e = 0; e < 400; ++e) rows.push_back(e * 7 % kRows);
  for (const int32_t end : {3, 3, 40, 360, 400}) offsets.push_back(end);
  return {{values({kRows, kIn}, 1, like.x.dtype()),
           RowMap::make({kRows, 5, integers(rows, {400}), integers(offsets, {6}),
                         values({400}, 3, mx::float32), Reduction::sum})}};
}

std::vector<DistanceAsked> probe_cases(const DistanceAsked& like) {
  return {{values({20, kIn}, 1, mx::float32), values({18, kIn}, 2, mx::float32), like.metric}};
}

std::vector<AttentionAsked> probe_cases(const AttentionAsked& like) {
  return {attention_case(like)};
}
std::vector<AttentionVjpAsked> probe_cases(const AttentionVjpAsked& like) {
  const AttentionAsked forward = attention_case(like.forward);
  const graph::Arrays made = run_on_cpu(attention_rows(), forward);
  return {{forward, made[0], made[1], values({kAll, kHeads, kIn}, 5, forward.q.dtype())}};
}

std::vector<UniqueAsked> probe_cases(const UniqueAsked&) { return {{cell_set()}}; }
std::vector<LookupAsked> probe_cases(const LookupAsked&) { return {{cell_set(), cell_set()}}; }

std::vector<RelateAsked> probe_cases(const RelateAsked& like) {
  const auto kind = like.scatters() ? RelationKind::target_transposed : RelationKind::target;
  return {{kind, cell_set(), like.spec, cell_set(), "probe"}};
}

std::vector<NeighborsAsked> probe_cases(const NeighborsAsked& like) {
  mx::array rows = cell_set().array();
  if (like.are_points()) {
    std::vector<float> places;
    for (const auto& cell : cells()) places.insert(places.end(), cell.begin(), cell.end());
    rows = mx::array(places.data(), {kRows, 3}, mx::float32);
  }
  return {{{rows, std::nullopt, std::nullopt, std::nullopt}, {4, 3.0f}, 4, "probe"}};
}

namespace {

constexpr int kNormRows = 700, kNormChannels = 40;

graph::Arrays norm_inputs(const Norm& norm, const graph::Arrays& like) {
  const mx::Dtype dtype = like[0].dtype();
  const auto channels = [&](uint32_t seed, mx::Dtype of) {
    return values({kNormChannels}, seed, of);
  };
  graph::Arrays in = {values({kNormRows, kNormChannels}, 1, dtype), channels(2, like[1].dtype()),
                      channels(3, like[2].dtype())};
  if (norm.given) in.insert(in.end(), {channels(4, mx::float32), mx::ones({kNormChannels})});
  if (norm.residual) in.push_back(values({kNormRows, kNormChannels}, 5, dtype));
  return in;
}

}  // namespace

std::vector<NormAsked> probe_cases(const NormAsked& like) {
  return {{like.norm, norm_inputs(like.norm, like.in)}};
}
std::vector<NormVjpAsked> probe_cases(const NormVjpAsked& like) {
  NormVjpAsked asked{like.norm, norm_inputs(like.norm, like.in)};
  const mx::Dtype dtype = like.in[0].dtype();
  asked.in.push_back(values({kNormRows, kNormChannels}, 6, dtype));
  asked.in.push_back(values({kNormRows, kNormChannels}, 7, dtype));
  asked.in.push_back(values({kNormChannels}, 8, mx::float32));
  asked.in.push_back(mx::ones({kNormChannels}));
  return {asked};
}

std::vector<FiniteAsked> probe_cases(const FiniteAsked& like) {
  const mx::Dtype dtype = like.arrays.empty() ? mx::float32 : like.arrays[0].dtype();
  return {{{values({300, 7}, 1, dtype), values({9}, 2, dtype)}}};
}

}  // namespace lattice::routes
