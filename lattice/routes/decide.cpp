#include "lattice/routes/decide.h"

#include <algorithm>
#include <mutex>
#include <sstream>
#include <stdexcept>

#include "lattice/core/errors.h"
#include "lattice/kernels/cpu/base/simd.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/products.h"

namespace lattice::routes {
namespace {

std::string scaled(double value, const char* unit) {
  static constexpr const char* kPrefixes[] = {"", "k", "M", "G", "T", "P"};
  int prefix = 0;
  while (value >= 1000 && prefix < 5) value /= 1000, ++prefix;
  std::ostringstream out;
  out.precision(3);
  out << value << " " << kPrefixes[prefix] << unit;
  return out.str();
}

std::string work_text(const Facts& facts) {
  std::string rows = std::to_string(facts.n_in);
  if (facts.n_out) rows += " -> " + std::to_string(*facts.n_out);
  if (!facts.n_edges)
    return rows + " rows, " + scaled(facts.bytes, "B") + "; the values decide what is found";
  return rows + " rows, " + std::to_string(*facts.n_edges) + " edges, " +
         scaled(facts.flop, "FLOP") + ", " + scaled(facts.bytes, "B");
}

}  // namespace

std::string channels_text(int64_t c_in, int64_t c_out, int64_t groups) {
  return std::to_string(c_in) + " -> " + std::to_string(c_out) + " channels" +
         (groups > 1 ? " in " + std::to_string(groups) + " groups" : "");
}

Rejection Frame::refusal(const Route& row) const {
  if (row.device != device)
    return {Step::device,
            row.device == kGpu ? "the call is not on a GPU" : "the call is not on the CPU"};
  if (rows_alone && !row.row_independent)
    return {Step::relation, "its bits depend on the rows beside a row, and this run is tiled"};
  return {};
}

void fail_to_choose(const Frame& frame, const Decision& decision) {
  const std::string& operation = decision.table->operation;
  std::string known;
  for (const Route* row : decision.table->routes) known += " " + row->name;
  if (!frame.forced) throw std::runtime_error("[" + operation + "] no route fits; known:" + known);
  if (decision.rejected.empty())
    fail("LATTICE_ROUTE", operation + " has no route \"" + *frame.forced + "\"; known:" + known);
  const Rejection& why = decision.rejected.front().second;
  fail("LATTICE_ROUTE",
       operation + "=" + *frame.forced + " does not fit: " + name(why.step) + ": " + why.text);
}

int64_t launches_so_far() { return graph::gpu_launches(); }

bool rounds_to_tf32() { return mlx_products() == Products::tf32; }

std::string tf32_note() {
  return "MLX rounds float32 operands to TF32 (an error of about 2^-11 per operand); "
         "MLX_ENABLE_TF32=0 keeps float32";
}

std::string Decision::text() const {
  std::ostringstream out;
  const auto line = [&](const char* step, const std::string& value) {
    out << "  " << step << std::string(16 - std::min<size_t>(15, std::string(step).size()), ' ')
        << value << "\n";
  };
  out << table->operation << " -> " << chosen->name << (forced ? " (forced by LATTICE_ROUTE)" : "")
      << "\n";
  const bool on_gpu = chosen->device == kGpu;  // the default device may be another by now
  line("device", on_gpu ? "gpu" : "cpu");
  line("family", table->family);
  line("relation", facts.relation);
  line("storage", facts.storage);
  line("shape and dtype", facts.shape);
  line("capability", !on_gpu ? cpu::simd_name()
                     : has_metal()
                         ? std::string("Metal, tensor API: ") + lattice::name(tensor_ops())
                     : has_cuda() ? "CUDA, tensor cores for 16-bit types"
                                  : "no GPU");
  line("work", work_text(facts));
  line("chosen", chosen->name + ": " + chosen->predicate);
  if (rows_alone) line("tiled run", "each row has the bits of the whole run");
  if (!note.empty()) line("note", note);
  if (launches || views)
    line("launched", std::to_string(launches) + (launches == 1 ? " kernel, " : " kernels, ") +
                         (views ? scaled(static_cast<double>(views), "B") + " of views were built"
                                : std::string("no view was built")));
  if (probed) line("probe", "a small case ran here and agreed with the CPU");
  for (const auto& [row, why] : rejected)
    line("rejected", row->name + ": " + name(why.step) + ": " + why.text);
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

bool is_logged() { return !open_logs().empty(); }

void log(const Decision& decision) {
  std::erase_if(open_logs(), [&](const auto& log) {
    std::lock_guard lock(log->mutex);
    if (log->open) log->decisions.push_back(decision);
    return !log->open;
  });
}

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

}  // namespace lattice::routes
