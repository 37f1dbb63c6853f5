// The rows of distance.
#include "lattice/routes/distance.h"

namespace lattice::routes {
namespace {

int most_rows(const DistanceAsked& asked) { return std::max(asked.a.shape(0), asked.b.shape(0)); }

const std::vector<Condition<DistanceAsked>> kWholeTiles = {
    {Step::shape, "",
     [](const DistanceAsked& asked) { return most_rows(asked) <= kMostDistanceRows; },
     [](const DistanceAsked& asked) {
       return std::to_string(most_rows(asked)) + " rows: MLX launches fewer than 2^31 threads";
     }}};

}  // namespace

const char* name(Distance metric) {
  static constexpr const char* kNames[] = {"euclidean", "squared_euclidean", "cosine"};
  return kNames[static_cast<size_t>(metric)];
}

Facts DistanceAsked::facts() const {
  const int64_t n = a.shape(0), m = b.shape(0), c = a.shape(1);
  Facts facts;
  facts.n_in = n, facts.n_out = n, facts.n_edges = n * m;
  facts.flop = 2 * static_cast<double>(n * m) * static_cast<double>(c);
  facts.bytes = static_cast<double>(a.nbytes() + b.nbytes()) + 4.0 * static_cast<double>(n * m);
  facts.relation = "none: all pairs";
  facts.storage = std::string("features only, mode ") + name(metric);
  facts.shape = channels_text(c, 1) + ", float32";
  return facts;
}
std::string DistanceAsked::variant() const { return std::string("float32 ") + name(metric); }

const Table<DistanceAsked, mx::array>& distance_rows() {
  static const Table<DistanceAsked, mx::array> table(
      "distance", "distances of all pairs",
      {{kCpu,
        Code::host,
        "cpu.tiles",
        {},
        "any shape: blocks of rows of b side by side, sums in vector registers",
        distance_tiles},
       {kCpu,
        Code::host,
        "cpu.reference",
        {},
        "any shape: one pair at a time, sums in float64",
        distance_reference},
       {kGpu, Code::metal, "metal.tiles", kWholeTiles,
        "any shape: tiles of " + number(kDistanceTile) + " x " + number(kDistanceTile) +
            " pairs in threadgroup memory",
        counted<distance_with_metal>},
       {kGpu,
        Code::mlx,
        "gpu.mlx",
        {},
        "any shape: squares of one channel at a time; cosine: matmul of MLX",
        counted<distance_with_mlx>,
        nullptr,
        [](const DistanceAsked& asked) { return asked.metric == Distance::cosine; }}});
  return table;
}

}  // namespace lattice::routes
