// Point convolution against the submanifold convolution of the same voxels, and on a dense scan, in
// one run.
//
//   rulebook_bench        float32, 3x3x3, 32 and 64 channels, one thread, best CPU time
//
// "centers": points at the voxel centers of a scene, so both convolutions have the same edges.
// "dense": five points per voxel at random places in the voxel. Forward + backward is the gradient
// of all inputs with the value. "buckets": the two sums over the edges of dense scans, with and
// without adding the rows of a bucket first. "flat": the same relation without a count of its
// buckets.
#include <mlx/mlx.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/geometry/relation_lists.h"
#include "lattice/ops/conv.h"
#include "lattice/ops/rulebook.h"
#include "lattice/ops/triplets.h"
#include "tests/support/random.h"
#include "tests/support/workloads.h"

namespace {

using namespace lattice;

void evaluate(std::vector<mx::array> a) { mx::eval(a); }

// x, weights and the output cotangent of a convolution; all of its derivatives.
double backward(const mx::array& x, const mx::array& w, const Relation::Ptr& r) {
  const auto f = [&](const std::vector<mx::array>& in) {
    return std::vector<mx::array>{point_conv(in[0], in[1], r)};
  };
  mx::array g = mx::random::normal({static_cast<int>(r->n_out()), w.shape(3)});
  g.eval();
  const auto all = [&] {
    auto [y, grads] = mx::vjp(f, {x, w}, {g});
    grads.push_back(y[0]);
    mx::eval(grads);
  };
  all();
  return bench::best(4, all);
}

// A number of /proc/self/status in MB; 0 where there is none.
double status(const std::string& what) {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);)
    if (line.rfind(what + ":", 0) == 0) return std::stod(line.substr(what.size() + 1)) * 1024e-6;
  return 0;
}

// By how much one forward + backward pass makes the process and MLX's memory grow at most; all kept
// memory is given back first.
void memory(const mx::array& x, const mx::array& w, const Relation::Ptr& r) {
  mx::clear_cache();
  cpu::pool_trim();
  std::ofstream("/proc/self/clear_refs") << 5;  // Linux forgets the peak so far
  const double before = status("VmRSS"), held = static_cast<double>(mx::get_active_memory()) * 1e-6;
  mx::reset_peak_memory();
  const auto f = [&](const std::vector<mx::array>& in) {
    return std::vector<mx::array>{point_conv(in[0], in[1], r)};
  };
  auto [y, grads] = mx::vjp(f, {x, w}, {mx::ones({static_cast<int>(r->n_out()), w.shape(3)})});
  grads.push_back(y[0]);
  mx::eval(grads);
  std::printf(
      "memory of forward + backward, dense, C = %d: %.0f MB more resident, %.0f MB of it MLX "
      "arrays; features of "
      "points "
      "%.0f MB, of edges %.0f MB\n",
      x.shape(1), status("VmHWM") - before,
      static_cast<double>(mx::get_peak_memory()) * 1e-6 - held,
      static_cast<double>(x.nbytes()) * 1e-6,
      static_cast<double>(r->edge_count()) * static_cast<double>(x.shape(1)) * 4e-6);
}

// `a` and `b` in turns, so both see the same machine: best times.
std::pair<double, double> turns(int repeats, const std::function<void()>& a,
                                const std::function<void()>& b) {
  std::pair<double, double> least(1e30, 1e30);
  a(), b();
  for (int i = 0; i < repeats; ++i) {
    least.first = std::min(least.first, bench::best(1, a));
    least.second = std::min(least.second, bench::best(1, b));
  }
  return least;
}

// What bucket sums gain on the points: `per` for each row of voxels, anywhere in it.
void buckets(const std::vector<std::array<int32_t, 4>>& rows, int per) {
  support::Random random(2);
  std::vector<float> xyz;
  for (const auto& r : rows)
    for (int i = 0; i < per; ++i)
      for (size_t a = 1; a < 4; ++a)
        xyz.push_back(static_cast<float>(r[a]) + static_cast<float>(random.below(1000)) * 1e-3f);
  const int n = static_cast<int>(xyz.size() / 3);
  const PointSet points(mx::array(xyz.data(), {n, 3}), std::nullopt, 1);
  const Rulebook book = build_rulebook(points, points, 3);
  cpu::RelationLists lists = book.relation->lists();
  lists.n_buckets = 0;
  const Relation::Ptr flat = Relation::from_lists(std::move(lists));
  const double ratio =
      static_cast<double>(book.relation->edge_count()) / static_cast<double>(book.n_buckets());
  std::printf("%d points per voxel: %d points, %lld edges, %.2f per bucket\n", per, n,
              static_cast<long long>(book.relation->edge_count()), ratio);
  for (const int c : {16, 32, 64, 128}) {
    mx::array x = mx::random::normal({n, c}), w = mx::random::normal({27, c, c}),
              g = mx::random::normal({n, c});
    mx::eval({x, w, g});
    const auto [a, b] = turns(
        3, [&] { evaluate({conv(x, w, book.relation)}); }, [&] { evaluate({conv(x, w, flat)}); });
    const auto [d, e] = turns(
        3, [&] { evaluate({outer(x, g, book.relation)}); }, [&] { evaluate({outer(x, g, flat)}); });
    std::printf(
        "  C = %3d: mvmr %7.1f ms, flat %7.1f, %.2f times; vvor %7.1f ms, flat %7.1f, %.2f times\n",
        c, a * 1e3, b * 1e3, b / a, d * 1e3, e * 1e3, e / d);
    std::fflush(stdout);
  }
}

// Rows of the sweep in the order of their batches; the points at the centers of the voxels, and
// five points in each voxel.
struct Scene {
  std::vector<std::array<int32_t, 4>> rows;
  std::vector<float> centers, dense;
  std::vector<int32_t> lengths, dense_lengths;
};

Scene make_scene() {
  const support::Coords coords = support::scene("lidar").coords;
  Scene scene;
  scene.rows.resize(coords.size() / 4);
  std::memcpy(scene.rows.data(), coords.data(), coords.size() * sizeof(int32_t));
  std::stable_sort(scene.rows.begin(), scene.rows.end(),
                   [](const auto& a, const auto& b) { return a[0] < b[0]; });
  support::Random random(1);
  scene.lengths.resize(static_cast<size_t>(scene.rows.back()[0] + 1));
  scene.dense_lengths.resize(scene.lengths.size());
  for (const auto& r : scene.rows) {
    ++scene.lengths[static_cast<size_t>(r[0])];
    scene.dense_lengths[static_cast<size_t>(r[0])] += 5;
    for (size_t a = 1; a < 4; ++a) scene.centers.push_back(static_cast<float>(r[a]) + 0.5f);
    for (int i = 0; i < 5; ++i)
      for (size_t a = 1; a < 4; ++a)
        scene.dense.push_back(static_cast<float>(r[a]) +
                              static_cast<float>(random.below(1000)) * 1e-3f);
  }
  return scene;
}

PointSet point_set(const std::vector<float>& points, const std::vector<int32_t>& lengths) {
  return PointSet(mx::array(points.data(), {static_cast<int>(points.size() / 3), 3}),
                  mx::array(lengths.data(), {static_cast<int>(lengths.size())}, mx::int32), 1);
}

void rulebooks(const PointSet& points, const PointSet& scan, Rulebook& r, Rulebook& d) {
  std::printf(
      "centers: %lld points, %lld edges, rulebook %.1f ms; dense: %lld points, %lld edges, %lld "
      "buckets, rulebook %.1f ms\n",
      static_cast<long long>(points.size()), static_cast<long long>(r.relation->edge_count()),
      bench::best(3, [&] { r = build_rulebook(points, points, 3); }) * 1e3,
      static_cast<long long>(scan.size()), static_cast<long long>(d.relation->edge_count()),
      static_cast<long long>(d.n_buckets()),
      bench::best(2, [&] { d = build_rulebook(scan, scan, 3); }) * 1e3);
  const FullCover cover = build_full_cover_rulebook(scan, 2, 5);
  const Generated made = build_generative_rulebook(points, 3);
  std::printf(
      "full cover of dense at stride 2: %lld targets, %lld of them added, %lld edges, %.1f ms; "
      "generated from centers: %lld targets, %lld edges, %.1f ms\n",
      static_cast<long long>(cover.targets.size()), static_cast<long long>(cover.n_added),
      static_cast<long long>(cover.rulebook.relation->edge_count()),
      bench::best(2, [&] { build_full_cover_rulebook(scan, 2, 5); }) * 1e3,
      static_cast<long long>(made.targets.size()),
      static_cast<long long>(made.rulebook.relation->edge_count()),
      bench::best(3, [&] { build_generative_rulebook(points, 3); }) * 1e3);
}

void convolutions(int c, const Relation::Ptr& voxel, const Relation::Ptr& centers,
                  const Relation::Ptr& dense) {
  mx::array x = mx::random::normal({static_cast<int>(centers->n_in()), c}),
            w = mx::random::normal({27, 1, c, c}),
            xs = mx::random::normal({static_cast<int>(dense->n_in()), c});
  const mx::array kernel = mx::squeeze(w, 1);
  mx::eval({x, w, xs});
  const auto voxel_conv = [&] { evaluate({conv(x, kernel, voxel)}); };
  const auto center_conv = [&] { evaluate({point_conv(x, w, centers)}); };
  const auto dense_conv = [&] { evaluate({point_conv(xs, w, dense)}); };
  voxel_conv(), center_conv(), dense_conv();
  const double a = bench::best(7, voxel_conv), b = bench::best(7, center_conv),
               e = bench::best(4, dense_conv);
  std::printf(
      "C = %d: voxels %.2f ms, centers %.2f ms (%.2f times), forward + backward %.2f times "
      "forward; dense %.2f ms, %.1f GFLOP/s\n",
      c, a * 1e3, b * 1e3, b / a, backward(x, w, centers) / b, e * 1e3,
      2.0 * c * c * static_cast<double>(dense->edge_count()) / e * 1e-9);
  memory(xs, w, dense);
  std::fflush(stdout);
}

}  // namespace

int main() {
  mx::set_cache_limit(size_t{4} << 30);  // MLX's CPU cache holds 32 MB; page faults would be timed
  mx::set_default_device(mx::Device::cpu);
  cpu::set_thread_count(1);
  Scene scene = make_scene();
  const PointSet points = point_set(scene.centers, scene.lengths),
                 scan = point_set(scene.dense, scene.dense_lengths);
  const CoordinateSet voxels(
      mx::array(scene.rows[0].data(), {static_cast<int>(scene.rows.size()), 4}, mx::int32),
      "rulebook_bench");
  const Relation::Ptr voxel =
      relate(RelationKind::submanifold, voxels, KernelSpec(), std::nullopt, "rulebook_bench");
  Rulebook r = build_rulebook(points, points, 3), d = build_rulebook(scan, scan, 3);
  rulebooks(points, scan, r, d);
  for (const int c : {32, 64}) convolutions(c, voxel, r.relation, d.relation);
  // A part of the scene that is whole in itself, so many points per voxel fit.
  std::sort(scene.rows.begin(), scene.rows.end());
  scene.rows.resize(scene.rows.size() / 4);
  for (const int per : {2, 5, 11}) buckets(scene.rows, per);
}
