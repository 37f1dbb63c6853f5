// Whether a kernel of a GPU works on this machine.
//
// MLX compiles a kernel when it first runs, inside eval, where nothing can fall back. So before a
// row with a kernel of the library is used for the first time, a small case runs on that row and on
// the CPU, once per row and variant of the question. A row whose case throws or differs is refused
// from then on. A family takes part by two functions: Asked::variant() names what changes the text
// of its kernels, and probe_cases(asked) gives small questions like this one.
#pragma once

#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "lattice/api.h"
#include "lattice/routes/route.h"

namespace lattice::routes {

struct Probe {
  std::string label;    // "conv metal.sorted float16"
  std::string failure;  // what was thrown, or how the results differ; empty: they agree
};

// All probes that ran in this process. Probes run where MLX has a GPU.
std::vector<Probe> probes();
// Forgets all probes. Tests that pretend to be another machine begin with it.
LATTICE_API void forget_probes();

// Whether this row is probed before it is used.
bool is_probed(const Route& row);
// The probe with this label, if it ran.
std::optional<Probe> find_probe(const Route& row, const std::string& variant);
// The same, but calls `failure` to run the probe if it has not run yet. The runs of `row` are not
// counted.
Probe probe(const Route& row, const std::string& variant,
            const std::function<std::string()>& failure);
// How results differ, in words; empty if they agree. Sums of a case are exact in float32, so a
// difference of more than the last rounding is an error.
std::string difference(const graph::Arrays& found, const graph::Arrays& expected);

template <class Asked>
concept Probed = requires(const Asked& asked) { probe_cases(asked); };

// A small case that fits the row, if there is one.
template <Probed Asked, class Made>
std::optional<Asked> probe_case(const Row<Asked, Made>& row, const Asked& asked) {
  for (Asked& test : probe_cases(asked)) {
    test.stream = asked.stream;
    if (row.refusal_by_conditions(test).fits()) return test;
  }
  return std::nullopt;
}

// The answer of the first row of the CPU that fits.
template <class Asked, class Made>
Made run_on_cpu(const Table<Asked, Made>& table, Asked asked) {
  asked.stream = mx::Device(mx::Device::cpu);
  for (const Row<Asked, Made>& row : table.rows)
    if (row.device == kCpu && row.refusal_by_conditions(asked).fits()) return row.run(asked, row);
  throw std::logic_error("no route of the CPU fits");
}

// Whether the row may be used. Runs its probe if it is needed and has not run yet.
template <class Asked, class Made>
bool passes_probe(const Table<Asked, Made>& table, const Row<Asked, Made>& row,
                  const Asked& asked) {
  if constexpr (Probed<Asked>) {
    if (!is_probed(row)) return true;
    const auto failure = [&]() -> std::string {
      const std::optional<Asked> test = probe_case(row, asked);
      if (!test) return "";
      return difference(compared(*test, row.run(*test, row)),
                        compared(*test, run_on_cpu(table, *test)));
    };
    return probe(row, asked.variant(), failure).failure.empty();
  } else {
    return true;
  }
}

// Why the probe that ran refuses the row, and whether one ran.
template <class Asked, class Made>
Rejection probe_refusal(const Row<Asked, Made>& row, const Asked& asked) {
  if constexpr (Probed<Asked>) {
    const std::optional<Probe> ran = find_probe(row, asked.variant());
    if (ran && !ran->failure.empty())
      return {Step::capability, "its probe failed on this machine: " + ran->failure};
  }
  return {};
}
template <class Asked, class Made>
bool was_probed(const Row<Asked, Made>& row, const Asked& asked) {
  if constexpr (Probed<Asked>) return find_probe(row, asked.variant()).has_value();
  return false;
}

}  // namespace lattice::routes
