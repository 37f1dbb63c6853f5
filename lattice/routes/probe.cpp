#include "lattice/routes/probe.h"

#include <mlx/ops.h>

#include <cmath>
#include <map>
#include <mutex>

#include "lattice/graph/gpu_call.h"

namespace lattice::routes {
namespace {

struct Results {
  std::mutex mutex;
  std::map<std::string, Probe> of;
};
Results& results() {
  static auto* instance = new Results;
  return *instance;
}

std::string label_of(const Route& row, const std::string& variant) {
  return row.operation + " " + row.name + " " + variant;
}

std::vector<float> values_of(const mx::array& result) {
  const mx::Device cpu(mx::Device::cpu);
  mx::array values = mx::contiguous(mx::astype(result, mx::float32, cpu), false, cpu);
  values.eval();
  return {values.data<float>(), values.data<float>() + values.size()};
}

}  // namespace

bool is_probed(const Route& row) {
  if (row.code != Code::metal && row.code != Code::cuda) return false;
  const graph::StandIn& machine = graph::stand_in();
  return machine.probing.value_or(!machine.run && graph::gpu_backend() != graph::GpuBackend::none);
}

std::string difference(const graph::Arrays& found, const graph::Arrays& expected) {
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].shape() != expected[i].shape())
      return "the result has another shape than on the CPU";
    const std::vector<float> a = values_of(found[i]), b = values_of(expected[i]);
    const float tolerance = expected[i].dtype().size() == 2 ? 0x1p-6f : 0x1p-16f;
    for (size_t j = 0; j < a.size(); ++j)
      if (!(std::fabs(a[j] - b[j]) <= tolerance * (1 + std::fabs(b[j]))))
        return "value " + std::to_string(j) + " of the result is " + std::to_string(a[j]) +
               ", on the CPU " + std::to_string(b[j]);
  }
  return "";
}

std::optional<Probe> find_probe(const Route& row, const std::string& variant) {
  const std::lock_guard lock(results().mutex);
  const auto found = results().of.find(label_of(row, variant));
  if (found == results().of.end()) return std::nullopt;
  return found->second;
}

Probe probe(const Route& row, const std::string& variant,
            const std::function<std::string()>& failure) {
  if (const auto ran = find_probe(row, variant)) return *ran;
  // Not under the lock: a kernel may wait for a thread that waits for the lock. Two threads may
  // probe one row.
  Probe made{label_of(row, variant), ""};
  const int64_t before = row.runs.n;
  try {
    made.failure = failure();
  } catch (const std::exception& error) {
    made.failure = error.what();
  }
  row.runs.n -= row.runs.n - before;  // a probe is no run
  const std::lock_guard lock(results().mutex);
  return results().of.emplace(made.label, made).first->second;
}

std::vector<Probe> probes() {
  const std::lock_guard lock(results().mutex);
  std::vector<Probe> all;
  for (const auto& [label, probe] : results().of) all.push_back(probe);
  return all;
}

void forget_probes() {
  const std::lock_guard lock(results().mutex);
  results().of.clear();
}

}  // namespace lattice::routes
