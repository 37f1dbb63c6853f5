#include "lattice/routes/decide.h"

#include <mlx/device.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/base/simd.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/probe.h"

namespace lattice {
namespace {

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// "conv=cpu.reference, outer=cpu.tiles" -> the name for this operation, if any.
std::optional<std::string> forced_route(Operation operation) {
  const char* text = std::getenv("LATTICE_ROUTE");
  if (!text) return std::nullopt;
  std::stringstream list{std::string(text)};
  for (std::string item; std::getline(list, item, ',');) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos)
      fail("LATTICE_ROUTE", "expected \"operation=route,...\", got \"" + item + "\"");
    const std::string key = trimmed(item.substr(0, equals));
    const std::optional<Operation> named = parse_operation(key);
    if (named == operation) return trimmed(item.substr(equals + 1));
    if (!named) fail("LATTICE_ROUTE", "there is no operation \"" + key + "\"");
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

Decision decide(const Call& call) {
  Decision decision{call, nullptr, false, {}};
  const std::optional<std::string> forced = forced_route(call.operation);
  decision.forced = forced.has_value();
  const auto device = call.device().type;
  for (const Route& route : routes()) {
    if (call.operation != route.operation) continue;
    if (forced && route.name != *forced) continue;
    Rejection why;
    if (route.device != device)
      why = {Rejection::Step::device, route.device == mx::Device::gpu
                                          ? "the call is not on a GPU"
                                          : "the call is not on the CPU"};
    else if (why = route.refusal(call); why.fits())
      why = passes_probe(route, call);
    if (why.fits()) {
      decision.chosen = &route;
      return decision;
    }
    decision.rejected.emplace_back(&route, why);
  }
  std::string known;
  for (const Route& route : routes())
    if (route.operation == call.operation) known += " " + route.name;
  if (!forced)
    throw std::runtime_error("[" + std::string(name(call.operation)) +
                             "] no route fits; known:" + known);
  if (decision.rejected.empty())
    fail("LATTICE_ROUTE",
         std::string(name(call.operation)) + " has no route \"" + *forced + "\"; known:" + known);
  const Rejection& why = decision.rejected.front().second;
  fail("LATTICE_ROUTE", std::string(name(call.operation)) + "=" + *forced +
                            " does not fit: " + name(why.step) + ": " + why.text);
}

static std::string work_text(const Call& call) {
  std::string rows = std::to_string(call.n_in());
  if (call.is_n_out_known()) rows += " -> " + std::to_string(call.n_out());
  if (std::holds_alternative<Geometry>(call.payload))
    return rows + " rows, " + scaled(call.bytes(), "B") + "; the values decide what is found";
  return rows + " rows, " + std::to_string(call.n_edges()) + " edges, " +
         scaled(call.flop(), "FLOP") + ", " + scaled(call.bytes(), "B");
}

std::string Decision::text() const {
  std::ostringstream out;
  const auto line = [&](const char* step, const std::string& value) {
    out << "  " << step << std::string(16 - std::min<size_t>(15, std::string(step).size()), ' ')
        << value << "\n";
  };
  out << name(call.operation) << " -> " << chosen->name
      << (forced ? " (forced by LATTICE_ROUTE)" : "") << "\n";
  const bool on_gpu =
      chosen->device == mx::Device::gpu;  // the default device may be another by now
  line("device", on_gpu ? "gpu" : "cpu");
  line("family", call.family());
  line("relation", call.relation_text());
  line("storage", call.storage_text());
  line("shape and dtype", call.shape_and_dtype_text());
  line("capability", !on_gpu       ? cpu::simd_name()
                     : has_metal() ? std::string("Metal, tensor API: ") + name(tensor_ops())
                     : has_cuda()  ? "CUDA, tensor cores for 16-bit types"
                                   : "no GPU");
  line("work", work_text(call));
  line("chosen", std::string(chosen->name) + ": " + chosen->predicate);
  if (const std::string note = chosen->note ? chosen->note(call) : ""; !note.empty())
    line("note", note);
  if (const auto probe = probe_of(*chosen, call))
    line("probe", "a small case ran here and agreed with the CPU");
  for (const auto& [route, why] : rejected)
    line("rejected", std::string(route->name) + ": " + name(why.step) + ": " + why.text);
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

graph::Arrays run_all(const Call& call) {
  const Route& route = *choose(call).chosen;
  return route.launch(call, route);
}
mx::array run(const Call& call) { return run_all(call)[0]; }

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

int64_t run_count(const std::string& operation, const std::string& route) {
  int64_t count = 0;
  for (const Route& row : routes())
    if (name(row.operation) == operation && row.name == route) count += row.runs.n;
  return count;
}

}  // namespace lattice
