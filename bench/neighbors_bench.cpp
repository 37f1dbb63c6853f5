// Neighbors of every point among all points, build and query: best CPU time of all threads in one
// run (cpu_ms). Where nanoflann is installed, the program compares with it: k nearest with the same
// result arrays, radius with sorted results.
//   neighbors_bench --benchmark_filter=sweep
#include <benchmark/benchmark.h>

#include <limits>
#include <map>
#include <string>

#include "bench/support/clouds.h"
#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/geometry/neighbors.h"

#if __has_include(<nanoflann.hpp>)
#include <nanoflann.hpp>
#define LATTICE_HAS_NANOFLANN
#endif

namespace {

using namespace lattice::cpu;
using lattice::bench::Cloud;

constexpr int64_t kNearest = 16;

const Cloud& cloud(const std::string& name) {
  static std::map<std::string, Cloud> kept;
  if (!kept.contains(name))
    kept[name] = name == "sweep" ? lattice::bench::sweep()
                                 : lattice::bench::scan(std::stoll(name.substr(4)), true);
  return kept[name];
}

Places places(const Cloud& c) {
  return {static_cast<int64_t>(c.size()) / 3, c.data(), nullptr, {}};
}

using Body = int64_t (*)(const Cloud&, float);
int64_t build(const Cloud& c, float) { return NeighborTree(places(c)).rows(); }
int64_t knn(const Cloud& c, float) {
  return NeighborTree(places(c)).search({kNearest, {}}).sources.size();
}
int64_t radius(const Cloud& c, float r) {
  return NeighborTree(places(c)).search({int64_t{1} << 31, r * r}).sources.size();
}

#ifdef LATTICE_HAS_NANOFLANN
struct Adaptor {
  const Cloud& points;
  size_t kdtree_get_point_count() const { return points.size() / 3; }
  float kdtree_get_pt(size_t i, size_t a) const { return points[i * 3 + a]; }
  template <class B>
  bool kdtree_get_bbox(B&) const {
    return false;
  }
};
using Tree = nanoflann::KDTreeSingleIndexAdaptor<
    nanoflann::L2_Simple_Adaptor<float, Adaptor, float, uint32_t>, Adaptor, 3, uint32_t>;
int64_t nanoflann_knn(const Cloud& c, float) {
  const Adaptor adaptor{c};
  const Tree tree(3, adaptor, {10});
  const size_t n = c.size() / 3;
  std::vector<uint32_t> rows(n * kNearest);
  std::vector<float> distances(n * kNearest);
  for (size_t i = 0; i < n; ++i)
    tree.knnSearch(c.data() + i * 3, kNearest, rows.data() + i * kNearest,
                   distances.data() + i * kNearest);
  return static_cast<int64_t>(rows.size());
}
int64_t nanoflann_radius(const Cloud& c, float r) {
  const Adaptor adaptor{c};
  const Tree tree(3, adaptor, {10});
  std::vector<std::pair<uint32_t, float>> found;
  std::vector<uint32_t> rows;
  std::vector<float> distances;
  nanoflann::SearchParams params;
  for (size_t i = 0; i < c.size() / 3; ++i) {
    tree.radiusSearch(c.data() + i * 3, r * r, found, params);
    for (const auto& [row, d] : found) rows.push_back(row), distances.push_back(d);
  }
  return static_cast<int64_t>(rows.size());
}
#endif

void add(const std::string& scene, const std::string& what, float r, int threads, Body body) {
  benchmark::RegisterBenchmark((scene + "/" + what + "/threads:" + std::to_string(threads)).c_str(),
                               [=](benchmark::State& state) {
                                 const Cloud& c = cloud(scene);
                                 set_thread_count(threads);
                                 double best = std::numeric_limits<double>::infinity();
                                 int64_t found = 0;
                                 for (auto _ : state) {
                                   const double begin = lattice::bench::cpu_seconds();
                                   found = body(c, r);
                                   best = std::min(best, lattice::bench::cpu_seconds() - begin);
                                 }
                                 const double n = static_cast<double>(c.size() / 3);
                                 state.counters["cpu_ms"] = best * 1e3;
                                 state.counters["ns_point"] = best / n * 1e9;
                                 state.counters["a_point"] = static_cast<double>(found) / n;
                               })
      ->UseRealTime()
      ->Unit(benchmark::kMillisecond);
}

}  // namespace

int main(int argc, char** argv) {
  for (const auto& [scene, r] : {std::pair("sweep", 0.5f), std::pair("scan1000000", 0.02f)}) {
    for (int threads : {1, 2}) {
      add(scene, "build", r, threads, build);
      add(scene, "knn", r, threads, knn);
      add(scene, "radius", r, threads, radius);
    }
#ifdef LATTICE_HAS_NANOFLANN
    add(scene, "nanoflann_knn", r, 1, nanoflann_knn);
    add(scene, "nanoflann_radius", r, 1, nanoflann_radius);
#endif
  }
  for (const char* scene : {"scan50000", "scan200000", "scan5000000"}) add(scene, "knn", 0, 1, knn);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
