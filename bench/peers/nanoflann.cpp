// k nearest of all points among themselves with nanoflann, tree included, for worker.py.
#include <nanoflann.hpp>

#include <cstddef>
#include <cstdint>

namespace {
struct Points {
  const float* p;
  size_t n;
  size_t kdtree_get_point_count() const { return n; }
  float kdtree_get_pt(size_t i, size_t axis) const { return p[i * 3 + axis]; }
  template <class B>
  bool kdtree_get_bbox(B&) const {
    return false;
  }
};
using Tree = nanoflann::KDTreeSingleIndexAdaptor<
    nanoflann::L2_Simple_Adaptor<float, Points, float, uint32_t>, Points, 3, uint32_t>;
}  // namespace

extern "C" void knn(const float* p, size_t n, size_t k, uint32_t* rows, float* distances) {
  const Points points{p, n};
  const Tree tree(3, points, {10});
  for (size_t i = 0; i < n; ++i) tree.knnSearch(p + i * 3, k, rows + i * k, distances + i * k);
}
