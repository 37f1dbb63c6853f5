#include "lattice/routes/probe.h"

#include <mlx/backend/metal/metal.h>
#include <mlx/ops.h>

#include <atomic>
#include <cmath>
#include <map>
#include <mutex>

#include "lattice/graph/dtype.h"
#include "lattice/routes/table.h"

namespace lattice {
namespace {

constexpr int kAsTheMachine = -1;
std::atomic<int> probing = kAsTheMachine;

struct Results {
  std::mutex mutex;
  std::map<std::string, Probe> of;
};
Results& results() {
  static auto* instance = new Results;
  return *instance;
}

bool is_probed(const Route& route) {
  if (route.code != Code::metal && route.code != Code::cuda) return false;
  const int forced = probing;
  return forced == kAsTheMachine
             ? !graph::has_gpu_host() && graph::gpu_backend() != graph::GpuBackend::none
             : forced != 0;
}

std::string label_of(const Route& route, const Call& call) {
  std::string label =
      std::string(name(route.operation)) + " " + route.name + " " + graph::dtype_name(call.dtype);
  if (const auto* weights = std::get_if<Weights>(&call.payload); weights && weights->packing.bits)
    label += " int" + std::to_string(weights->packing.bits) +
             (weights->packing.transposed ? " transposed" : "");
  if (const auto* reduce = std::get_if<Reduce>(&call.payload))
    label += std::string(" ") + name(plain_mode(reduce->mode));
  if (const auto* pairs = std::get_if<Pairs>(&call.payload))
    label += std::string(" ") + name(pairs->metric);
  if (const auto* attend = std::get_if<Attend>(&call.payload))
    label += std::string(attend->positions ? " table"
                         : attend->biased  ? " bias"
                                           : "") +
             (attend->mask ? " mask" : "") + (attend->causal ? " causal" : "");
  return label;
}

// The result on the CPU: the first row of the CPU that fits.
mx::array on_cpu(Call call) {
  call.stream = mx::Device(mx::Device::cpu);
  for (const Route& row : routes())
    if (row.operation == call.operation && row.device == mx::Device::cpu && row.check(call).fits())
      return row.launch(call, row)[0];
  throw std::logic_error("no route of the CPU fits");
}

std::vector<float> values_of(const mx::array& result) {
  const mx::Device cpu(mx::Device::cpu);
  mx::array values = mx::contiguous(mx::astype(result, mx::float32, cpu), false, cpu);
  values.eval();
  return {values.data<float>(), values.data<float>() + values.size()};
}

// Sums of a case are exact in float32: what differs by more than the last rounding is wrong.
std::string difference(const Call& call, const mx::array& found, const mx::array& expected) {
  if (found.shape() != expected.shape()) return "the result has another shape than on the CPU";
  const std::vector<float> a = values_of(found), b = values_of(expected);
  const float tolerance = call.dtype == mx::float32 ? 0x1p-16f : 0x1p-6f;
  for (size_t i = 0; i < a.size(); ++i)
    if (!(std::fabs(a[i] - b[i]) <= tolerance * (1 + std::fabs(b[i]))))
      return "value " + std::to_string(i) + " of the result is " + std::to_string(a[i]) +
             ", on the CPU " + std::to_string(b[i]);
  return "";
}

std::string failure_of(const Route& route, const Call& call) {
  const std::optional<Call> test = probe_case(route, call);
  if (!test) return "";
  const int64_t before = route.runs.n;
  std::string failure;
  try {
    mx::array found = route.launch(*test, route)[0];
    found.eval();
    failure = difference(*test, found, on_cpu(*test));
  } catch (const std::exception& error) {
    failure = error.what();
  }
  route.runs.n -= route.runs.n - before;  // a probe is no run
  return failure;
}

}  // namespace

Rejection passes_probe(const Route& route, const Call& call) {
  if (!is_probed(route)) return {};
  const std::string label = label_of(route, call);
  Results& kept = results();
  {
    const std::lock_guard lock(kept.mutex);
    if (const auto found = kept.of.find(label); found != kept.of.end())
      return found->second.failure.empty()
                 ? Rejection{}
                 : Rejection{Rejection::Step::capability,
                             "its probe failed on this machine: " + found->second.failure};
  }
  // Not under the lock: a kernel may wait for a thread that waits for the lock. Two threads may
  // probe one row.
  Probe probe{label, failure_of(route, call)};
  {
    const std::lock_guard lock(kept.mutex);
    kept.of.emplace(label, std::move(probe));
  }
  return passes_probe(route, call);
}

std::optional<Probe> probe_of(const Route& route, const Call& call) {
  const std::lock_guard lock(results().mutex);
  const auto found = results().of.find(label_of(route, call));
  if (found == results().of.end()) return std::nullopt;
  return found->second;
}

std::vector<Probe> probes() {
  const std::lock_guard lock(results().mutex);
  std::vector<Probe> all;
  for (const auto& [label, probe] : results().of) all.push_back(probe);
  return all;
}

void set_probing(std::optional<bool> on) {
  probing = on ? static_cast<int>(*on) : kAsTheMachine;
  const std::lock_guard lock(results().mutex);
  results().of.clear();
}

}  // namespace lattice
