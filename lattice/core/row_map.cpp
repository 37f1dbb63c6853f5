#include "lattice/core/row_map.h"

#include "lattice/core/arrays.h"
#include "lattice/kernels/cpu/base/chunks.h"
#include "lattice/kernels/cpu/geometry/points.h"

namespace lattice {

using cpu::Buffer;

RowMap::Ptr RowMap::make(Parts parts) { return Ptr(new RowMap(std::move(parts))); }

const std::vector<SegmentPieces>& RowMap::pieces() const {
  std::call_once(pieces_once_, [&] { pieces_ = cut_segments(*parts_.offsets); });
  return pieces_;
}

mx::array RowMap::entry_rows() const {
  Buffer<int32_t> out(n_entries());
  cpu::each_piece(n_out(), [&](size_t, int64_t begin, int64_t end) {
    for (int64_t o = begin; o < end; ++o) {
      const int64_t from = offsets() ? offsets()[o] : o, to = offsets() ? offsets()[o + 1] : o + 1;
      std::fill(out.begin() + from, out.begin() + to, static_cast<int32_t>(o));
    }
  });
  return adopt(std::move(out));
}

RowMap::Ptr RowMap::with(Reduction reduction) const {
  Parts parts = parts_;
  parts.reduction = reduction;
  return make(std::move(parts));
}

RowMap::Ptr RowMap::make_transposed() const {
  cpu::Groups groups = cpu::group_entries({rows(), static_cast<size_t>(n_entries())}, n_in());
  const mx::array owners = entry_rows();
  const int32_t* owner = data<int32_t>(owners);
  const bool weighted = weights() || reduction() == Reduction::mean;
  Buffer<float> scale(weighted ? groups.rows.size() : 0);
  cpu::each_piece(groups.rows.size(), [&](size_t, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int32_t e = groups.rows[p], o = owner[e];
      if (weighted) {
        scale[p] = weights() ? weights()[e] : 1.0f;
        if (reduction() == Reduction::mean && offsets())
          scale[p] /= static_cast<float>(offsets()[o + 1] - offsets()[o]);
      }
      groups.rows[p] = o;
    }
  });
  const int n = static_cast<int>(groups.rows.size()), n_rows = static_cast<int>(n_in()) + 1;
  Parts parts{n_out(),
              n_in(),
              adopt(std::move(groups.rows), {n}),
              adopt(std::move(groups.offsets), {n_rows}),
              std::nullopt,
              Reduction::sum};
  if (weighted) parts.weights = adopt(std::move(scale), {n});
  return make(std::move(parts));
}

RowMap::Ptr RowMap::transposed() const {
  if (Ptr source = source_.lock()) return source;
  std::call_once(once_, [&] {
    Ptr made = make_transposed();
    made->source_ = weak_from_this();
    transposed_ = std::move(made);
  });
  return transposed_;
}

std::string RowMap::text() const {
  static constexpr const char* kNames[] = {"sum", "mean", "max"};
  return std::string(kNames[static_cast<int>(reduction())]) + " of rows, " +
         std::to_string(n_in()) + " -> " + std::to_string(n_out()) + " rows, " +
         std::to_string(n_entries()) + " entries" + (weights() ? ", weighted" : "");
}

}  // namespace lattice
