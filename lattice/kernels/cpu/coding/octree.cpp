#include "lattice/kernels/cpu/coding/octree.h"

#include <bit>

#include "lattice/kernels/cpu/coding/octree_levels.h"
#include "lattice/kernels/cpu/coding/octree_model.h"
#include "lattice/kernels/cpu/coding/range_coder.h"

namespace lattice::cpu {
namespace {

// Codes the masks of one level. given(i) is the mask to write, and done(i) is called for each node.
template <typename Given, typename Code, typename Done>
void code_level(OctreeModel& model, OctreeLevel& level, const OctreeLevel* parents,
                const Given& given, const Code& code, const Done& done) {
  level.masks.resize(level.size());
  size_t parent = 0;
  unsigned rest = parents ? parents->masks[0] : 0;
  for (size_t i = 0; i < level.size(); ++i) {
    NodeView view;
    for (size_t s = 0; s < kAround; ++s) {
      const int32_t n = level.around[i * kAround + s];
      view.state[s] = n < 0                         ? -1
                      : n < static_cast<int32_t>(i) ? int32_t{level.masks[static_cast<size_t>(n)]}
                                                    : -2;
    }
    if (parents) {
      while (rest == 0) rest = parents->masks[++parent];
      view.parent_mask = parents->masks[parent];
      view.index = static_cast<uint8_t>(std::countr_zero(rest));
      rest &= rest - 1;
    }
    level.masks[i] = model.mask(view, given(i), code);
    done(i);
  }
}

}  // namespace

std::vector<uint8_t> encode_octree(const CoordSpan& sorted, std::string_view operation,
                                   Meter meter) {
  const Octree tree = octree_of(sorted, operation);
  std::vector<uint8_t> out;
  put_octree_head(out, tree);
  if (sorted.rows == 0) return out;
  size_t nodes = 0, before = 0;  // of all levels, and of the levels above this one
  for (const auto& masks : tree.masks) nodes += masks.size();
  RangeEncoder coder;
  OctreeModel model;
  OctreeLevel level = octree_roots(static_cast<uint32_t>(tree.batches.size())), parents;
  for (size_t d = 0; d < tree.masks.size(); ++d) {
    code_level(
        model, level, d ? &parents : nullptr, [&](size_t i) { return tree.masks[d][i]; },
        [&](uint32_t zero, bool bit) {
          coder.encode_bit(bit, zero);
          return bit;
        },
        [&](size_t i) {
          meter.next([&] { return static_cast<double>(before + i) / static_cast<double>(nodes); });
        });
    before += level.size();
    if (d + 1 == tree.masks.size()) break;
    OctreeLevel next = octree_children(level, true);
    parents = std::move(level);
    level = std::move(next);
  }
  const std::vector<uint8_t> coded = coder.finish();
  put_bytes(out, coded);
  return out;
}

std::vector<int32_t> decode_octree(Bytes data, std::string_view operation, Meter meter) {
  ByteReader reader(data, operation);
  const Octree tree = read_octree_head(reader, operation);
  if (tree.rows == 0) return {};
  RangeDecoder coder(reader.rest(), operation);
  OctreeModel model;
  OctreeLevel level = octree_roots(static_cast<uint32_t>(tree.batches.size())), parents;
  for (int d = 0; d < tree.cube.depth; ++d) {
    code_level(
        model, level, d ? &parents : nullptr, [](size_t) { return uint8_t{0}; },
        [&](uint32_t zero, bool) { return coder.decode_bit(zero); },
        [&](size_t) { meter.next([&] { return coder.share(); }); });
    int64_t count = 0;
    for (uint8_t mask : level.masks) count += std::popcount(mask);
    if (count > tree.rows) throw_bad_data(operation, "holds more rows than it claims");
    OctreeLevel next = octree_children(level, d + 1 < tree.cube.depth);
    parents = std::move(level);
    level = std::move(next);
  }
  coder.finish();
  return octree_rows(level, tree, operation);
}

}  // namespace lattice::cpu
