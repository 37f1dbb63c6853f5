// The rows of pool, segments, argmax, gather and map_rows: reductions over edges and groups.
#include "lattice/graph/dtype.h"
#include "lattice/routes/pool.h"

namespace lattice::routes {

namespace {

// Rows of one dtype reduced along n_edges edges.
Facts facts_of(const mx::array& x, int64_t n_out, int64_t n_edges, std::string relation,
               const char* mode) {
  const int64_t c = x.shape(1), n_in = x.shape(0);
  Facts facts;
  facts.dtype = x.dtype();
  facts.n_in = n_in, facts.n_out = n_out, facts.n_edges = n_edges;
  facts.flop = static_cast<double>(n_edges * c);
  facts.bytes = static_cast<double>((n_in + n_out) * c) * static_cast<double>(x.itemsize());
  facts.relation = std::move(relation);
  facts.storage = std::string("features only") + (mode ? std::string(", mode ") + mode : "");
  facts.shape = channels_text(c, c) + ", " + graph::dtype_name(x.dtype());
  return facts;
}

std::string groups_text(const RowGroups& groups) {
  return std::to_string(groups.n_groups()) + " groups of rows";
}

std::string variant_of(const mx::array& x, ReduceMode mode) {
  return graph::dtype_name(x.dtype()) + " " + name(plain_mode(mode));
}

}  // namespace

const char* name(ReduceMode mode) {
  static constexpr const char* kNames[] = {"sum",          "mean",      "max",      "min",
                                           "mean_adjoint", "max_match", "tie_share"};
  return kNames[static_cast<size_t>(mode)];
}

ReduceMode plain_mode(ReduceMode mode) {
  return mode == ReduceMode::mean || mode == ReduceMode::max || mode == ReduceMode::min
             ? mode
             : ReduceMode::sum;
}

Facts PoolAsked::facts() const {
  Facts facts =
      facts_of(x, relation->n_out(), relation->edge_count(), relation->text(), name(mode));
  facts.n_in = relation->n_in();
  return facts;
}
Facts SegmentsAsked::facts() const {
  return facts_of(x, groups->n_groups(), groups->n_rows(), groups_text(*groups), name(mode));
}
Facts ArgmaxAsked::facts() const {
  return facts_of(x, n_out(), relation ? relation->edge_count() : groups->n_rows(),
                  relation ? relation->text() : groups_text(*groups), minimum ? "min" : "max");
}
Facts GatherAsked::facts() const {
  Facts facts = facts_of(x, groups->n_rows(), groups->n_rows(), groups_text(*groups), nullptr);
  facts.flop = 0;
  return facts;
}
Facts MapRowsAsked::facts() const {
  return facts_of(x, map->n_out(), map->n_entries(), map->text(), nullptr);
}

std::string PoolAsked::variant() const { return variant_of(x, mode); }
std::string SegmentsAsked::variant() const { return variant_of(x, mode); }
std::string ArgmaxAsked::variant() const {
  return variant_of(x, minimum ? ReduceMode::min : ReduceMode::max);
}
std::string GatherAsked::variant() const { return graph::dtype_name(x.dtype()); }
std::string MapRowsAsked::variant() const { return graph::dtype_name(x.dtype()); }

static const std::string kSlow = "one value at a time, sums in float64";
static const std::string kThreads = "one thread per value or per four channels, ";

const Table<PoolAsked, mx::array>& pool_rows() {
  static const Table<PoolAsked, mx::array> table(
      "pool", "pooling",
      {{kCpu,
        Code::host,
        "cpu.tiles",
        {},
        "any shape: tiles of output rows, edges by row, sums in registers",
        pool_tiles},
       {kCpu, Code::host, "cpu.reference", {}, "any shape: " + kSlow, pool_reference},
       {kGpu,
        Code::metal,
        "metal.rows",
        {},
        "any shape: " + kThreads + "edges by output row, long rows in pieces",
        counted<pool_with_metal>},
       {kGpu,
        Code::mlx,
        "gpu.mlx",
        {},
        "any shape: gather and scatter of MLX, in float32",
        counted<pool_with_mlx>}});
  return table;
}

const Table<SegmentsAsked, mx::array>& segments_rows() {
  static const Table<SegmentsAsked, mx::array> table(
      "segments", "reduction over groups of rows",
      {{kCpu,
        Code::host,
        "cpu.segments",
        {},
        "any sizes of groups: sums in registers, long groups in pieces",
        segments_segments},
       {kCpu, Code::host, "cpu.reference", {}, "any shape: " + kSlow, segments_reference},
       {kGpu,
        Code::metal,
        "metal.rows",
        {},
        "any sizes of groups: " + kThreads + "long groups in pieces",
        counted<segments_with_metal>},
       {kGpu,
        Code::mlx,
        "gpu.mlx",
        {},
        "any shape: scatter of MLX, in float32",
        counted<segments_with_mlx>}});
  return table;
}

const Table<ArgmaxAsked, mx::array>& argmax_rows() {
  static const Table<ArgmaxAsked, mx::array> table(
      "argmax", "rows of maxima",
      {{kCpu,
        Code::host,
        "cpu.segments",
        {},
        "any relation or groups: rows by segment, the smallest of ties",
        argmax_segments},
       {kGpu,
        Code::metal,
        "metal.rows",
        {},
        "any relation or groups: " + kThreads + "long rows in pieces",
        counted<argmax_with_metal>},
       {kGpu,
        Code::host,
        "cpu.unified",
        {},
        "always: the CPU's code in shared memory",
        argmax_segments}});
  return table;
}

const Table<GatherAsked, mx::array>& gather_rows() {
  static const Table<GatherAsked, mx::array> table(
      "gather", "gather of rows",
      {{kCpu, Code::host, "cpu.rows", {}, "any shape: copies of rows", gather_by_rows},
       {kGpu,
        Code::metal,
        "metal.rows",
        {},
        "any shape: one thread per value or per four channels",
        counted<gather_with_metal>},
       {kGpu, Code::mlx, "gpu.mlx", {}, "any shape: take of MLX", counted<gather_with_mlx>}});
  return table;
}

// Voxels, interpolation, neighbors.
const Table<MapRowsAsked, mx::array>& map_rows_rows() {
  static const Table<MapRowsAsked, mx::array> table(
      "map_rows", "rows along a map",
      {{kCpu,
        Code::host,
        "cpu.segments",
        {},
        "any map: runs of rows in vector registers, long rows in pieces",
        map_rows_segments},
       {kCpu, Code::host, "cpu.reference", {}, "any map: " + kSlow, map_rows_reference},
       {kGpu,
        Code::metal,
        "metal.rows",
        {},
        "any map: " + kThreads + "long rows in pieces",
        counted<map_rows_with_metal>},
       {kGpu,
        Code::mlx,
        "gpu.mlx",
        {},
        "any map: take and scatter of MLX, in float32",
        counted<map_rows_with_mlx>}});
  return table;
}

}  // namespace lattice::routes
