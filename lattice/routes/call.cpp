#include "lattice/routes/call.h"

#include <mlx/device.h>

#include "lattice/graph/metal_call.h"

namespace lattice {

mx::Device Call::device() const {
  return graph::on_gpu(stream) ? mx::Device::gpu : mx::Device::cpu;
}
int64_t Call::n_in() const {
  if (map) return map->n_in();
  return relation ? relation->n_in() : inputs[0].shape(0);
}
int64_t Call::n_out() const {
  if (map) return map->n_out();
  if (geometry) return inputs.back().shape(0);
  if (groups_of_rows)
    return operation == "gather" ? groups_of_rows->n_rows() : groups_of_rows->n_groups();
  return relation ? relation->n_out() : inputs[0].shape(0);
}
int64_t Call::n_edges() const {
  if (map) return map->n_entries();
  if (groups_of_rows) return groups_of_rows->n_rows();
  if (geometry) return 0;  // nobody knows yet
  if (operation == "distance") return int64_t{inputs[0].shape(0)} * inputs[1].shape(0);
  return relation ? relation->edge_count() : inputs[0].shape(0);
}
double Call::flop() const {
  if (is_reduction()) return operation == "gather" ? 0 : static_cast<double>(n_edges() * c_in);
  return 2.0 * static_cast<double>(n_edges()) * static_cast<double>(c_in) *
         static_cast<double>(c_out) / static_cast<double>(groups);
}
double Call::bytes() const {
  if (geometry) {
    double sum = 0;
    for (const mx::array& a : inputs) sum += static_cast<double>(a.nbytes());
    return sum;
  }
  if (operation == "distance")
    return 4.0 * static_cast<double>(inputs[0].size() + inputs[1].size() + n_edges());
  const double features = static_cast<double>(n_in() * c_in + n_out() * c_out);
  if (is_reduction()) return features * static_cast<double>(mx::size_of(dtype));
  if (packing.bits) {
    const size_t packed = inputs[1].nbytes() + inputs[2].nbytes() + inputs[3].nbytes();
    return features * static_cast<double>(mx::size_of(dtype)) + static_cast<double>(packed);
  }
  const double weights =
      static_cast<double>((relation ? relation->n_kernels() : 1) * (c_in / groups) * c_out);
  return (features + weights) * static_cast<double>(mx::size_of(dtype));
}
const char* Call::family() const {
  if (operation == "linear") return "matrix product";
  if (operation == "outer") return "weight gradient";
  if (operation == "per_edge_apply") return "product with a matrix an edge";
  if (operation == "per_edge_outer") return "outer product an edge";
  if (operation == "pool") return "pooling";
  if (operation == "segments") return "reduction over groups of rows";
  if (operation == "gather") return "gather of rows";
  if (operation == "argmax") return "rows of maxima";
  if (operation == "map_rows") return "rows along a map";
  if (operation == "unique") return "distinct coordinates";
  if (operation == "lookup") return "coordinates found by value";
  if (operation == "relate") return "relation of coordinates";
  if (operation == "neighbors") return "neighbors";
  if (operation == "distance") return "distances of all pairs";
  return "convolution";
}

cpu::FloatType float_type_of(mx::Dtype dtype) {
  return dtype == mx::float32   ? cpu::FloatType::f32
         : dtype == mx::float16 ? cpu::FloatType::f16
                                : cpu::FloatType::bf16;
}

}  // namespace lattice
