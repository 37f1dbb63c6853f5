// The rows of a tensor by batch item.
#pragma once

#include <optional>
#include <string>

#include "lattice/core/row_groups.h"
#include "lattice/core/sparse_tensor.h"

namespace lattice {

// How many items x has: batch_counts, else `batch_size`, else the largest batch + 1.
int64_t batch_items(const std::string& operation, const SparseTensor& x,
                    const std::optional<int64_t>& batch_size = std::nullopt);
// Each row in the group of its item.
RowGroups::Ptr batch_groups(const SparseTensor& x, int64_t n_items);

}  // namespace lattice
