// Which row of the table serves a call, and the log of what was decided.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lattice/routes/table.h"

namespace lattice {

// What was decided for one call.
struct Decision {
  Call call;
  const Route* chosen = nullptr;
  bool forced = false;
  std::vector<std::pair<const Route*, Rejection>> rejected;
  std::string text() const;
};

// The first row that fits, or the one that LATTICE_ROUTE="operation=name,..." asks for; throws
// std::invalid_argument when that does not exist or does not fit.
Decision decide(const Call& call);

// decide(), seen by the logs of this thread.
Decision choose(const Call& call);

// choose() and launch; the first result, or all of them.
mx::array run(const Call& call);
graph::Arrays run_all(const Call& call);

// While one lives, the decisions of the thread that made it are kept. Logs may end in any order and
// on any thread; each sees what happens during its life.
class DecisionLog {
 public:
  DecisionLog();
  ~DecisionLog();
  DecisionLog(const DecisionLog&) = delete;
  std::vector<Decision> decisions() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

// How often kernels of a route ran in this process. Rows of kernels on the CPU count when MLX
// evaluates the node, all other rows when the node is built.
int64_t run_count(const std::string& operation, const std::string& route);

}  // namespace lattice
