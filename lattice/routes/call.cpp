#include "lattice/routes/call.h"

#include <mlx/device.h>

#include "lattice/graph/dtype.h"
#include "lattice/routes/capability.h"

namespace lattice {
namespace {

// What every operation is called, in the order of the enumeration.
struct Words {
  const char *name, *family;
};
constexpr Words kWords[] = {
    {"conv", "convolution"},
    {"linear", "matrix product"},
    {"outer", "weight gradient"},
    {"per_edge_apply", "product with one matrix per edge"},
    {"per_edge_outer", "outer products, one matrix per edge"},
    {"pool", "pooling"},
    {"segments", "reduction over groups of rows"},
    {"argmax", "rows of maxima"},
    {"gather", "gather of rows"},
    {"map_rows", "rows along a map"},
    {"sum_rows", "sum over rows"},
    {"join_columns", "columns side by side"},
    {"take_columns", "some columns"},
    {"batch_norm", "normalization"},
    {"batch_norm_vjp", "gradient of a normalization"},
    {"row_norm", "normalization of rows"},
    {"row_norm_vjp", "gradient of a normalization of rows"},
    {"gelu", "activation"},
    {"adamw", "optimizer step"},
    {"distance", "distances of all pairs"},
    {"distance_vjp", "gradient of distances of all pairs"},
    {"attention", "attention"},
    {"attention_vjp", "gradient of attention"},
    {"neighbor_attention", "attention along edges"},
    {"neighbor_attention_vjp", "gradient of attention along edges"},
    {"rotary", "rotary position encoding"},
    {"unique", "distinct coordinates"},
    {"lookup", "coordinates found by value"},
    {"relate", "relation of coordinates"},
    {"neighbors", "neighbors"},
};
static_assert(std::size(kWords) == static_cast<size_t>(Operation::neighbors) + 1);

int64_t rows_of(const mx::array& a) { return a.ndim() ? a.shape(0) : 1; }

double count(int64_t n) { return static_cast<double>(n); }

double input_bytes(const Call& call) {
  double sum = 0;
  for (const mx::array& a : call.inputs) sum += static_cast<double>(a.nbytes());
  return sum;
}

}  // namespace

const char* name(Operation operation) { return kWords[static_cast<size_t>(operation)].name; }

std::optional<Operation> parse_operation(std::string_view name) {
  for (size_t i = 0; i < std::size(kWords); ++i)
    if (name == kWords[i].name) return static_cast<Operation>(i);
  return std::nullopt;
}

const char* name(ReduceMode mode) {
  static constexpr const char* kNames[] = {"sum",          "mean",      "max",      "min",
                                           "mean_adjoint", "max_match", "tie_share"};
  return kNames[static_cast<size_t>(mode)];
}

const char* name(Distance metric) {
  static constexpr const char* kNames[] = {"euclidean", "squared_euclidean", "cosine"};
  return kNames[static_cast<size_t>(metric)];
}

cpu::FloatType float_type_of(mx::Dtype dtype) {
  return dtype == mx::float32   ? cpu::FloatType::f32
         : dtype == mx::float16 ? cpu::FloatType::f16
                                : cpu::FloatType::bf16;
}

std::string Packing::text() const {
  if (!bits) return "dense";
  return "packed int" + std::to_string(bits) + ", one scale per " + std::to_string(group_size) +
         " codes";
}

mx::Device Call::device() const { return on_gpu(stream) ? mx::Device::gpu : mx::Device::cpu; }

int64_t Call::n_in() const {
  if (map) return map->n_in();
  return relation ? relation->n_in() : rows_of(inputs[0]);
}

int64_t Call::n_out() const {
  if (map) return map->n_out();
  if (relation) return relation->n_out();
  switch (operation) {
    case Operation::segments:
    case Operation::argmax:
      return row_groups->n_groups();
    case Operation::gather:
      return row_groups->n_rows();
    case Operation::sum_rows:
      return 1;
    case Operation::unique:
    case Operation::lookup:
    case Operation::relate:
    case Operation::neighbors:
      return inputs.back().shape(0);
    default:
      return rows_of(inputs[0]);
  }
}

bool Call::is_n_out_known() const {
  return operation != Operation::unique &&
         !(operation == Operation::relate && !geometry().has_target);
}

int64_t Call::n_edges() const {
  if (map) return map->n_entries();
  if (relation) return relation->edge_count();
  if (row_groups) return row_groups->n_rows();
  if (std::holds_alternative<Geometry>(payload)) return 0;  // nobody knows yet
  if (const auto* a = std::get_if<Attend>(&payload)) return a->segments->n_pairs();
  if (const auto* a = std::get_if<AttendEdges>(&payload)) return a->edges->n_edges();
  if (std::holds_alternative<Pairs>(payload))
    return int64_t{inputs[0].shape(0)} * inputs[1].shape(0);
  return rows_of(inputs[0]);
}

double Call::flop() const {
  switch (operation) {
    case Operation::gather:
    case Operation::join_columns:
    case Operation::take_columns:
      return 0;
    case Operation::pool:
    case Operation::segments:
    case Operation::argmax:
    case Operation::map_rows:
    case Operation::sum_rows:
      return count(n_edges() * c_in);
    case Operation::batch_norm:
    case Operation::batch_norm_vjp:
    case Operation::row_norm:
    case Operation::row_norm_vjp:
      return 4 * count(n_edges() * c_in);
    case Operation::gelu:
      return 30 * count(static_cast<int64_t>(inputs[0].size()));
    case Operation::adamw:
      return 10 * count(static_cast<int64_t>(inputs[0].size()));
    case Operation::distance_vjp:
      return 5 * count(n_edges()) * count(c_in);
    case Operation::rotary:
      return 3 * count(n_edges() * c_in);
    case Operation::attention:  // two products
    case Operation::neighbor_attention:
      return 4 * count(n_edges()) * count(c_in);
    case Operation::attention_vjp:  // five products
    case Operation::neighbor_attention_vjp:
      return 10 * count(n_edges()) * count(c_in);
    default:
      return 2 * count(n_edges()) * count(c_in) * count(c_out) / count(groups);
  }
}

double Call::bytes() const {
  const double item = static_cast<double>(mx::size_of(dtype));
  const double features = count(n_in() * c_in + n_out() * c_out) * item;
  switch (operation) {
    case Operation::conv:
    case Operation::linear:
      if (packing().bits) {
        const size_t packed = inputs[1].nbytes() + inputs[2].nbytes() + inputs[3].nbytes();
        return features + static_cast<double>(packed);
      }
      [[fallthrough]];
    case Operation::outer:
    case Operation::per_edge_apply:
    case Operation::per_edge_outer:
      return features + count(relation->n_kernels() * (c_in / groups) * c_out) * item;
    case Operation::distance:
      return input_bytes(*this) + 4.0 * count(n_edges());
    case Operation::distance_vjp:
      return input_bytes(*this) + static_cast<double>(inputs[0].nbytes() + inputs[1].nbytes());
    case Operation::attention:
    case Operation::neighbor_attention:
      return input_bytes(*this) + static_cast<double>(inputs[0].nbytes());
    case Operation::attention_vjp:
    case Operation::neighbor_attention_vjp:
      return 2 * input_bytes(*this);
    case Operation::adamw:
      return input_bytes(*this) + 12.0 * static_cast<double>(inputs[0].size());
    case Operation::unique:
    case Operation::lookup:
    case Operation::relate:
    case Operation::neighbors:
      return input_bytes(*this);
    default:
      return features;
  }
}

const char* Call::family() const { return kWords[static_cast<size_t>(operation)].family; }

std::string Call::relation_text() const {
  if (relation) return relation->text();
  if (map) return map->text();
  if (row_groups) return std::to_string(row_groups->n_groups()) + " groups of rows";
  if (std::holds_alternative<Pairs>(payload)) return "none: all pairs";
  if (const auto* a = std::get_if<Attend>(&payload)) return a->segments->text();
  if (const auto* a = std::get_if<AttendEdges>(&payload))
    return std::to_string(a->edges->n_edges()) + " edges to " +
           std::to_string(a->edges->n_queries) + " queries";
  if (operation == Operation::relate)
    return std::string("to be built: ") + kind_name(geometry().kind) + ", " +
           geometry().spec.text();
  if (operation == Operation::neighbors) return "to be built: neighbors";
  if (std::holds_alternative<Geometry>(payload)) return "none: rows are compared by value";
  return "none: every row with itself";
}

std::string Call::storage_text() const {
  if (const auto* r = std::get_if<Reduce>(&payload))
    return std::string("features only") +
           (operation == Operation::gather ? "" : std::string(", mode ") + name(r->mode));
  if (const auto* p = std::get_if<Pairs>(&payload))
    return std::string("features only, mode ") + name(p->metric);
  if (std::holds_alternative<Geometry>(payload)) return "coordinates, which exist";
  if (operation == Operation::conv || operation == Operation::linear) return packing().text();
  if (operation == Operation::adamw) return "parameters and their moments";
  return relation && !map ? "dense" : "features only";
}

std::string Call::shape_and_dtype_text() const {
  if (std::holds_alternative<Geometry>(payload))
    return "rows of 4, " + graph::dtype_name(inputs[0].dtype());
  if (operation == Operation::adamw)
    return std::to_string(inputs[0].size()) + " values, " + graph::dtype_name(dtype);
  return std::to_string(c_in) + " -> " + std::to_string(c_out) + " channels" +
         (groups > 1 ? " in " + std::to_string(groups) + " groups" : "") + ", " +
         graph::dtype_name(dtype);
}

}  // namespace lattice
