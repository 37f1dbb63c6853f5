#include "lattice/graph/cpu_call.h"

#include <mlx/backend/cpu/encoder.h>
#include <mlx/ops.h>
#include <mlx/primitives.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>

#include "lattice/graph/array_memory.h"

namespace lattice::graph {
namespace mx = mlx::core;
namespace {

// MLX 0.32.4 drops the tasks behind a task that threw, and with them their messages "task done". An
// eval waits for these messages while more than ten tasks are under way: that eval or a later one
// would never return. So a failing task sends kSpare of these messages in advance (one stands for
// ten nodes). The next cpu_call takes back the messages that were not used up. A count that is too
// low for a while only lets MLX queue more.
constexpr int kSpare = 4096;
std::atomic<bool> spares_sent{false};

void send_spares(const mx::Stream& stream) {
  for (int i = 0; i < kSpare; ++i) mx::scheduler::notify_task_completion(stream);
  spares_sent = true;
}

void take_back_spares(const mx::Stream& stream) {
  if (!spares_sent.exchange(false)) return;
  while (mx::scheduler::n_active_tasks() < 0) mx::scheduler::notify_new_task(stream);
}

class CpuCall : public mx::Primitive {
 public:
  CpuCall(mx::Stream stream, std::string name, std::string key, CpuFunction run, Extend extend)
      : Primitive(stream),
        name_(std::move(name)),
        key_(std::move(key)),
        run_(std::make_shared<const CpuFunction>(std::move(run))),
        extend_(std::move(extend)) {}

  const Extend& extend() const { return extend_; }

  // MLX keeps the buffers of inputs and outputs until the dispatched task is done; the task holds
  // pointers only.
  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    std::vector<Input> ins;
    std::vector<Output> outs;
    ins.reserve(inputs.size());
    outs.reserve(outputs.size());
    for (const mx::array& a : inputs) {
      encoder.set_input_array(a);
      ins.push_back({a.data<char>(), a.shape(), a.strides(), a.dtype(),
                     static_cast<int64_t>(a.size()), a.flags().row_contiguous,
                     a.data_shared_ptr()});
    }
    for (mx::array& a : outputs) {
      give_memory(a);
      encoder.set_output_array(a);
      outs.push_back({a.data<char>(), a.shape(), a.dtype(), static_cast<int64_t>(a.size())});
    }
    encoder.dispatch([run = run_, ins = std::move(ins), outs = std::move(outs), stream = stream()] {
      try {
        (*run)(ins, outs);
      } catch (...) {
        // MLX takes the outputs for evaluated from now on: let them be NaN or -1, not old memory.
        for (const Output& out : outs)
          std::memset(out.data, 0xFF, static_cast<size_t>(out.size) * out.dtype.size());
        send_spares(stream);
        throw;
      }
    });
  }

  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&) override {
    throw std::runtime_error("[" + name_ + "] found a GPU stream, expected a CPU stream");
  }

  std::pair<std::vector<mx::array>, std::vector<int>> vmap(const std::vector<mx::array>&,
                                                           const std::vector<int>&) override {
    throw std::invalid_argument("[" + name_ +
                                "] vmap is not supported: put the batch into the coordinates");
  }

  const char* name() const override { return name_.c_str(); }

  bool is_equivalent(const mx::Primitive& other) const override {
    const auto* call = dynamic_cast<const CpuCall*>(&other);
    return call && call->name_ == name_ && call->key_ == key_;
  }

 private:
  std::string name_;
  std::string key_;
  std::shared_ptr<const CpuFunction> run_;
  Extend extend_;
};

}  // namespace

mx::Stream cpu_stream(mx::StreamOrDevice s) {
  mx::Stream stream = mx::to_stream(s);
  return stream.device == mx::Device::cpu ? stream : mx::default_stream(mx::Device::cpu);
}

std::vector<mx::array> cpu_call(std::string name, std::string key,
                                const std::vector<mx::array>& inputs,
                                std::vector<OutputSpec> outputs, CpuFunction run,
                                mx::StreamOrDevice s, Extend extend) {
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (OutputSpec& spec : outputs) {
    shapes.push_back(std::move(spec.shape));
    dtypes.push_back(spec.dtype);
  }
  mx::Stream stream = cpu_stream(s);
  take_back_spares(stream);
  auto node = std::make_shared<CpuCall>(stream, std::move(name), std::move(key), std::move(run),
                                        std::move(extend));
  return mx::array::make_arrays(std::move(shapes), dtypes, node, inputs);
}

namespace {

// What makes `a`, if that is the only result of a cpu_call that was not evaluated yet, and nothing
// is differentiated or compiled.
std::optional<mx::array> made_by_cpu_call(const mx::array& a) {
  if (a.is_tracer()) return std::nullopt;
  mx::array made = a;
  while (made.status() == mx::array::Status::unscheduled && made.has_primitive()) {
    if (dynamic_cast<const CpuCall*>(&made.primitive())) {
      if (!made.siblings().empty()) return std::nullopt;
      return made;
    }
    // What `differentiable` puts around a node, and row_contiguous around its result, which is
    // row-contiguous anyway. The results of the forward function are the last inputs.
    const std::string_view name = made.primitive().name();
    const std::vector<mx::array>& inputs = made.inputs();
    size_t at = 0;
    if (name == "CustomTransforms")
      at =
          inputs.size() - made.siblings().size() - 1 + static_cast<size_t>(made.sibling_position());
    else if (name != "StopGradient" && name != "Contiguous")
      return std::nullopt;
    mx::array inside = inputs[at];
    made = inside;
  }
  return std::nullopt;
}

}  // namespace

std::optional<mx::array> extended(const mx::array& a, const Extension& extension) {
  for (const mx::array& more : extension.inputs)
    if (more.is_tracer()) return std::nullopt;
  const std::optional<mx::array> made = made_by_cpu_call(a);
  if (!made) return std::nullopt;
  const auto& call = static_cast<const CpuCall&>(made->primitive());
  return call.extend() ? std::optional(call.extend()(made->inputs(), extension)) : std::nullopt;
}

std::optional<std::vector<mx::array>> inputs_of(const mx::array& a, std::string_view name) {
  const std::optional<mx::array> made = made_by_cpu_call(a);
  if (!made || made->primitive().name() != name) return std::nullopt;
  return made->inputs();
}

mx::array row_contiguous(const mx::array& a, mx::StreamOrDevice s) {
  return mx::contiguous(a, false, cpu_stream(s));
}

}  // namespace lattice::graph
