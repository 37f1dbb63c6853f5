// One row of the table of routes: a way to evaluate an operation, and when it fits.
#pragma once

#include <atomic>

#include "lattice/graph/differentiable.h"
#include "lattice/graph/gpu_call.h"
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
// Rejects where MLX has neither Metal nor CUDA, for which there are kernels of ours.
Rejection needs_gpu_kernels(const Call& call);

// Whose code runs in a row of the table. `host`: code of the CPU, also for a GPU that shares
// memory. `metal` and `cuda`: one text in the words of either.
enum class Code { host, metal, cuda, mlx };

// How often kernels of a row ran. A copy of the row starts at 0.
struct RunCount {
  mutable std::atomic<int64_t> n = 0;
  RunCount() = default;
  RunCount(const RunCount&) {}
};

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
  // Whether float32 is multiplied by MLX's matmul (products.h).
  bool has_mlx_products = false;
  RunCount runs = {};
  // A kernel of this row runs now.
  void count_run() const { runs.n.fetch_add(1, std::memory_order_relaxed); }
  // Why the row does not fit: its check, then whether MLX has the backend of its code.
  Rejection refusal(const Call& call) const;
};

}  // namespace lattice
