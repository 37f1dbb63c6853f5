#include "lattice/core/coordinate_set.h"

#include <atomic>
#include <limits>
#include <mutex>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/geometry/keys.h"

namespace lattice {
struct CoordinateSet::State {
  mx::array given;
  mx::array values;  // given, evaluated, contiguous, and in memory that nobody else writes
  cpu::Box box;
  std::once_flag once;
  std::shared_ptr<const cpu::CoordIndex> index;
  std::atomic<bool> indexed{false};
  std::mutex python_mutex;
  std::shared_ptr<mx::array> python_array;

  State(mx::array g, mx::array v) : given(std::move(g)), values(std::move(v)) {}
  cpu::CoordSpan span() const {
    return {values.size() ? values.data<void>() : nullptr, values.shape(0),
            values.dtype() == mx::int64};
  }
};

CoordinateSet::CoordinateSet(mx::array coords, std::string_view operation, std::string_view what) {
  const std::string head = std::string(what) + " must ";
  if (coords.ndim() != 2 || coords.shape(1) != 4)
    fail(operation, head + "have shape (N, 4), got " + shape_text(coords.shape()) +
                        (coords.ndim() == 2 && coords.shape(1) == 3
                             ? "; rows are (batch, x, y, z), and ops.sparse_collate adds the batch"
                             : "; rows are (batch, x, y, z)"));
  if (coords.dtype() != mx::int32 && coords.dtype() != mx::int64)
    fail(operation,
         head + "be int32 or int64, got " + graph::dtype_name(coords.dtype()) +
             "; coordinates come first and features second, and ops.voxelize makes coordinates of "
             "points");
  mx::array values = private_copy(evaluated(coords, operation, what));
  state_ = std::make_shared<State>(std::move(coords), std::move(values));
  state_->box = cpu::bounding_box(state_->span());
  if (!state_->box.empty() && state_->box.lo[0] < 0)
    fail(operation, head + "have batch >= 0, got batch " + cpu::to_string(state_->box.lo[0]));
}

const mx::array& CoordinateSet::array() const { return state_->given; }
std::shared_ptr<mx::array> CoordinateSet::python_array() const {
  std::lock_guard lock(state_->python_mutex);
  if (!state_->python_array || state_->python_array->id() != state_->given.id())
    state_->python_array = std::make_shared<mx::array>(state_->given);
  return state_->python_array;
}
int64_t CoordinateSet::rows() const { return state_->values.shape(0); }
cpu::CoordSpan CoordinateSet::span() const { return state_->span(); }
const cpu::Box& CoordinateSet::box() const { return state_->box; }

const std::shared_ptr<const cpu::CoordIndex>& CoordinateSet::index() const {
  std::call_once(state_->once, [&] {
    state_->index =
        std::make_shared<const cpu::CoordIndex>(cpu::index_coords(state_->span(), state_->box));
    state_->indexed.store(true, std::memory_order_release);
  });
  return state_->index;
}

const std::shared_ptr<const cpu::CoordIndex>& CoordinateSet::unique_index(
    std::string_view operation) const {
  const auto& found = index();
  if (found->duplicate >= 0) {
    const int32_t first = found->order()[found->duplicate];
    const int32_t second = found->order()[found->duplicate + 1];
    fail(operation, "coords must be free of duplicates, but rows " + std::to_string(first) +
                        " and " + std::to_string(second) + " are both " +
                        cpu::to_string(span().row(first)) +
                        "; merge them with sparse_from_coordinates(..., duplicate_reduction=)");
  }
  return found;
}

bool CoordinateSet::is_unique() const { return index()->duplicate < 0; }

size_t CoordinateSet::nbytes() const {
  return state_->values.nbytes() +
         (state_->indexed.load(std::memory_order_acquire) ? state_->index->nbytes() : 0);
}

void check_same_dtype(const CoordinateSet& a, const CoordinateSet& b, std::string_view operation,
                      std::string_view names) {
  if (a.dtype() != b.dtype())
    fail(operation, std::string(names) + " must have equal dtypes, got " +
                        graph::dtype_name(a.dtype()) + " and " + graph::dtype_name(b.dtype()));
}

}  // namespace lattice
