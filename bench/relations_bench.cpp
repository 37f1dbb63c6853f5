// From raw coordinates to a relation, sorting included, against std::unordered_map code in the same
// run.
//
//   relations_bench                              the table: best CPU time of all threads per input
//                                                row, ratio to plain code
//   relations_bench --benchmark_filter=lidar     some of its lines
//   relations_bench --benchmark_format=console   Google Benchmark's own report; also json, csv
//
// "index view of a GPU" is timed alone, from lists that are there: the map, order and masks that
// metal.sorted reads. Edges are compared with the plain code before anything is timed.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>

#include "bench/support/cpu_time.h"
#include "bench/support/plain_relations.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/geometry/edges.h"
#include "lattice/kernels/cpu/geometry/relations.h"
#include "lattice/kernels/cpu/geometry/sorted_map.h"
#include "tests/support/workloads.h"

namespace {

using namespace lattice::cpu;
using lattice::bench::PlainRelation;
using lattice::support::Coords;

CoordSpan span(const Coords& c) { return {c.data(), static_cast<int64_t>(c.size()) / 4, false}; }

std::shared_ptr<const CoordIndex> index_of(const Coords& c) {
  return std::make_shared<const CoordIndex>(index_coords(span(c)));
}

Kernel halving(bool centered) {
  return {.size = {2, 2, 2}, .stride = {2, 2, 2}, .centered = centered};
}

RelationLists submanifold(const Coords& c) { return relate_same(index_of(c), Kernel{}); }

RelationLists strided(const Coords& c) {
  MadeCoords made;
  return relate_downscaled(span(c), index_of(c), halving(true), &made);
}

RelationLists transposed(const Coords& c) {
  MadeCoords made;
  return relate_generated(span(c), index_of(c), halving(false), &made);
}

// Edge arrays and output CSR as users see them.
struct PublicEdges {
  Buffer<int32_t> offsets, in, out, k;
  size_t nbytes() const { return offsets.nbytes() + in.nbytes() + out.nbytes() + k.nbytes(); }
};
PublicEdges edges_of(const RelationLists& lists) {
  PublicEdges e{Buffer<int32_t>(lists.n_out + 1), Buffer<int32_t>(lists.n_edges),
                Buffer<int32_t>(lists.n_edges), Buffer<int32_t>(lists.n_edges)};
  edge_arrays(lists, e.offsets.data(), e.in.data(), e.out.data(), e.k.data());
  return e;
}

// plain_parents gives its edges in input order, so both are sorted first.
using Edge = std::tuple<int32_t, int32_t, int32_t>;
std::vector<Edge> sorted(const int32_t* in, const int32_t* out, const int32_t* k, size_t n) {
  std::vector<Edge> edges;
  for (size_t e = 0; e < n; ++e) edges.emplace_back(out[e], k[e], in[e]);
  std::sort(edges.begin(), edges.end());
  return edges;
}

void check_parity(const std::string& name, const RelationLists& lists, const PlainRelation& plain) {
  const PublicEdges e = edges_of(lists);
  if (sorted(e.in.data(), e.out.data(), e.k.data(), static_cast<size_t>(lists.n_edges)) !=
      sorted(plain.in_rows.data(), plain.out_rows.data(), plain.kernel_ids.data(),
             plain.in_rows.size()))
    throw std::runtime_error("relations of " + name + " differ from the plain ones");
}

struct Made {
  int64_t edges;
  size_t bytes;
};
Made made(const RelationLists& lists) { return {lists.n_edges, lists.nbytes()}; }
Made made(const PlainRelation& r) {
  return {static_cast<int64_t>(r.in_rows.size()), r.in_rows.size() * 12 + r.out.size() * 16};
}

Made index_view(const RelationLists& lists) {
  Buffer<int32_t> map(lists.n_k() * lists.n_out), order(lists.n_out);
  Buffer<uint32_t> masks((lists.n_out + 63) / 64 * 4);
  if (!sorted_map(lists, map.data(), order.data(), masks.data()))
    throw std::runtime_error("two edges of one row and offset");
  return {lists.n_edges, map.nbytes() + order.nbytes() + masks.nbytes()};
}

struct Scene {
  Coords coords;
  RelationLists lists;  // submanifold 3x3x3
};

// What is timed; `plain` names the line it is compared with.
struct Work {
  const char* name;
  const char* plain;
  Made (*run)(const Scene&);
};
const Work kPlain[] = {
    {"plain submanifold 3x3x3", "",
     [](const Scene& s) { return made(lattice::bench::plain_submanifold(s.coords)); }},
    {"plain strided 2x2x2", "",
     [](const Scene& s) { return made(lattice::bench::plain_strided(s.coords)); }},
    {"plain strided, size == stride", "",
     [](const Scene& s) { return made(lattice::bench::plain_parents(s.coords)); }},
};
const Work kWorks[] = {
    {"submanifold 3x3x3", kPlain[0].name,
     [](const Scene& s) { return made(submanifold(s.coords)); }},
    {"submanifold 3x3x3, edges, CSR", kPlain[0].name,
     [](const Scene& s) {
       const RelationLists lists = submanifold(s.coords);
       return Made{lists.n_edges, lists.nbytes() + edges_of(lists).nbytes()};
     }},
    {"index view of a GPU", "", [](const Scene& s) { return index_view(s.lists); }},
    {"strided 2x2x2", kPlain[1].name, [](const Scene& s) { return made(strided(s.coords)); }},
    {"transposed 2x2x2", "", [](const Scene& s) { return made(transposed(s.coords)); }},
};

void add(const std::string& name, const Scene& scene, const Work& work, int threads) {
  const auto run = [&scene, work, threads](benchmark::State& state) {
    set_thread_count(threads);
    double cpu = 1e30, wall = 1e30;
    Made result{};
    for (auto _ : state) {
      const double begin = lattice::bench::cpu_seconds();
      const auto start = std::chrono::steady_clock::now();
      result = work.run(scene);
      wall = std::min(
          wall, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
      const double spent = lattice::bench::cpu_seconds() - begin;
      state.SetIterationTime(spent);
      cpu = std::min(cpu, spent);
    }
    const double rows = static_cast<double>(span(scene.coords).rows),
                 edges = static_cast<double>(result.edges);
    state.counters["ns_row"] = cpu * 1e9 / rows;
    state.counters["wall_ns_row"] = wall * 1e9 / rows;
    state.counters["edges"] = edges;
    state.counters["Medges_s"] = edges / wall * 1e-6;
    state.counters["bytes_edge"] = static_cast<double>(result.bytes) / edges;
    state.SetLabel(work.plain);
  };
  const std::string title = name + "/" + work.name + "/threads:" + std::to_string(threads);
  benchmark::RegisterBenchmark(title.c_str(), run)->UseManualTime()->Unit(benchmark::kMillisecond);
}

// One line per benchmark; the last column is the plain code's CPU time divided by this one's.
class Table : public benchmark::BenchmarkReporter {
 public:
  bool ReportContext(const Context&) override {
    std::printf("%-6s %-31s %7s %10s %12s %10s %8s %9s %9s\n", "scene", "relation", "threads",
                "CPU ns/row", "wall ns/row", "edges", "Medge/s", "byte/edge", "vs plain");
    return true;
  }
  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      const std::string title = run.run_name.function_name;
      const size_t first = title.find('/'), last = title.rfind('/');
      const std::string scene = title.substr(0, first),
                        relation = title.substr(first + 1, last - first - 1);
      const auto value = [&](const char* name) { return run.counters.at(name).value; };
      seen_[scene + "/" + relation] = value("ns_row");
      const auto plain = seen_.find(scene + "/" + run.report_label);
      std::printf("%-6s %-31s %7s %10.1f %12.1f %10.0f %8.1f %9.1f ", scene.c_str(),
                  relation.c_str(), title.substr(title.rfind(':') + 1).c_str(), value("ns_row"),
                  value("wall_ns_row"), value("edges"), value("Medges_s"), value("bytes_edge"));
      if (plain != seen_.end())
        std::printf("%8.1fx\n", plain->second / value("ns_row"));
      else
        std::printf("%9s\n", "");
      std::fflush(stdout);
    }
  }

 private:
  std::map<std::string, double> seen_;
};

}  // namespace

int main(int argc, char** argv) {
  const bool own_table = std::none_of(argv, argv + argc, [](const char* a) {
    return std::string_view(a).starts_with("--benchmark_format");
  });
  benchmark::Initialize(&argc, argv);
  std::map<std::string, Scene> scenes;
  for (const std::string name : {"lidar", "room"}) {
    Scene& scene = scenes[name];
    scene.coords = lattice::support::scene(name).coords;
    scene.lists = submanifold(scene.coords);
    const Coords& coords = scene.coords;
    check_parity(name, submanifold(coords), lattice::bench::plain_submanifold(coords));
    check_parity(name, strided(coords), lattice::bench::plain_strided(coords));
    check_parity(name, strided(coords), lattice::bench::plain_parents(coords));
    for (const Work& work : kPlain) add(name, scene, work, 1);
    for (const Work& work : kWorks)
      for (int threads : {1, 2}) add(name, scene, work, threads);
  }
  Table table;
  own_table ? benchmark::RunSpecifiedBenchmarks(&table) : benchmark::RunSpecifiedBenchmarks();
}
