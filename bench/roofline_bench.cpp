// Hot operations against what the machine can do. FLOP and bytes of a call are compared with a
// large sgemm and a copy of memory in the same run.
//
//   roofline_bench [text [threads]]   lines whose title holds `text`; default: all, one thread
//
// A Markdown table. Bytes are those that must move: each row read or written once, weights, lists.
//
//   bound    = max(FLOP / sgemm, bytes / copy): the roofline of Williams, Waterman and Patterson
//              (2009)
//   in turns = FLOP / sgemm + bytes / bandwidth, where the bandwidth of shuffled rows is that of a
//              copy of such rows: what a call takes that first moves and then multiplies
//
// "share" is the part of the measured time that the bound takes, then the same for "in turns".
// Inputs lie in memory of the library, as a layer leaves them. One thread counts CPU time, the best
// of several runs in turns with sgemm. With more threads the last column divides the elapsed time
// of one thread by theirs.
#include <mlx/mlx.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "bench/support/blas.h"
#include "bench/support/clouds.h"
#include "bench/support/cpu_time.h"
#include "lattice/core/relation.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/segments.h"
#include "lattice/kernels/cpu/geometry/edges.h"
#include "lattice/kernels/cpu/geometry/relations.h"
#include "lattice/ops/columns.h"
#include "lattice/ops/conv.h"
#include "lattice/ops/points.h"
#include "lattice/ops/reduce_edges.h"
#include "lattice/ops/segments.h"
#include "lattice/ops/triplets.h"
#include "tests/support/random.h"
#include "tests/support/workloads.h"

namespace {

using namespace lattice;

constexpr int kRounds = 7, kGemm = 1024;

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// What one call moves and computes. Rows of `row_bytes` in all have `channels` values each and lie
// in shuffled order; `bytes` are the others.
struct Work {
  std::string title;
  double flop, bytes, row_bytes;
  int64_t channels;
  std::function<void()> run;
};

class Machine {
 public:
  Machine(std::string text, int threads) : text_(std::move(text)), threads_(threads) {
    const int64_t bytes = int64_t{128} << 20;
    cpu::Buffer<char> a(bytes), b(bytes);
    std::memset(a.data(), 1, static_cast<size_t>(bytes));
    copy_ = 2.0 * static_cast<double>(bytes) / bench::best(8, [&] {
              std::memcpy(b.data(), a.data(), static_cast<size_t>(bytes));
              asm volatile("" : : "r"(b.data()) : "memory");
            });
    std::printf("copy of 128 MiB: %.1f GB/s, read and written\n\n", copy_ * 1e-9);
    std::printf(
        "| operation | MFLOP | MB | bound, ms | by | measured, ms | GFLOP/s | sgemm | share | "
        "share "
        "in turns |%s\n|---|---|---|---|---|---|---|---|---|---|%s\n",
        threads > 1 ? " threads |" : "", threads > 1 ? "---|" : "");
  }

  bool wants(const std::string& title) const { return title.find(text_) != std::string::npos; }

  void measure(const Work& work) {
    cpu::set_thread_count(1);
    double least = 1e30, sgemm = 1e11;
    work.run();
    for (int i = 0; i < kRounds; ++i) {
#if defined(LATTICE_HAS_BLAS)
      const double seconds = bench::best(
          1, [&] { bench::gemm(kGemm, kGemm, kGemm, a_.data(), a_.data(), c_.data()); });
      sgemm = std::max(i == 0 ? 0 : sgemm, 2.0 * kGemm * kGemm * kGemm / seconds);
#endif
      least = std::min(least, bench::best(2, work.run));
    }
    const double compute = work.flop / sgemm, move = (work.bytes + work.row_bytes) / copy_;
    const double turns =
        compute + work.bytes / copy_ + (work.row_bytes > 0 ? work.row_bytes / rows(work) : 0);
    const double bound = std::max(compute, move);
    std::printf("| %s | %.1f | %.1f | %.2f | %s | %.2f | %.1f | %.1f | %.2f | %.2f |",
                work.title.c_str(), work.flop * 1e-6, (work.bytes + work.row_bytes) * 1e-6,
                bound * 1e3, compute > move ? "FLOP" : "bytes", least * 1e3,
                work.flop / least * 1e-9, sgemm * 1e-9, bound / least, turns / least);
    if (threads_ > 1) std::printf(" %.2f |", wall(work, 1) / wall(work, threads_));
    std::printf("\n");
    std::fflush(stdout);
  }

 private:
  static double wall(const Work& work, int threads) {
    cpu::set_thread_count(threads);
    double least = 1e30;
    for (int i = 0; i < kRounds; ++i) {
      const double begin = wall_seconds();
      work.run();
      least = std::min(least, wall_seconds() - begin);
    }
    return least;
  }

  // Rows copied in shuffled order: bytes per second, read and written.
  double rows(const Work& work) {
    const int64_t n = static_cast<int64_t>(work.row_bytes / 8) / work.channels;
    double& known = rows_[{n, work.channels}];
    if (known > 0) return known;
    support::Random random(1);
    std::vector<int32_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    random.shuffle_rows(order, 1);
    cpu::Buffer<float> x(n * work.channels), y(n * work.channels);
    std::fill(x.begin(), x.end(), 1.0f);
    known = 2.0 * static_cast<double>(x.nbytes()) / bench::best(kRounds, [&] {
              cpu::gather_rows({cpu::FloatType::f32, x.data(), n, work.channels}, order.data(), n,
                               0, y.data());
            });
    return known;
  }

  std::string text_;
  int threads_;
  double copy_ = 0;
  std::vector<float> a_ = std::vector<float>(size_t{kGemm} * kGemm, 0.5f), c_ = a_;
  std::map<std::pair<int64_t, int64_t>, double> rows_;
};

void evaluate(mx::array a) { a.eval(); }

mx::array values(int64_t rows, int64_t columns) {
  mx::array a =
      join_columns({mx::random::normal({static_cast<int>(rows), static_cast<int>(columns)})});
  a.eval();
  return a;
}

double bytes_of(int64_t rows, int64_t columns) { return 4.0 * static_cast<double>(rows * columns); }

std::string channels_text(int64_t c_in, int64_t c_out) {
  return std::to_string(c_in) + " -> " + std::to_string(c_out);
}

enum class Pass { forward, weight_gradient };

void convolution(Machine& machine, const std::string& title, const Relation::Ptr& r, int64_t c_in,
                 int64_t c_out, Pass pass = Pass::forward) {
  const std::string name =
      title + (pass == Pass::forward ? ", " : ", weight gradient, ") + channels_text(c_in, c_out);
  if (!machine.wants(name)) return;
  const int64_t n_k = r->n_kernels();
  const mx::array x = values(r->n_in(), c_in), g = values(r->n_out(), c_out);
  mx::array w =
      mx::reshape(values(n_k * c_in, c_out),
                  {static_cast<int>(n_k), static_cast<int>(c_in), static_cast<int>(c_out)});
  w.eval();
  const double edges = static_cast<double>(r->edge_count());
  const bool shuffled = r->lists().in_order != nullptr;
  const double rows = bytes_of(r->n_in(), c_in) + bytes_of(r->n_out(), c_out);
  const double rest = bytes_of(n_k * c_in, c_out) + static_cast<double>(r->lists().nbytes());
  machine.measure({name, 2 * edges * static_cast<double>(c_in * c_out),
                   rest + (shuffled ? 0 : rows), shuffled ? rows : 0, (c_in + c_out) / 2,
                   [&] { evaluate(pass == Pass::forward ? conv(x, w, r) : outer(x, g, r)); }});
}

void pointwise(Machine& machine, const std::string& scene, int64_t n, int64_t c) {
  const std::string name = scene + ", pointwise, " + channels_text(c, c);
  if (!machine.wants(name)) return;
  const mx::array x = values(n, c), w = values(c, c);
  machine.measure({name, 2.0 * static_cast<double>(n * c * c), 2 * bytes_of(n, c) + bytes_of(c, c),
                   0, c, [&] { evaluate(matmul_rows(x, w)); }});
}

void pooling(Machine& machine, const std::string& scene, const Relation::Ptr& r, PoolMode mode,
             const char* mode_name) {
  const std::string name = scene + ", pooling 2x2x2, " + mode_name + ", 64";
  if (!machine.wants(name)) return;
  const mx::array x = values(r->n_in(), 64);
  machine.measure({name, 0, static_cast<double>(r->lists().nbytes()),
                   bytes_of(r->n_in() + r->n_out(), 64), 64,
                   [&] { evaluate(reduce_edges(x, r, mode)); }});
}

void segments(Machine& machine, int64_t mean) {
  const std::string name = "segments of " + std::to_string(mean) + " rows, sum, 64";
  if (!machine.wants(name)) return;
  const int64_t n = 500000 / mean;
  const mx::array x = values(n * mean, 64);
  const mx::array lengths = mx::full({static_cast<int>(n)}, static_cast<int>(mean), mx::int32);
  machine.measure(
      {name, 0, bytes_of(n * mean + n, 64), 0, 64, [&] { evaluate(segment_reduce(x, lengths)); }});
}

void edge_arrays_of(Machine& machine, const std::string& scene, const support::Coords& coords) {
  const std::string name = scene + ", relation 3x3x3 with edge arrays";
  if (!machine.wants(name)) return;
  const int64_t n = static_cast<int64_t>(coords.size()) / 4;
  const auto lists = [&] {
    const cpu::CoordSpan span{coords.data(), n, false};
    return cpu::relate_same(std::make_shared<const cpu::CoordIndex>(cpu::index_coords(span)),
                            cpu::Kernel{});
  };
  const cpu::RelationLists made = lists();
  const double bytes = bytes_of(n, 4) + static_cast<double>(made.nbytes()) +
                       bytes_of(made.n_edges, 3) + bytes_of(n, 1);
  machine.measure({name, 0, bytes, 0, 1, [&] {
                     const cpu::RelationLists r = lists();
                     cpu::Buffer<int32_t> offsets(n + 1), in(r.n_edges), out(r.n_edges),
                         k(r.n_edges);
                     cpu::edge_arrays(r, offsets.data(), in.data(), out.data(), k.data());
                   }});
}

void voxels(Machine& machine, const std::string& scene, const bench::Cloud& cloud, float edge) {
  const std::string name = scene + ", voxelize, mean of 4";
  if (!machine.wants(name)) return;
  const int64_t n = static_cast<int64_t>(cloud.size()) / 3;
  const mx::array points(cloud.data(), {static_cast<int>(n), 3}, mx::float32), x = values(n, 4);
  PointOptions options;
  options.voxel_size = {edge, edge, edge};
  const int64_t found = voxelize(points, x, options).feats().shape(0);
  machine.measure({name, 0, bytes_of(n, 7) + bytes_of(found, 8), 0, 4,
                   [&] { evaluate(voxelize(points, x, options).feats()); }});
}

mx::array ids(int n, int below, uint64_t seed) {
  support::Random random(seed);
  std::vector<int32_t> v(static_cast<size_t>(n));
  for (int32_t& id : v) id = static_cast<int32_t>(random.below(static_cast<uint64_t>(below)));
  return mx::array(v.data(), {n}, mx::int32);
}

void outer_products(Machine& machine, int64_t c) {
  constexpr int kTriplets = 100000, kRows = 8192, kTaps = 27;
  const std::string name = "VVOR, 100,000 triplets, " + channels_text(c, c);
  if (!machine.wants(name)) return;
  const Relation::Ptr r = triplet_relation(ids(kTriplets, kTaps, 1), ids(kTriplets, kRows, 2),
                                           ids(kTriplets, kRows, 3), kTaps, kRows, kRows);
  const mx::array a = mx::reshape(values(kRows, c), {kRows, 1, static_cast<int>(c)}),
                  b = mx::reshape(values(kRows, c), {kRows, 1, static_cast<int>(c)});
  mx::eval(a, b);
  machine.measure({name, 2.0 * kTriplets * static_cast<double>(c * c),
                   bytes_of(2 * kRows + kTaps * c, c) + static_cast<double>(r->lists().nbytes()), 0,
                   c, [&] { evaluate(vvor(a, b, r)); }});
}

void scene_lines(Machine& machine, const std::string& name) {
  const support::Coords rows = support::scene(name).coords;
  const int64_t n = static_cast<int64_t>(rows.size()) / 4;
  const CoordinateSet coords(mx::array(rows.data(), {static_cast<int>(n), 4}, mx::int32),
                             "roofline_bench");
  const Relation::Ptr same =
      relate(RelationKind::submanifold, coords, KernelSpec(), std::nullopt, "roofline_bench");
  const KernelSpec half({2, 2, 2}, {2, 2, 2}, {0, 0, 0}, {1, 1, 1});
  const Relation::Ptr down =
      relate(RelationKind::forward, coords, half, std::nullopt, "roofline_bench");
  for (const Pass pass : {Pass::forward, Pass::weight_gradient})
    for (const int64_t c : {16, 32, 64, 128, 256})
      if (c < 256 || name == "lidar") convolution(machine, name + ", 3x3x3", same, c, c, pass);
  convolution(machine, name + ", 3x3x3", same, 3, 32);
  convolution(machine, name + ", 3x3x3", same, 1, 16);
  for (const int64_t c : {32, 64}) {
    convolution(machine, name + ", 2x2x2 down", down, c, c);
    convolution(machine, name + ", 2x2x2 up", down->reversed(), c, c);
  }
  for (const int64_t c : {32, 64, 128, 256})
    if (c < 256 || name == "lidar") pointwise(machine, name, n, c);
  pooling(machine, name, down, PoolMode::sum, "sum");
  pooling(machine, name, down, PoolMode::max, "max");
  edge_arrays_of(machine, name, rows);
}

}  // namespace

int main(int argc, char** argv) {
  mx::set_default_device(mx::Device::cpu);
  mx::set_cache_limit(size_t{4} << 30);
  Machine machine(argc > 1 ? argv[1] : "", argc > 2 ? std::max(1, std::atoi(argv[2])) : 1);
  for (const char* name : {"lidar", "room"}) scene_lines(machine, name);
  for (const int64_t mean : {4, 100}) segments(machine, mean);
  voxels(machine, "sweep", bench::sweep(), 0.1f);
  voxels(machine, "shuffled scan", bench::scan(1000000, true), 0.02f);
  for (const int64_t c : {16, 32, 64}) outer_products(machine, c);
}
