// The map of a relation by probing the table of its input rows: row o is out_in_map[o, 0 .. n_k),
// then its masks.
//
//   gather:  edge (i, o, k) iff in[i] = out[o] * stride + offset[k] - padding
//   scatter: edge (i, o, k) iff out[o] = in[i] * stride + offset[k] - padding
//
// One thread for 32 offsets of an output row, which are one word of its mask. Places are computed
// in 64 bits; one outside int32 is empty.
#include "lattice/kernels/metal/coords.metal"

namespace lattice {
using namespace metal;

// Where the input must be along one axis. false: nowhere.
template <bool kScatter>
METAL_FUNC bool find_place(int out, int offset, int stride, int padding, thread int& place) {
  long at = kScatter ? long(out) + padding - offset : long(out) * stride + offset - padding;
  if (kScatter) {
    if (at % stride != 0) return false;
    at /= stride;
  }
  place = int(at);
  return at == long(place);
}

// `at` is (output row, word): neighboring threads take neighboring rows.
template <bool kScatter, typename Slots, typename In, typename Out, typename Offsets>
METAL_FUNC void relate_row(device int* map, Slots slots, In in, Out out, Offsets offsets,
                           RelateSizes sizes, uint2 at) {
  const int4 o = coordinate(out, int(at.x));
  const int n_k = sizes.n_k, n_words = (n_k + 31) / 32, first = int(at.y) * 32,
            last = min(n_k, first + 32);
  device int* row = map + size_t(at.x) * size_t(n_k + n_words);
  uint mask = 0;
  for (int k = first; k < last; ++k) {
    int x = 0, y = 0, z = 0;
    const bool inside =
        find_place<kScatter>(o.y, offsets[k * 3], sizes.stride[0], sizes.padding[0], x) &&
        find_place<kScatter>(o.z, offsets[k * 3 + 1], sizes.stride[1], sizes.padding[1], y) &&
        find_place<kScatter>(o.w, offsets[k * 3 + 2], sizes.stride[2], sizes.padding[2], z);
    const int found =
        inside ? find_coordinate(slots, uint(sizes.n_slots), in, int4(o.x, x, y, z)) : -1;
    row[k] = found;
    mask |= (found >= 0 ? 1u : 0u) << uint(k - first);
  }
  row[n_k + int(at.y)] = int(mask);
}

}  // namespace lattice
