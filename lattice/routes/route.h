// A route is one way to answer a question; a table lists the routes of one operation.
//
// Every family of operations has one small struct of what is asked, such as UniqueAsked: its inputs
// by name, and the stream. A row of a table holds the conditions under which it serves, and the
// function that answers. decide.h tries the rows in order and runs the first that fits. routes(),
// explain(), the self test, the tests and the documentation read the same rows.
#pragma once

#include <mlx/device.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "lattice/api.h"
#include "lattice/graph/differentiable.h"

namespace lattice::routes {

namespace mx = mlx::core;

// The steps of a decision, in their order. A row is refused at one of them.
enum class Step { device, relation, storage, shape, capability };
LATTICE_API const char* name(Step step);

// At which step a row was refused, and what was found there. Empty text: the row fits.
struct Rejection {
  Step step = Step::device;
  std::string text = {};
  bool fits() const { return text.empty(); }
};

// A check and the words that describe it. A number that occurs in both comes from one constant.
template <class Asked>
struct Condition {
  Step step;
  std::string words;  // describe a question that passes: "8 or more channels"; may be empty
  bool (*holds)(const Asked&);
  std::string (*found)(const Asked&);  // describes a question that does not pass
  // Whether the answer changes with rows that a given row of the result does not depend on. Then
  // so may the bits of that row.
  bool of_all_rows = false;
};

template <class Asked>
std::vector<Condition<Asked>> operator+(std::vector<Condition<Asked>> some,
                                        const std::vector<Condition<Asked>>& more) {
  some.insert(some.end(), more.begin(), more.end());
  return some;
}

// A number as it appears in the words of rows: "1,024", "2.5".
std::string number(double value);

// The kind of code that a row runs. `host`: code of the CPU, also for a GPU that shares memory.
// `metal` and `cuda`: one text in the words of either.
enum class Code { host, metal, cuda, mlx };
// Whether MLX has the backend of such code here, and what explain() says if it has not.
bool has_backend(Code code);
Rejection missing_backend(Code code);

// How often kernels of a row ran. A copy of the row starts at 0.
struct RunCount {
  mutable std::atomic<int64_t> n = 0;
  RunCount() = default;
  RunCount(const RunCount&) {}
  RunCount& operator=(const RunCount&) { return *this; }
};

inline constexpr auto kCpu = mx::Device::cpu, kGpu = mx::Device::gpu;

// What every row has, whatever it is asked.
struct Route {
  std::string operation;  // "conv"
  mx::Device::DeviceType device;
  Code code;
  std::string name;       // "cpu.tiles"
  std::string predicate;  // when it fits and what it does, in words
  // Whether a row of the result has the same bits whatever rows stand beside it: a tiled run takes
  // only such routes.
  bool row_independent = false;
  RunCount runs = {};
  // A kernel of this row runs now.
  void count_run() const { runs.n.fetch_add(1, std::memory_order_relaxed); }
};

template <class Asked, class Made>
struct Row : Route {
  using Run = Made (*)(const Asked&, const Route&);
  std::vector<Condition<Asked>> fits;  // all must hold; they are asked in this order
  Run run;
  // What the kernel decides by itself, for explain(); empty: nothing.
  std::string (*note)(const Asked&);
  // Whether MLX's matmul multiplies float32 values, which a GPU may round to TF32 (products.h).
  bool (*multiplies_float32)(const Asked&);

  // The predicate is the words of the conditions, then `how`.
  Row(mx::Device::DeviceType device, Code code, std::string name,
      std::vector<Condition<Asked>> conditions, const std::string& how, Run run,
      std::string (*note)(const Asked&) = nullptr,
      bool (*multiplies_float32)(const Asked&) = nullptr)
      : Route{{}, device, code, std::move(name), {}},
        fits(std::move(conditions)),
        run(run),
        note(note),
        multiplies_float32(multiplies_float32) {
    for (const Condition<Asked>& condition : fits)
      if (!condition.words.empty())
        predicate.append(predicate.empty() ? "" : ", ").append(condition.words);
    predicate.append(predicate.empty() ? "" : ": ").append(how);
    // MLX's products on a GPU are cut by the number of rows.
    row_independent =
        code != Code::mlx &&
        std::none_of(fits.begin(), fits.end(), [](const auto& c) { return c.of_all_rows; });
  }

  // Why the conditions do not hold; fits if they do.
  Rejection refusal_by_conditions(const Asked& asked) const {
    for (const Condition<Asked>& condition : fits)
      if (!condition.holds(asked)) return {condition.step, condition.found(asked)};
    return {};
  }
  // The same, then whether MLX has the backend of the code.
  Rejection refusal(const Asked& asked) const {
    const Rejection why = refusal_by_conditions(asked);
    return why.fits() ? missing_backend(code) : why;
  }
};

// A row whose function runs, or builds its nodes, at once: the run is counted here. Functions that
// make a node of the CPU count when MLX evaluates the node (launch.h).
template <auto kRun, class Asked, class Made>
Made counted(const Asked& asked, const Route& row) {
  row.count_run();
  return kRun(asked);
}

// Whether rows of the operands become rows of the answer, or are added up, as in the gradient of a
// weight.
enum class Answer { rows, sums };

// The rows of one operation without their types.
struct AnyTable {
  std::string operation, family;  // "conv", "convolution"
  std::vector<const Route*> routes = {};
};

// A row "metal.x" as a row "cuda.x", whose kernels are the same text.
void make_cuda_twin(Route& row);

template <class Asked, class Made>
struct Table : AnyTable {
  std::vector<Row<Asked, Made>> rows;  // in the order in which they are tried

  // Behind each run of rows of Metal stand their twins for CUDA. The tensor operations of Metal
  // have none.
  Table(std::string operation, std::string family, const std::vector<Row<Asked, Made>>& given,
        Answer answer = Answer::rows)
      : AnyTable{std::move(operation), std::move(family)} {
    std::vector<Row<Asked, Made>> twins;
    const auto end_run = [&] {
      rows.insert(rows.end(), twins.begin(), twins.end());
      twins.clear();
    };
    for (const Row<Asked, Made>& row : given) {
      if (row.code != Code::metal) end_run();
      rows.push_back(row);
      if (row.code == Code::metal && row.name.find("tensor") == std::string::npos)
        make_cuda_twin(twins.emplace_back(row));
    }
    end_run();
    for (Row<Asked, Made>& row : rows) {
      row.operation = this->operation;
      if (answer == Answer::sums) row.row_independent = false;
      routes.push_back(&row);
    }
  }
  Table(const Table&) = delete;
};

// What tests and probes compare of a result: a single array, or the first of several.
template <class Asked>
graph::Arrays compared(const Asked&, const mx::array& made) {
  return {made};
}
template <class Asked>
graph::Arrays compared(const Asked&, const graph::Arrays& made) {
  return {made[0]};
}

}  // namespace lattice::routes
