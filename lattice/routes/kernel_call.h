// Builds the call of an entry function of kernels/metal/<topic>.metal, input by input.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "lattice/graph/cpu_call.h"
#include "lattice/graph/gpu_call.h"

namespace lattice::routes {

namespace mx = mlx::core;

// The position of a thread, for entry functions that work in groups: ThreadPlace of
// arguments.metal.
inline constexpr const char* kThreadPlace =
    "lattice::ThreadPlace{threadgroup_position_in_grid, thread_index_in_threadgroup, "
    "simdgroup_index_in_threadgroup, thread_index_in_simdgroup}";

// The fields of a struct of kernels/portable, as read_fields() of arguments.metal reads them. MLX
// passes fewer than 8 elements in another kind of memory.
template <typename Sizes>
mx::array field_words(const Sizes& sizes) {
  static_assert(std::is_trivially_copyable_v<Sizes> && sizeof(Sizes) % sizeof(int32_t) == 0);
  std::array<int32_t, std::max<size_t>(8, sizeof(Sizes) / sizeof(int32_t))> words = {};
  std::memcpy(words.data(), &sizes, sizeof(Sizes));
  return mx::array(words.begin(), {static_cast<int>(words.size())}, mx::int32);
}

struct KernelCall {
  graph::GpuCall call;
  graph::Arrays inputs;

  // `name` says everything that changes the text.
  KernelCall(std::string name, const char* topic) {
    call.name = std::move(name);
    call.header = metal::text(topic);
  }
  void add(const char* name, const mx::array& input) {
    call.input_names.emplace_back(name);
    inputs.push_back(input);
  }
  void add_output(const char* name, graph::OutputSpec spec) {
    call.output_names.emplace_back(name);
    call.outputs.push_back(std::move(spec));
  }
  // The body reads the fields as `sizes`; `type` is the name of the struct.
  template <typename Sizes>
  void add_sizes(const char* type, const Sizes& sizes) {
    add("words", field_words(sizes));
    const std::string full = std::string("lattice::") + type;
    call.source = "const " + full + " sizes = lattice::read_fields<" + full + ">(words);\n";
  }
  // The body calls `function` of namespace lattice.
  void enter(const std::string& function, const std::string& arguments) {
    call.source += "lattice::" + function + "(" + arguments + ");";
  }
  graph::Arrays run(mx::StreamOrDevice s) const { return graph::gpu_call(call, inputs, s); }
};

}  // namespace lattice::routes
