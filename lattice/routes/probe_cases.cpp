// Small cases for probes. Values are multiples of 1/16, so that sums are exact in float32.
#include <bit>

#include "lattice/routes/probe.h"
#include "lattice/routes/table.h"

namespace lattice {
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

// kRows cells of a block of 6 x 6 x 4, as integers or as the bits of points.
mx::array cells(bool points) {
  std::vector<int32_t> rows;
  for (int cell = 0; cell < 144; ++cell) {
    const int x = cell % 6, y = cell / 6 % 6, z = cell / 36;
    if ((x + 2 * y + z) % 3 == 0) continue;
    rows.push_back(0);
    for (const int v : {x, y, z})
      rows.push_back(points ? std::bit_cast<int32_t>(static_cast<float>(v)) : v);
  }
  return integers(rows, {kRows, 4});
}

Relation::Ptr related(RelationKind kind, const Triple& size, const Triple& stride) {
  return relate(kind, CoordinateSet(cells(false), "probe"),
                KernelSpec(size, stride, {0, 0, 0}, {1, 1, 1}), std::nullopt, "probe");
}

// Edges that share an output row and an offset, 50 per offset.
Relation::Ptr custom() {
  std::vector<int32_t> in, out, k;
  for (int e = 0; e < 200; ++e)
    in.push_back(e * 7 % kRows), out.push_back(e * 5 % 71 / 2), k.push_back(e % 4);
  return Relation::from_edges(integers(in, {200}), integers(out, {200}), integers(k, {200}), kRows,
                              36, 4);
}

std::vector<Relation::Ptr> relations(Operation operation) {
  if (operation == Operation::linear) return {Relation::identity(kRows)};
  const Relation::Ptr same = related(RelationKind::submanifold, {3, 3, 3}, {1, 1, 1});
  return {same, same->reversed(), related(RelationKind::generative, {2, 2, 2}, {2, 2, 2}),
          related(RelationKind::transposed, {3, 2, 2}, {2, 2, 2}), custom()};
}

// Codes, scales and biases as core/quantized_weight.h has them.
void add_packed(Call& call, const Packing& packing) {
  const int n_k = as_int(call.relation->n_kernels()), in = packing.transposed ? kOut : kIn,
            out = packing.transposed ? kIn : kOut;
  const int size = as_int(packing.group_size), groups = (in + size - 1) / size,
            words = groups * size * as_int(packing.bits) / 32;
  const auto shape = [&](int n) {
    return n_k == 1 ? mx::Shape{1, out, n} : mx::Shape{n_k, n, out};
  };
  std::vector<uint32_t> codes(static_cast<size_t>(n_k * words * out));
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint32_t>(i) * 2654435761u;
  call.inputs.push_back(new_array(codes.data(), shape(words), mx::uint32));
  const size_t n = static_cast<size_t>(n_k * groups * out);
  for (const float value : {1.0f / 16, -0.5f})
    call.inputs.push_back(
        mx::array(std::vector<float>(n, value).data(), shape(groups), call.dtype));
}

Call conv_case(const Call& like, const Relation::Ptr& relation) {
  Call call;
  call.relation = relation;
  call.c_in = kIn, call.c_out = kOut;
  call.dtype = like.dtype;
  const int n_k = as_int(relation->n_kernels()), n_out = as_int(relation->n_out());
  call.inputs = {values({as_int(relation->n_in()), kIn}, 1, like.dtype)};
  if (like.operation == Operation::outer || like.operation == Operation::per_edge_outer) {
    call.inputs.push_back(values({n_out, kOut}, 2, like.dtype));
  } else if (like.operation == Operation::per_edge_apply) {
    call.inputs.push_back(values({n_k, 1, kIn, kOut}, 2, like.dtype));
  } else if (like.packing().bits) {
    add_packed(call, like.packing());
    call.payload = Weights{like.packing()};
  } else {
    call.inputs.push_back(values({n_k, kIn, kOut}, 2, like.dtype));
  }
  return call;
}

// Five groups of 400 rows; one is empty, one is long.
RowGroups::Ptr groups() {
  cpu::Buffer<int32_t> offsets(6);
  for (int i = 0; const int32_t end : {0, 3, 3, 40, 360, 400}) offsets[i++] = end;
  return RowGroups::contiguous(std::move(offsets));
}

Call reduction(const Call& like) {
  Call call;
  call.dtype = like.dtype;
  call.c_in = call.c_out = kIn;
  const bool gathers = like.operation == Operation::gather;
  if (like.operation == Operation::map_rows) {
    std::vector<int32_t> rows, offsets = {0};
    for (int e = 0; e < 400; ++e) rows.push_back(e * 7 % kRows);
    for (const int32_t end : {3, 3, 40, 360, 400}) offsets.push_back(end);
    call.map = RowMap::make({kRows, 5, integers(rows, {400}), integers(offsets, {6}),
                             values({400}, 3, mx::float32), Reduction::sum});
    call.inputs = {values({kRows, kIn}, 1, like.dtype)};
    return call;
  }
  if (like.relation)
    call.relation = related(RelationKind::submanifold, {3, 3, 3}, {1, 1, 1});
  else
    call.row_groups = groups();
  const int rows = like.relation ? kRows : gathers ? 5 : 400;
  call.inputs = {values({rows, kIn}, 1, like.dtype)};
  call.payload = Reduce{plain_mode(like.reduce().mode), {}, like.reduce().fill};
  return call;
}

Call geometry(const Call& like) {
  Call call;
  const Geometry& given = like.geometry();
  const bool points = like.operation == Operation::neighbors && given.points;
  call.inputs = {cells(points)};
  if (like.operation != Operation::unique) call.inputs.push_back(cells(points));
  call.payload = Geometry{given.kind, given.spec, true, 4, 3.0f, points};
  return call;
}

// Two segments of 40 and 20 rows with the bias and masks of the call.
Call attention(const Call& like) {
  constexpr int kHeads = 2, kAll = 60, kPairs = 40 * 40 + 20 * 20;
  const Attend& given = like.get<Attend>();
  const auto borders = [] {
    cpu::Buffer<int32_t> offsets(3);
    for (int i = 0; const int32_t end : {0, 40, kAll}) offsets[i++] = end;
    return offsets;
  };
  Attend attend = given;
  attend.segments = SegmentPairs::create(borders(), borders());
  attend.scale = 0.25f;
  Call call;
  call.operation = Operation::attention;
  call.dtype = like.dtype;
  for (const uint32_t seed : {1u, 2u, 3u})
    call.inputs.push_back(values({kAll, kHeads, kIn}, seed, like.dtype));
  if (given.positions) {
    std::vector<int32_t> places;
    const auto axes = given.positions->bounds.size();
    for (size_t i = 0; i < kAll * axes; ++i) places.push_back(static_cast<int32_t>(i * 5 % 7));
    const mx::array all = integers(places, {kAll, as_int(static_cast<int64_t>(axes))});
    attend.positions = {all, all, given.positions->bounds, given.positions->joint};
    call.inputs.push_back(values({kHeads, like.inputs[3].shape(1)}, 4, mx::float32));
  } else if (given.biased) {
    call.inputs.push_back(values({kHeads * kPairs}, 4, mx::float32));
  }
  if (given.mask) {
    std::vector<uint8_t> seen(kPairs);
    for (size_t i = 0; i < seen.size(); ++i) seen[i] = i % 3 != 0;
    attend.mask = mx::array(reinterpret_cast<const bool*>(seen.data()), {kPairs}, mx::bool_);
  }
  call.payload = attend;
  if (like.operation == Operation::attention) return call;
  call.stream = mx::Device(mx::Device::cpu);
  for (const Route& row : routes())
    if (row.operation == call.operation && row.device == mx::Device::cpu) {
      for (mx::array& made : row.launch(call, row)) call.inputs.push_back(std::move(made));
      break;
    }
  call.inputs.push_back(values({kAll, kHeads, kIn}, 5, like.dtype));
  return call;
}

std::vector<Call> cases(const Call& like) {
  switch (like.operation) {
    case Operation::attention:
    case Operation::attention_vjp:
      return {attention(like)};
    case Operation::distance: {
      Call call;
      call.inputs = {values({20, kIn}, 1, mx::float32), values({18, kIn}, 2, mx::float32)};
      call.c_in = kIn;
      call.payload = like.get<Pairs>();
      return {call};
    }
    case Operation::pool:
    case Operation::segments:
    case Operation::argmax:
    case Operation::gather:
    case Operation::map_rows:
      return {reduction(like)};
    case Operation::unique:
    case Operation::lookup:
    case Operation::relate:
    case Operation::neighbors:
      return {geometry(like)};
    default: {
      std::vector<Call> all;
      for (const Relation::Ptr& r : relations(like.operation)) all.push_back(conv_case(like, r));
      return all;
    }
  }
}

}  // namespace

ReduceMode plain_mode(ReduceMode mode) {
  return mode == ReduceMode::mean || mode == ReduceMode::max || mode == ReduceMode::min
             ? mode
             : ReduceMode::sum;
}

std::optional<Call> probe_case(const Route& route, const Call& call) {
  for (Call& test : cases(call)) {
    test.operation = call.operation;
    test.stream = call.stream;
    if (route.check(test).fits()) return test;
  }
  return std::nullopt;
}

}  // namespace lattice
