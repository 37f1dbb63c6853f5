// Operations on coordinate sets, indexes included: best CPU time of all threads, ns per row
// (counter ns_row), against std::unordered_map code for the look-up.
//   coords_bench --benchmark_filter=room
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "lattice/kernels/cpu/geometry/child_masks.h"
#include "lattice/kernels/cpu/geometry/coords.h"
#include "lattice/kernels/cpu/geometry/curves.h"
#include "tests/support/workloads.h"

namespace {

using namespace lattice::cpu;
using lattice::support::Coords;

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

CoordSpan span(const Coords& c) { return {c.data(), static_cast<int64_t>(c.size()) / 4, false}; }

const Coords& scene(const std::string& name) {
  static std::map<std::string, Coords> kept;
  if (!kept.contains(name)) kept[name] = lattice::support::scene(name).coords;
  return kept[name];
}

// The scene with a third of its rows moved by one in x: most rows have a partner.
const Coords& other_scene(const std::string& name) {
  static std::map<std::string, Coords> kept;
  if (!kept.contains(name)) {
    Coords moved = scene(name);
    for (size_t i = 0; i < moved.size(); i += 12) moved[i + 1] += 1 << 12;
    kept[name] = std::move(moved);
  }
  return kept[name];
}

// One pass over the 64-bit words of a row; good enough as a hash of plain code.
struct RowHash {
  size_t operator()(const std::array<int32_t, 4>& row) const {
    uint64_t h = 0;
    for (int32_t v : row) h = (h ^ static_cast<uint32_t>(v)) * 0x9e3779b97f4a7c15u;
    return h ^ h >> 32;
  }
};
void plain_lookup(const Coords& a, const Coords& b) {
  std::unordered_map<std::array<int32_t, 4>, int32_t, RowHash> rows;
  const auto row = [](const Coords& c, size_t i) {
    return std::array{c[i], c[i + 1], c[i + 2], c[i + 3]};
  };
  rows.reserve(a.size() / 4);
  for (size_t i = 0; i < a.size(); i += 4) rows.emplace(row(a, i), static_cast<int32_t>(i / 4));
  std::vector<int32_t> found(b.size() / 4);
  for (size_t i = 0; i < b.size(); i += 4) {
    const auto at = rows.find(row(b, i));
    found[i / 4] = at == rows.end() ? -1 : at->second;
  }
  benchmark::DoNotOptimize(found.data());
}

using Body = void (*)(const Coords&, const Coords&);
void run(benchmark::State& state, const std::string& name, int threads, Body body) {
  const Coords& a = scene(name);
  const Coords& b = other_scene(name);
  set_thread_count(threads);
  double best = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    const double begin = cpu_seconds();
    body(a, b);
    best = std::min(best, cpu_seconds() - begin);
  }
  state.counters["ns_row"] = best / static_cast<double>(span(a).rows) * 1e9;
  state.counters["rows"] = static_cast<double>(span(a).rows);
}

const std::pair<const char*, Body> kBodies[] = {
    {"index", [](const Coords& a,
                 const Coords&) { benchmark::DoNotOptimize(index_coords(span(a)).duplicate); }},
    {"distinct",
     [](const Coords& a, const Coords&) {
       benchmark::DoNotOptimize(distinct_rows(index_coords(span(a))).first.data());
     }},
    {"lookup",
     [](const Coords& a, const Coords& b) {
       benchmark::DoNotOptimize(lookup(index_coords(span(a)), index_coords(span(b))).data());
     }},
    {"plain_lookup", plain_lookup},
    {"align_outer",
     [](const Coords& a, const Coords& b) {
       benchmark::DoNotOptimize(
           align(index_coords(span(a)), index_coords(span(b)), Join::outer).lhs.data());
     }},
    {"morton_order", [](const Coords& a,
                        const Coords&) { benchmark::DoNotOptimize(morton_order(span(a)).data()); }},
    {"hilbert_order",
     [](const Coords& a, const Coords&) {
       benchmark::DoNotOptimize(hilbert_order(span(a)).data());
     }},
    {"occupancy",
     [](const Coords& a, const Coords&) {
       benchmark::DoNotOptimize(occupancy_downsample(span(a)).masks.data());
     }},
};

}  // namespace

int main(int argc, char** argv) {
  for (const char* name : {"lidar", "room"})
    for (const auto& [what, body] : kBodies)
      for (int threads : {1, 2}) {
        const std::string title =
            std::string(name) + "/" + what + "/threads:" + std::to_string(threads);
        benchmark::RegisterBenchmark(
            title.c_str(),
            [=, body = body](benchmark::State& state) { run(state, name, threads, body); })
            ->UseRealTime()
            ->Unit(benchmark::kMillisecond);
      }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
