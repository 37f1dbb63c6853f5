// One row of the table of routes: a way to evaluate an operation, and when it fits.
#pragma once

#include <atomic>

#include "lattice/graph/differentiable.h"
#include "lattice/routes/call.h"

namespace lattice {

// Why a route does not fit: which step of the decision, and the predicate that failed. Empty text:
// it fits.
struct Rejection {
  enum class Step { device, family, relation, storage, shape, capability };
  Step step = Step::device;
  std::string text;
  bool fits() const { return text.empty(); }
};
const char* name(Rejection::Step step);
// Rejects where MLX has no Metal: another kind of GPU takes gpu.mlx.
Rejection needs_metal(const Call& call);

// Whose code runs in a row of the table. `host`: code of the CPU, also for a GPU that shares
// memory.
enum class Code { host, metal, mlx };

struct Route {
  Operation operation;
  mx::Device::DeviceType device;
  Code code;
  std::string name;       // "cpu.tiles"
  std::string predicate;  // in words
  Rejection (*check)(const Call&);
  graph::Arrays (*launch)(const Call&, const Route&);
  // What the kernel decides by itself, for explain(); empty: nothing.
  std::string (*note)(const Call&) = nullptr;
  mutable std::atomic<int64_t> runs = 0;
  // A kernel of this row runs now.
  void count_run() const { runs.fetch_add(1, std::memory_order_relaxed); }
};

}  // namespace lattice
