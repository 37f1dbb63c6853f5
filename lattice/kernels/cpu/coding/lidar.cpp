#include "lattice/kernels/cpu/coding/lidar.h"

#include <bit>

#include "lattice/kernels/cpu/coding/lidar_model.h"
#include "lattice/kernels/cpu/coding/octree_levels.h"
#include "lattice/kernels/cpu/coding/range_coder.h"

namespace lattice::cpu {
namespace {

// Goes down the levels; code(call, d) writes or reads the masks of level d. Returns the leaves.
template <typename Code>
OctreeLevel walk(const Octree& tree, const LidarOptions& options, Meter& meter, const Code& code) {
  std::array<int64_t, 3> sensor;
  for (size_t a = 0; a < 3; ++a) sensor[a] = options.sensor[a] - tree.cube.base[a];
  LidarModel model(tree.rows);
  LidarNet::Handed handed;
  OctreeLevel level = octree_roots(static_cast<uint32_t>(tree.batches.size())), parents;
  for (int d = 0; d < tree.cube.depth; ++d) {
    const std::vector<Place> places = places_of(level, sensor, tree.cube.depth - d);
    Buffer<uint8_t> hidden;
    if (d > 0 && level.size() >= LidarNet::kLeastNodes)
      hidden = options.net->run(parents, level, places, handed);
    else
      handed = {};
    LidarLevel call;
    call.level = &level;
    call.parents = d > 0 ? &parents : nullptr;
    call.places = &places;
    call.sensor = sensor;
    call.depth = d;
    call.shift = tree.cube.depth - d;
    call.hidden = hidden.empty() ? nullptr : hidden.data();
    call.net = options.net;
    call.fast = options.fast;
    call.meter = &meter;
    code(model, call, d);
    OctreeLevel next = octree_children(level, d + 1 < tree.cube.depth);
    parents = std::move(level);
    level = std::move(next);
  }
  return level;
}

}  // namespace

std::vector<uint8_t> encode_lidar(const CoordSpan& sorted, const LidarOptions& options,
                                  std::string_view operation, Meter meter) {
  const Octree tree = octree_of(sorted, operation);
  std::vector<uint8_t> out;
  put_octree_head(out, tree);
  if (sorted.rows == 0) return out;
  size_t nodes = 0, before = 0;  // of all levels, and of the levels above this one
  for (const auto& masks : tree.masks) nodes += masks.size();
  RangeEncoder coder;
  walk(tree, options, meter, [&](LidarModel& model, LidarLevel& call, int d) {
    call.given = tree.masks[static_cast<size_t>(d)].data();
    call.encoder = &coder;
    call.share = [&](size_t i) {
      return static_cast<double>(before + i) / static_cast<double>(nodes);
    };
    code_lidar_level(model, call);
    before += call.level->size();
  });
  put_bytes(out, coder.finish());
  return out;
}

std::vector<int32_t> decode_lidar(Bytes data, const LidarOptions& options,
                                  std::string_view operation, Meter meter) {
  ByteReader reader(data, operation);
  const Octree tree = read_octree_head(reader, operation);
  if (tree.rows == 0) return {};
  RangeDecoder coder(reader.rest(), operation);
  const OctreeLevel leaves =
      walk(tree, options, meter, [&](LidarModel& model, LidarLevel& call, int) {
        call.decoder = &coder;
        call.share = [&](size_t) { return coder.share(); };
        code_lidar_level(model, call);
        int64_t count = 0;
        for (uint8_t mask : call.level->masks) count += std::popcount(mask);
        if (count > tree.rows) throw_bad_data(operation, "holds more rows than it claims");
      });
  coder.finish();
  return octree_rows(leaves, tree, operation);
}

}  // namespace lattice::cpu
