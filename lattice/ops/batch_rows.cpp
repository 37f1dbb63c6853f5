#include "lattice/ops/batch_rows.h"

#include "lattice/core/errors.h"
#include "lattice/kernels/cpu/geometry/keys.h"

namespace lattice {

int64_t batch_items(const std::string& operation, const SparseTensor& x,
                    const std::optional<int64_t>& batch_size) {
  constexpr int64_t kMost = int64_t{1} << 24;
  const int64_t needed =
      x.batch_counts() ? static_cast<int64_t>(x.batch_counts()->size()) : x.batch_size();
  if (needed > kMost)
    fail(operation, "coords hold batch " + std::to_string(needed - 1) + ", expected at most " +
                        std::to_string(kMost - 1) + "; number the items 0, 1, 2, ...");
  const int64_t n = x.batch_counts() ? needed : batch_size.value_or(needed);
  if (n < needed || n < 0 || n > kMost)
    fail(operation, "batch_size must be " + std::to_string(needed) + ".." + std::to_string(kMost) +
                        ", got " + std::to_string(n));
  return n;
}

RowGroups::Ptr batch_groups(const SparseTensor& x, int64_t n_items) {
  cpu::Buffer<int32_t> batch(x.active_count());
  x.coordinate_set().span().visit([&](const auto* c) {
    for (int64_t r = 0; r < batch.size(); ++r) batch[r] = static_cast<int32_t>(c[r * 4]);
  });
  return RowGroups::create(std::move(batch), n_items);
}

}  // namespace lattice
