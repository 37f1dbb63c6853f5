// Sparse maps in two dimensions. Arguments only.
#include "lattice/ops/maps.h"

#include "arguments.h"
#include "bind.h"

using namespace lattice;
using namespace nb::literals;

void bind_maps(nb::module_& m) {
  def(m, "from_map", &from_map, "dense"_a, "stride"_a, Unlocked());
  def(
      m, "to_map",
      [](const SparseTensor& x, const std::optional<std::vector<int64_t>>& shape,
         const std::optional<int64_t>& batch_size, mx::StreamOrDevice s) {
        std::optional<std::array<int64_t, 2>> size;
        if (shape) {
          if (shape->size() != 2)
            throw std::invalid_argument("[to_map] shape must be (H, W), got " +
                                        std::to_string(shape->size()) + " numbers");
          size = {(*shape)[0], (*shape)[1]};
        }
        return to_map(x, size, batch_size, s);
      },
      "x"_a, "shape"_a, "batch_size"_a, "stream"_a, Unlocked());
  def(m, "sum_over", &sum_over, "x"_a, "axis"_a, "stream"_a, Unlocked());
  def(m, "merge_levels", &merge_levels, "levels"_a, Unlocked());
}
