// What launchers share: all rows make their nodes of the CPU through this header.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lattice/graph/cpu_call.h"
#include "lattice/kernels/cpu/base/float_types.h"
#include "lattice/kernels/cpu/features/segments.h"
#include "lattice/routes/route.h"

namespace lattice::routes {

// How kernels name a float dtype.
inline cpu::FloatType float_type_of(mx::Dtype dtype) {
  return dtype == mx::float32   ? cpu::FloatType::f32
         : dtype == mx::float16 ? cpu::FloatType::f16
                                : cpu::FloatType::bf16;
}

inline mx::Dtype dtype_of(cpu::FloatType storage) {
  return storage == cpu::FloatType::f32   ? mx::float32
         : storage == cpu::FloatType::f16 ? mx::float16
                                          : mx::bfloat16;
}

// Part of a node's key: an object by its address, which the node's function keeps alive.
inline std::string address(const void* object) {
  return std::to_string(reinterpret_cast<std::uintptr_t>(object));
}

inline graph::Arrays contiguous(const graph::Arrays& arrays, mx::StreamOrDevice s) {
  graph::Arrays out;
  for (const mx::array& a : arrays) out.push_back(graph::row_contiguous(a, s));
  return out;
}

inline cpu::RowArray row_array(const graph::Input& in) {
  return {float_type_of(in.dtype), in.data, in.shape[0], in.shape[1]};
}

// A node of a row that runs kernel(inputs, outputs) and counts the run. `key` spells out what else
// it depends on. Rows of tables live as long as the process.
template <typename Kernel>
graph::Arrays cpu_nodes(const Route& route, mx::StreamOrDevice s, const graph::Arrays& inputs,
                        std::string key, std::vector<graph::OutputSpec> outputs, Kernel kernel) {
  return graph::cpu_call(
      route.operation + "." + route.name, std::move(key), inputs, std::move(outputs),
      [kernel, &route](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        route.count_run();
        kernel(in, out);
      },
      s);
}

// The same with one output.
template <typename Kernel>
mx::array cpu_node(const Route& route, mx::StreamOrDevice s, const graph::Arrays& inputs,
                   std::string key, graph::OutputSpec output, Kernel kernel) {
  return cpu_nodes(route, s, inputs, std::move(key), {std::move(output)},
                   [kernel](std::span<const graph::Input> in, std::span<const graph::Output> out) {
                     kernel(in, out[0]);
                   })[0];
}

}  // namespace lattice::routes
