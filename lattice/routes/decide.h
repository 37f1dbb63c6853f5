// Decides which row of a table answers a question. run() decides, writes the decision into the open
// logs, and runs the row.
#pragma once

#include <mlx/dtype.h>
#include <mlx/utils.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lattice/api.h"
#include "lattice/routes/probe.h"
#include "lattice/routes/route.h"

namespace lattice::routes {

// What explain() reports about a question. Asked::facts() makes it only while a log is open.
struct Facts {
  mx::Dtype dtype = mx::float32;
  int64_t n_in = 0;
  std::optional<int64_t> n_out = {};    // none: the values decide it
  std::optional<int64_t> n_edges = {};  // the same
  double flop = 0;
  double bytes = 0;                           // of what is read and written, each once
  std::string relation, storage, shape = {};  // one line each
};

// "16 -> 32 channels in 4 groups".
std::string channels_text(int64_t c_in, int64_t c_out, int64_t groups = 1);

struct LATTICE_API Decision {
  const AnyTable* table = nullptr;
  const Route* chosen = nullptr;
  bool forced = false;
  std::vector<std::pair<const Route*, Rejection>> rejected = {};
  Facts facts = {};
  std::string note = {};    // of the chosen row
  bool probed = false;      // a small case of the chosen row ran on this machine
  bool rows_alone = false;  // a tiled run asked
  int64_t launches = 0;     // of kernels of a GPU
  int64_t views = 0;        // bytes of index arrays that were built for it
  std::string text() const;
};

// What is known before the rows are tried: the device of the stream, and the name that
// LATTICE_ROUTE="operation=name,..." asks for. Throws std::invalid_argument for a wrong variable.
struct Frame {
  mx::Device::DeviceType device;
  std::optional<std::string> forced;
  bool rows_alone;  // core/row_independent.h
  Frame(const AnyTable& table, mx::StreamOrDevice s);
  bool considers(const Route& row) const { return !forced || row.name == *forced; }
  Rejection refusal(const Route& row) const;  // by the device, or because rows must stand alone
};

// Whether a log of this thread is open, and an entry for all of them.
bool is_logged();
void log(const Decision& decision);
// Throws: std::invalid_argument that says why the forced row does not fit.
[[noreturn]] void fail_to_choose(const Frame& frame, const Decision& decision);
// Whether MLX rounds float32 operands to TF32 on this machine, and the words for it.
bool rounds_to_tf32();
std::string tf32_note();

// Whether products of this row are TF32 on this machine.
template <class Asked, class Made>
bool is_tf32(const Row<Asked, Made>& row, const Asked& asked) {
  return row.multiplies_float32 && row.multiplies_float32(asked) && rounds_to_tf32();
}

// The decision for `chosen` in words; null: why no row fits.
template <class Asked, class Made>
Decision described(const Table<Asked, Made>& table, const Asked& asked, const Frame& frame,
                   const Row<Asked, Made>* chosen) {
  Decision decision{&table, chosen, frame.forced.has_value()};
  decision.rows_alone = frame.rows_alone;
  for (const Row<Asked, Made>& row : table.rows) {
    if (&row == chosen) break;
    if (!frame.considers(row)) continue;
    Rejection why = frame.refusal(row);
    if (why.fits()) why = row.refusal(asked);
    if (why.fits()) why = probe_refusal(row, asked);
    decision.rejected.emplace_back(&row, std::move(why));
  }
  if (!chosen) return decision;
  decision.facts = asked.facts();
  decision.note = chosen->note ? chosen->note(asked) : is_tf32(*chosen, asked) ? tf32_note() : "";
  decision.probed = was_probed(*chosen, asked);
  return decision;
}

// The first row that fits, or the one that LATTICE_ROUTE names; throws if that does not fit.
template <class Asked, class Made>
const Row<Asked, Made>& first_fit(const Table<Asked, Made>& table, const Asked& asked,
                                  const Frame& frame) {
  for (const Row<Asked, Made>& row : table.rows) {
    bool fits = frame.considers(row) && row.device == frame.device && has_backend(row.code) &&
                (row.row_independent || !frame.rows_alone);
    for (const Condition<Asked>& condition : row.fits) fits = fits && condition.holds(asked);
    if (fits && passes_probe(table, row, asked)) return row;
  }
  const Row<Asked, Made>* none = nullptr;
  fail_to_choose(frame, described(table, asked, frame, none));
}

// The decision that would be made, without an entry in a log.
template <class Asked, class Made>
Decision decide(const Table<Asked, Made>& table, const Asked& asked) {
  const Frame frame(table, asked.stream);
  return described(table, asked, frame, &first_fit(table, asked, frame));
}

// Kernels of a GPU that were launched so far.
LATTICE_API int64_t launches_so_far();

// Bytes of the views of the relation that is asked about, of both directions.
template <class Asked>
int64_t view_bytes(const Asked& asked) {
  if constexpr (requires { asked.relation->is_reversed(); }) {
    if (!asked.relation) return 0;
    const auto& r = *asked.relation;
    return static_cast<int64_t>(r.is_reversed() ? r.reversed()->nbytes() : r.nbytes());
  }
  return 0;
}

// The answer to a question. No text is made unless a log is open.
template <class Asked, class Made>
Made run(const Table<Asked, Made>& table, const Asked& asked) {
  const Frame frame(table, asked.stream);
  const Row<Asked, Made>& row = first_fit(table, asked, frame);
  if (!is_logged()) return row.run(asked, row);
  Decision decision = described(table, asked, frame, &row);
  const int64_t launches = launches_so_far(), views = view_bytes(asked);
  Made made = row.run(asked, row);
  decision.launches = launches_so_far() - launches;
  decision.views = view_bytes(asked) - views;
  log(decision);
  return made;
}

// While one lives, the decisions of the thread that made it are kept. Logs may end in any order and
// on any thread; each sees what happens during its life.
class LATTICE_API DecisionLog {
 public:
  DecisionLog();
  ~DecisionLog();
  DecisionLog(const DecisionLog&) = delete;
  std::vector<Decision> decisions() const;

  struct State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace lattice::routes
