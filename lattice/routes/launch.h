// What launchers share: checks that several rows use, and the one way from a row to a CPU node.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lattice/graph/cpu_call.h"
#include "lattice/routes/route.h"

namespace lattice {

inline Rejection always(const Call&) { return {}; }

// The first of several checks that fails; they are given in the order of the decision.
template <auto... kChecks>
Rejection all_of(const Call& call) {
  Rejection why;
  ((why = kChecks(call), why.fits()) && ...);
  return why;
}

// A launcher as the table wants it. One that does not take its row counts a run as it builds.
template <auto kLaunch>
graph::Arrays one(const Call& call, const Route& route) {
  if constexpr (requires { kLaunch(call, route); }) {
    return {kLaunch(call, route)};
  } else {
    route.count_run();
    return {kLaunch(call)};
  }
}

// Part of a node's key: an object by its address, which the node's function keeps alive.
inline std::string address(const void* object) {
  return std::to_string(reinterpret_cast<std::uintptr_t>(object));
}

inline graph::Arrays contiguous_inputs(const Call& call) {
  graph::Arrays inputs;
  for (const mx::array& a : call.inputs) inputs.push_back(graph::row_contiguous(a, call.stream));
  return inputs;
}

// (n_out, c_out) in the dtype of the call.
inline graph::OutputSpec output_rows(const Call& call) {
  return {{static_cast<int>(call.n_out()), static_cast<int>(call.c_out)}, call.dtype};
}

inline cpu::RowArray row_array(const graph::Input& in) {
  return {float_type_of(in.dtype), in.data, in.shape[0], in.shape[1]};
}

// A node that runs kernel(inputs, outputs). `key` spells out what else it depends on. Rows of the
// table live as long as the process.
template <typename Kernel>
graph::Arrays cpu_nodes(const Call& call, const Route& route, const graph::Arrays& inputs,
                        std::string key, std::vector<graph::OutputSpec> outputs, Kernel kernel,
                        graph::Extend extend = {}) {
  return graph::cpu_call(
      std::string(name(route.operation)) + "." + route.name, std::move(key), inputs,
      std::move(outputs),
      [kernel, &route](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        route.count_run();
        kernel(in, out);
      },
      call.stream, std::move(extend));
}

// The same with one output.
template <typename Kernel>
mx::array cpu_node(const Call& call, const Route& route, const graph::Arrays& inputs,
                   std::string key, graph::OutputSpec output, Kernel kernel,
                   graph::Extend extend = {}) {
  return cpu_nodes(
      call, route, inputs, std::move(key), {std::move(output)},
      [kernel](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        kernel(in, out[0]);
      },
      std::move(extend))[0];
}

}  // namespace lattice
