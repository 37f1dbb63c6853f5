#include "lattice/kernels/cpu/coords.h"

#include <cstring>

namespace lattice::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;

// Exclusive ranks of the set flags: rank[r] = number of set flags before r. Returns their total.
int64_t ranks(std::span<const uint8_t> flags, Buffer<int32_t>& rank) {
  int32_t total = 0;
  for (size_t r = 0; r < flags.size(); ++r) {
    rank[static_cast<int64_t>(r)] = total;
    total += flags[r] != 0;
  }
  return total;
}

// Walks both sorted sets once: match(query position, index position) for each query, -1 where there is none.
template <typename Key, typename Match>
void merge_equal(const Key* keys, int64_t n, const Key* queries, int64_t n_queries, const Match& match) {
  const int64_t pieces = (n_queries + kGrain - 1) / kGrain;
  parallel_for(pieces, [&](int64_t piece) {
    const int64_t begin = piece * kGrain;
    const int64_t end = std::min(n_queries, begin + kGrain);
    int64_t j = std::lower_bound(keys, keys + n, queries[begin]) - keys;
    for (int64_t i = begin; i < end; ++i) {
      while (j < n && keys[j] < queries[i]) ++j;
      match(i, j < n && keys[j] == queries[i] ? j : -1);
    }
  });
}

}  // namespace

Distinct distinct_rows(const CoordIndex& index) {
  return std::visit(
      [&](const auto& s) {
        Buffer<uint8_t> is_first(s.n);
        parallel_range(s.n, kGrain, [&](int64_t begin, int64_t end) {
          for (int64_t p = begin; p < end; ++p) is_first[s.order[p]] = p == 0 || !(s.keys[p] == s.keys[p - 1]);
        });
        Buffer<int32_t> rank(s.n);
        const int64_t count = ranks(is_first.span(), rank);
        Distinct out{rows_where(is_first.span()), Buffer<int32_t>(s.n), Buffer<int32_t>(count)};
        int32_t current = -1;
        int64_t position = 0;
        for (int64_t p = 0; p < s.n; ++p) {
          if (is_first[s.order[p]]) {
            current = rank[s.order[p]];
            out.sorted[position++] = current;
          }
          out.inverse[s.order[p]] = current;
        }
        return out;
      },
      index.sorted);
}

Buffer<int32_t> lookup(const CoordIndex& index, const CoordIndex& queries) {
  Buffer<int32_t> found(queries.rows());
  const Buffer<int32_t>& rows = index.order();
  const Buffer<int32_t>& query_rows = queries.order();
  const auto walk = [&](const auto& space) {
    const auto keys = rekey(index, space);
    const auto query_keys = rekey(queries, space);
    merge_equal(keys.data(), index.rows(), query_keys.data(), queries.rows(),
                [&](int64_t q, int64_t p) { found[query_rows[q]] = p < 0 ? -1 : rows[p]; });
  };
  const Box both = index.box.joined(queries.box);
  if (const auto space = PackedSpace::plan(both))
    walk(*space);
  else
    walk(WideSpace::plan(both));
  return found;
}

void floor_coords(const CoordSpan& coords, const Triple& stride, void* out) {
  coords.visit([&]<typename T>(const T* c) {
    T* to = static_cast<T*>(out);
    parallel_range(coords.rows, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * 4; i < end * 4; i += 4) {
        to[i] = c[i];
        for (int64_t a = 1; a < 4; ++a)
          to[i + a] = static_cast<T>(floor_div<int64_t>(c[i + a], stride[static_cast<size_t>(a - 1)]));
      }
    });
  });
}

void take_rows(const CoordSpan& coords, std::span<const int32_t> rows, void* out) {
  coords.visit([&]<typename T>(const T* c) {
    T* to = static_cast<T*>(out);
    parallel_range(static_cast<int64_t>(rows.size()), kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        std::memcpy(to + i * 4, c + int64_t{rows[static_cast<size_t>(i)]} * 4, 4 * sizeof(T));
    });
  });
}

Buffer<int32_t> rows_where(std::span<const uint8_t> keep) {
  int64_t count = 0;
  for (uint8_t flag : keep) count += flag != 0;
  Buffer<int32_t> rows(count);
  int64_t at = 0;
  for (size_t r = 0; r < keep.size(); ++r)
    if (keep[r]) rows[at++] = static_cast<int32_t>(r);
  return rows;
}

Alignment align(const CoordIndex& lhs, const CoordIndex& rhs, Join join) {
  if (join == Join::right) {
    Alignment swapped = align(rhs, lhs, Join::left);
    return {std::move(swapped.rhs), std::move(swapped.lhs)};
  }
  Buffer<int32_t> partner = lookup(rhs, lhs);  // lhs row -> rhs row
  const int64_t n = partner.size();
  if (join == Join::inner) {
    Buffer<uint8_t> matched(n);
    for (int64_t r = 0; r < n; ++r) matched[r] = partner[r] >= 0;
    Alignment out{rows_where(matched.span()), {}};
    out.rhs = Buffer<int32_t>(out.lhs.size());
    for (int64_t i = 0; i < out.lhs.size(); ++i) out.rhs[i] = partner[out.lhs[i]];
    return out;
  }
  Buffer<int32_t> extra;
  if (join == Join::outer) {
    Buffer<uint8_t> alone(rhs.rows());
    std::fill(alone.begin(), alone.end(), uint8_t{1});
    for (int32_t row : partner)
      if (row >= 0) alone[row] = 0;
    extra = rows_where(alone.span());
  }
  Alignment out{Buffer<int32_t>(n + extra.size()), Buffer<int32_t>(n + extra.size())};
  for (int64_t r = 0; r < n; ++r) out.lhs[r] = static_cast<int32_t>(r), out.rhs[r] = partner[r];
  for (int64_t e = 0; e < extra.size(); ++e) out.lhs[n + e] = -1, out.rhs[n + e] = extra[e];
  return out;
}

}  // namespace lattice::cpu
