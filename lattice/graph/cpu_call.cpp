#include "lattice/graph/cpu_call.h"

#include <mlx/backend/cpu/encoder.h>
#include <mlx/ops.h>
#include <mlx/primitives.h>

#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "lattice/graph/array_memory.h"

namespace lattice::graph {
namespace mx = mlx::core;
namespace {

// The message of the first task that failed since the last call; empty if none failed.
class Failure {
 public:
  void note(const std::string& name, const char* what) noexcept {
    const std::lock_guard lock(mutex_);
    if (!text_.empty()) return;
    try {
      text_ = "[" + name + "] failed: " + what;
    } catch (...) {
      text_ = "out of memory";  // short enough to need none
    }
  }
  void raise() {
    std::string text;
    {
      const std::lock_guard lock(mutex_);
      text.swap(text_);
    }
    if (!text.empty())
      throw std::runtime_error(text +
                               "; what an earlier call computed is NaN or -1, compute it again");
  }

 private:
  std::mutex mutex_;
  std::string text_;
};
Failure& failure() {
  static auto* instance = new Failure;  // tasks may end after static destruction began
  return *instance;
}

// After a failure the outputs hold neither old memory nor plausible numbers, but NaN for floats and
// -1 for integers.
void spoil(const std::vector<Output>& outputs) {
  for (const Output& out : outputs)
    if (out.size > 0) std::memset(out.data, 0xFF, static_cast<size_t>(out.size) * out.dtype.size());
}

class CpuCall : public mx::Primitive {
 public:
  CpuCall(mx::Stream stream, std::string name, std::string key, CpuFunction run)
      : Primitive(stream),
        name_(std::move(name)),
        key_(std::move(key)),
        run_(std::make_shared<const CpuFunction>(std::move(run))) {}

  // MLX keeps the buffers of inputs and outputs until the dispatched task is done; the task holds
  // pointers only. Memory is taken here, on the thread that evaluates, where it may throw. The task
  // must not: MLX 0.32.4 drops the tasks behind one that threw together with their messages that
  // they are done, and an eval that waits for these messages never returns.
  void eval_cpu(const std::vector<mx::array>& inputs, std::vector<mx::array>& outputs) override {
    auto& encoder = mx::cpu::get_command_encoder(stream());
    std::vector<Input> ins;
    std::vector<Output> outs;
    ins.reserve(inputs.size());
    outs.reserve(outputs.size());
    for (const mx::array& a : inputs) {
      encoder.set_input_array(a);
      ins.push_back({a.data<char>(), a.shape(), a.strides(), a.dtype(),
                     static_cast<int64_t>(a.size()), a.flags().row_contiguous});
    }
    for (mx::array& a : outputs) {
      give_memory(a);
      encoder.set_output_array(a);
      outs.push_back({a.data<char>(), a.shape(), a.dtype(), static_cast<int64_t>(a.size())});
    }
    encoder.dispatch([run = run_, name = name_, ins = std::move(ins), outs = std::move(outs)] {
      try {
        (*run)(ins, outs);
      } catch (const std::exception& error) {
        spoil(outs);
        failure().note(name, error.what());
      } catch (...) {
        spoil(outs);
        failure().note(name, "unknown error");
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
};

}  // namespace

mx::Stream cpu_stream(mx::StreamOrDevice s) {
  mx::Stream stream = mx::to_stream(s);
  return stream.device == mx::Device::cpu ? stream : mx::default_stream(mx::Device::cpu);
}

std::vector<mx::array> cpu_call(std::string name, std::string key,
                                const std::vector<mx::array>& inputs,
                                std::vector<OutputSpec> outputs, CpuFunction run,
                                mx::StreamOrDevice s) {
  failure().raise();
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (OutputSpec& spec : outputs) {
    shapes.push_back(std::move(spec.shape));
    dtypes.push_back(spec.dtype);
  }
  auto node =
      std::make_shared<CpuCall>(cpu_stream(s), std::move(name), std::move(key), std::move(run));
  return mx::array::make_arrays(std::move(shapes), dtypes, node, inputs);
}

mx::array row_contiguous(const mx::array& a, mx::StreamOrDevice s) {
  return mx::contiguous(a, false, cpu_stream(s));
}

}  // namespace lattice::graph
