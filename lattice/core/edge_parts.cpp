#include "lattice/core/edge_parts.h"

namespace lattice {

EdgeParts make_edge_parts(const mx::array& row_offsets, int32_t length) {
  const int32_t* begin = row_offsets.data<int32_t>();
  const int32_t n_k = row_offsets.shape(0) - 1;
  bool direct = true;
  for (int32_t k = 0; k < n_k; ++k) direct = direct && begin[k + 1] - begin[k] <= length;
  std::vector<int32_t> table, offsets = {0};
  for (int32_t k = 0; k < n_k; ++k) {
    int32_t from = begin[k], end = begin[k + 1];
    do {  // an offset without edges writes zeros
      const int32_t to = end - from > length ? from + length : end;
      table.insert(table.end(), {k, from, to, direct ? k : static_cast<int32_t>(table.size() / 4)});
      from = to;
    } while (from < end);
    offsets.push_back(static_cast<int32_t>(table.size() / 4));
  }
  const auto column = [](const std::vector<int32_t>& values) {
    return new_array(values.data(), {static_cast<int>(values.size())}, mx::int32);
  };
  EdgeParts parts{column(table), column(offsets), {}, offsets.back(), direct};
  if (!direct) parts.pieces = cut_segments(parts.offsets);
  return parts;
}

}  // namespace lattice
