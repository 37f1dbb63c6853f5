// Joins and row selection on `room` (172,802 rows, shuffled), CPU ns per row, best of several runs,
// one and two threads.
//
//   algebra_bench [channels]     default 64
//
// Coordinates are new arrays for each join, so sorting them is included. "rows" divides by the
// rows of the result.
#include <mlx/mlx.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/algebra.h"
#include "tests/support/workloads.h"

namespace {

using namespace lattice;

SparseTensor tensor(const support::Coords& rows, int channels) {
  const int n = static_cast<int>(rows.size() / 4);
  mx::array feats = mx::random::normal({n, channels}, mx::float32, mx::random::key(1));
  feats.eval();
  return SparseTensor(mx::array(rows.data(), {n, 4}, mx::int32), feats);
}

void measure(const std::string& what, int threads, const std::function<int64_t()>& work) {
  double least = 1e30;
  int64_t rows = 1;
  for (int i = 0; i < 7; ++i) {
    const double begin = bench::cpu_seconds();
    rows = work();
    least = std::min(least, bench::cpu_seconds() - begin);
  }
  std::printf("%-34s %d threads %9lld rows %8.1f CPU ns per row\n", what.c_str(), threads,
              static_cast<long long>(rows), least / static_cast<double>(rows) * 1e9);
}

int64_t evaluated_rows(const SparseTensor& x) {
  mx::array feats = x.feats();
  feats.eval();
  return x.active_count();
}

}  // namespace

int main(int argc, char** argv) {
  const int channels = argc > 1 ? std::max(1, std::atoi(argv[1])) : 64;
  mx::set_cache_limit(size_t{4} << 30);
  mx::set_default_device(mx::Device::cpu);
  const support::Coords a = support::scene("room").coords;
  support::Coords b = support::room(1);
  for (size_t i = 0; i < b.size(); i += 12)
    b[i + 1] += 1 << 12;  // a third of the rows has no partner
  for (const int threads : {1, 2}) {
    cpu::set_thread_count(threads);
    const SparseTensor x = tensor(a, channels), y = tensor(b, channels);
    for (const auto& [name, join] :
         {std::pair("outer", Join::outer), {"inner", Join::inner}, {"left", Join::left}}) {
      measure(std::string("alignment ") + name, threads, [&, join = join] {
        const int n = static_cast<int>(a.size() / 4);
        const mx::array u(a.data(), {n, 4}, mx::int32), v(b.data(), {n, 4}, mx::int32);
        return int64_t{
            build_sparse_alignment(u, std::nullopt, v, std::nullopt, join).coords.shape(0)};
      });
    }
    measure("add, outer, with features", threads, [&] {
      return evaluated_rows(
          sparse_binary(tensor(a, 1).with_feats(x.feats()), y, BinaryOp::add, Join::outer));
    });
    measure("add, shared identity", threads,
            [&] { return evaluated_rows(sparse_binary(x, x, BinaryOp::add, Join::outer)); });
    measure("crop to half", threads, [&] {
      return evaluated_rows(crop(x, {-100000, -100000, -100000}, {60, 100000, 100000}));
    });
    mx::array twice = mx::concatenate({x.coords(), x.coords()}, 0),
              feats = mx::concatenate({x.feats(), x.feats()}, 0);
    mx::eval({twice, feats});
    measure("two copies of each row, summed", threads, [&] {
      return evaluated_rows(
          sparse_from_coordinates(twice, feats, {1, 1, 1}, std::nullopt, Duplicates::sum));
    });
  }
}
