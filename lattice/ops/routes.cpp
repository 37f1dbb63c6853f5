#include "lattice/ops/routes.h"

#include <mlx/device.h>
#include <mlx/stream.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "lattice/graph/dtype.h"
#include "lattice/graph/metal_call.h"
#include "lattice/ops/backend.h"
#include "lattice/ops/conv_routes.h"
#include "lattice/ops/distance_routes.h"
#include "lattice/ops/geometry_routes.h"
#include "lattice/ops/map_routes.h"
#include "lattice/ops/pool_routes.h"
#include "lattice/ops/row_groups.h"
#include "lattice/ops/triplets_routes.h"

namespace lattice {
namespace {

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// "conv=cpu.reference, outer=cpu.tiles" -> the name for this operation, if any.
std::optional<std::string> forced_route(const std::string& operation) {
  const char* text = std::getenv("LATTICE_ROUTE");
  if (!text) return std::nullopt;
  std::stringstream list{std::string(text)};
  for (std::string item; std::getline(list, item, ',');) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos)
      throw std::invalid_argument("[LATTICE_ROUTE] expected \"operation=route,...\", got \"" +
                                  item + "\"");
    const std::string key = trimmed(item.substr(0, equals));
    if (key == operation) return trimmed(item.substr(equals + 1));
    if (std::ranges::none_of(routes(), [&](const Route& r) { return r.operation == key; }))
      throw std::invalid_argument("[LATTICE_ROUTE] there is no operation \"" + key + "\"");
  }
  return std::nullopt;
}

std::string scaled(double value, const char* unit) {
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  int prefix = 0;
  while (value >= 1000 && prefix < 5) value /= 1000, ++prefix;
  std::ostringstream out;
  out.precision(3);
  out << value << " " << kPrefixes[prefix] << unit;
  return out.str();
}

}  // namespace

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

const char* name(Rejection::Step step) {
  static constexpr const char* kNames[] = {"device",  "family",          "relation",
                                           "storage", "shape and dtype", "capability"};
  return kNames[static_cast<int>(step)];
}

Rejection needs_metal(const Call&) {
  if (tensor_ops() == TensorOps::unavailable)
    return {Rejection::Step::capability, "MLX has no Metal here"};
  return {};
}

std::span<const Route> routes() {
  static const std::vector<Route> table = [] {
    std::vector<Route> rows;
    add_conv_routes(rows);
    add_pool_routes(rows);
    add_map_routes(rows);
    add_triplets_routes(rows);
    add_geometry_routes(rows);
    add_distance_routes(rows);
    return rows;
  }();
  return table;
}

Decision decide(const Call& call) {
  Decision decision{call, nullptr, false, {}};
  const std::optional<std::string> forced = forced_route(call.operation);
  decision.forced = forced.has_value();
  const auto device = call.device().type;
  std::string known;
  for (const Route& route : routes()) {
    if (route.operation != call.operation) continue;
    known += " " + route.name;
    if (forced && route.name != *forced) continue;
    Rejection why;
    if (route.device != device)
      why = {Rejection::Step::device, route.device == mx::Device::gpu
                                          ? "the call is not on a GPU"
                                          : "the call is not on the CPU"};
    else
      why = route.check(call);
    if (why.fits()) {
      decision.chosen = &route;
      return decision;
    }
    decision.rejected.emplace_back(&route, why);
  }
  if (!forced) throw std::runtime_error("[" + call.operation + "] no route fits; known:" + known);
  if (decision.rejected.empty())
    throw std::invalid_argument("[LATTICE_ROUTE] " + call.operation + " has no route \"" + *forced +
                                "\"; known:" + known);
  const Rejection& why = decision.rejected.front().second;
  throw std::invalid_argument("[LATTICE_ROUTE] " + call.operation + "=" + *forced +
                              " does not fit: " + name(why.step) + ": " + why.text);
}

std::string Decision::text() const {
  std::ostringstream out;
  const auto line = [&](const char* step, const std::string& value) {
    out << "  " << step << std::string(16 - std::min<size_t>(15, std::string(step).size()), ' ')
        << value << "\n";
  };
  out << call.operation << " -> " << chosen->name << (forced ? " (forced by LATTICE_ROUTE)" : "")
      << "\n";
  const bool on_gpu =
      chosen->device == mx::Device::gpu;  // the default device may be another by now
  line("device", on_gpu ? "gpu" : "cpu");
  line("family", call.family());
  line("relation", call.relation ? call.relation->text()
                   : call.map    ? call.map->text()
                   : call.groups_of_rows
                       ? std::to_string(call.groups_of_rows->n_groups()) + " groups of rows"
                   : call.operation == "distance" ? "none: all pairs"
                                                  : "none: every row with itself");
  line("storage", call.geometry ? "coordinates, which exist"
                  : call.is_reduction() || call.operation == "distance"
                      ? "features only" + (call.mode.empty() ? "" : ", mode " + call.mode)
                      : call.storage);
  line("shape and dtype",
       call.geometry
           ? "rows of 4, " + graph::dtype_name(call.inputs[0].dtype())
           : std::to_string(call.c_in) + " -> " + std::to_string(call.c_out) + " channels" +
                 (call.groups > 1 ? " in " + std::to_string(call.groups) + " groups" : "") + ", " +
                 graph::dtype_name(call.dtype));
  const BackendInfo machine = backend_info();
  line("capability",
       on_gpu ? std::string("matrix units: ") + name(machine.tensor_ops) : machine.simd);
  line("work", std::to_string(call.n_in()) + " -> " + std::to_string(call.n_out()) + " rows, " +
                   std::to_string(call.n_edges()) + " edges, " + scaled(call.flop(), "FLOP") +
                   ", " + scaled(call.bytes(), "B"));
  line("chosen", chosen->name + ": " + chosen->predicate);
  for (const auto& [route, why] : rejected)
    line("rejected", route->name + ": " + name(why.step) + ": " + why.text);
  return out.str();
}

struct DecisionLog::State {
  std::mutex mutex;
  std::vector<Decision> decisions;
  bool open = true;
};

// The logs of this thread. One that ended on another thread is marked there and leaves here.
static auto& open_logs() {
  thread_local std::vector<std::shared_ptr<DecisionLog::State>> logs;
  return logs;
}

Decision choose(const Call& call) {
  Decision decision = decide(call);
  std::erase_if(open_logs(), [&](const auto& log) {
    std::lock_guard lock(log->mutex);
    if (log->open) log->decisions.push_back(decision);
    return !log->open;
  });
  return decision;
}

mx::array run(const Call& call) { return choose(call).chosen->launch(call); }

DecisionLog::DecisionLog() : state_(std::make_shared<State>()) { open_logs().push_back(state_); }

DecisionLog::~DecisionLog() {
  std::lock_guard lock(state_->mutex);
  state_->open = false;
  std::erase(open_logs(), state_);
}

std::vector<Decision> DecisionLog::decisions() const {
  std::lock_guard lock(state_->mutex);
  return state_->decisions;
}

namespace {
std::mutex counts_mutex;
std::map<std::pair<std::string, std::string>, int64_t>& counts() {
  static auto* map = new std::map<std::pair<std::string, std::string>, int64_t>;
  return *map;
}
}  // namespace

int64_t run_count(const std::string& operation, const std::string& route) {
  std::lock_guard lock(counts_mutex);
  const auto found = counts().find({operation, route});
  return found == counts().end() ? 0 : found->second;
}

void count_run(const std::string& operation, const std::string& route) {
  std::lock_guard lock(counts_mutex);
  ++counts()[{operation, route}];
}

}  // namespace lattice
