#include "lattice/kernels/cpu/geometry/coords.h"

#include <cstring>
#include <vector>

#include "lattice/kernels/cpu/base/chunks.h"

namespace lattice::cpu {
namespace {

// Walks both sorted sets once: match(query position, index position) for each query, -1 where there
// is none. The pointer moves by up to two without a branch, as in merge.h.
template <typename Key, typename Match>
void merge_equal(const Key* keys, int64_t n, const Key* queries, int64_t n_queries,
                 const Match& match) {
  each_piece(n_queries, [&](size_t, int64_t begin, int64_t end) {
    int64_t j = std::lower_bound(keys, keys + n, queries[begin]) - keys;
    for (int64_t i = begin; i < end; ++i) {
      const Key query = queries[i];
      j += keys[j] < query;  // stops at the padding
      j += keys[j] < query;
      while (keys[j] < query) ++j;
      match(i, keys[j] == query ? j : -1);
    }
  });
}

// Keys of the index in `space`; its own keys if they already belong to that space.
template <typename Space, typename F>
void with_keys_in(const CoordIndex& index, const Space& space, const F& run) {
  if constexpr (std::is_same_v<Space, PackedSpace>) {
    const auto* own = std::get_if<Sorted<PackedSpace>>(&index.sorted);
    if (own && own->space.base == space.base && own->space.shift == space.shift)
      return run(own->keys.data());
  }
  const auto keys = rekey(index, space);
  run(keys.data());
}

// Calls run(space) with a space that holds both sets, if possible one that has the keys of a set
// already.
template <typename F>
void with_common_space(const CoordIndex& a, const CoordIndex& b, const F& run) {
  for (const auto& [own, other] : {std::pair(&a, &b), std::pair(&b, &a)})
    if (const auto* s = std::get_if<Sorted<PackedSpace>>(&own->sorted);
        s && s->space.box.holds(other->box))
      return run(s->space);
  const Box both = a.box.joined(b.box);
  if (const auto space = PackedSpace::plan(both)) return run(*space);
  run(WideSpace::plan(both));
}

}  // namespace

Distinct distinct_rows(const CoordIndex& index) {
  return std::visit(
      [&](const auto& s) {
        const auto is_head = [&](int64_t p) { return p == 0 || !(s.keys[p] == s.keys[p - 1]); };
        // The last position up to the end of each piece that begins a run of equal keys. Equal keys
        // lie by ascending row, so the head of a run is its first row.
        Buffer<uint8_t> is_first(s.n);
        std::vector<int64_t> last_head(static_cast<size_t>(piece_count(s.n)), -1);
        each_piece(s.n, [&](size_t piece, int64_t begin, int64_t end) {
          for (int64_t p = begin; p < end; ++p) {
            const bool head = is_head(p);
            is_first[s.order[p]] = head;
            if (head) last_head[piece] = p;
          }
        });
        Distinct out{rows_that(s.n, [&](int64_t r) { return is_first[r] != 0; }),
                     Buffer<int32_t>(s.n)};
        Buffer<int32_t> rank(s.n);
        each_piece(out.first.size(), [&](size_t, int64_t begin, int64_t end) {
          for (int64_t d = begin; d < end; ++d) rank[out.first[d]] = static_cast<int32_t>(d);
        });
        for (size_t piece = 1; piece < last_head.size(); ++piece)
          last_head[piece] = std::max(last_head[piece], last_head[piece - 1]);
        each_piece(s.n, [&](size_t piece, int64_t begin, int64_t end) {
          int32_t current = piece == 0 ? 0 : rank[s.order[last_head[piece - 1]]];
          for (int64_t p = begin; p < end; ++p) {
            if (is_head(p)) current = rank[s.order[p]];
            out.inverse[s.order[p]] = current;
          }
        });
        return out;
      },
      index.sorted);
}

Buffer<int32_t> lookup(const CoordIndex& index, const CoordIndex& queries) {
  Buffer<int32_t> found(queries.rows());
  const Buffer<int32_t>& rows = index.order();
  const Buffer<int32_t>& query_rows = queries.order();
  with_common_space(index, queries, [&](const auto& space) {
    with_keys_in(index, space, [&](const auto* keys) {
      with_keys_in(queries, space, [&](const auto* query_keys) {
        merge_equal(keys, index.rows(), query_keys, queries.rows(),
                    [&](int64_t q, int64_t p) { found[query_rows[q]] = p < 0 ? -1 : rows[p]; });
      });
    });
  });
  return found;
}

void floor_coords(const CoordSpan& coords, const Triple& stride, void* out) {
  coords.visit([&]<typename T>(const T* c) {
    T* to = static_cast<T*>(out);
    const FloorDivider x(stride[0]), y(stride[1]), z(stride[2]);
    parallel_range(coords.rows, kPiece, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin * 4; i < end * 4; i += 4) {
        to[i] = c[i];
        to[i + 1] = static_cast<T>(x(c[i + 1]));
        to[i + 2] = static_cast<T>(y(c[i + 2]));
        to[i + 3] = static_cast<T>(z(c[i + 3]));
      }
    });
  });
}

void take_rows(const CoordSpan& coords, std::span<const int32_t> rows, void* out) {
  coords.visit([&]<typename T>(const T* c) {
    T* to = static_cast<T*>(out);
    parallel_range(static_cast<int64_t>(rows.size()), kPiece, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        std::memcpy(to + i * 4, c + int64_t{rows[static_cast<size_t>(i)]} * 4, 4 * sizeof(T));
    });
  });
}

Buffer<int32_t> rows_where(std::span<const uint8_t> keep) {
  return rows_that(static_cast<int64_t>(keep.size()),
                   [&](int64_t r) { return keep[static_cast<size_t>(r)] != 0; });
}

Alignment align(const CoordIndex& lhs, const CoordIndex& rhs, Join join) {
  if (join == Join::right) {
    Alignment swapped = align(rhs, lhs, Join::left);
    return {std::move(swapped.rhs), std::move(swapped.lhs)};
  }
  Buffer<int32_t> partner = lookup(rhs, lhs);  // lhs row -> rhs row
  const int64_t n = partner.size();
  if (join == Join::inner) {
    Alignment out{rows_that(n, [&](int64_t r) { return partner[r] >= 0; }), {}};
    out.rhs = Buffer<int32_t>(out.lhs.size());
    each_piece(out.lhs.size(), [&](size_t, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) out.rhs[i] = partner[out.lhs[i]];
    });
    return out;
  }
  Buffer<int32_t> extra;
  if (join == Join::outer) {
    Buffer<int32_t> back = lookup(lhs, rhs);
    extra = rows_that(rhs.rows(), [&](int64_t r) { return back[r] < 0; });
  }
  Alignment out{Buffer<int32_t>(n + extra.size()), Buffer<int32_t>(n + extra.size())};
  each_piece(n, [&](size_t, int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      out.lhs[r] = static_cast<int32_t>(r), out.rhs[r] = partner[r];
  });
  for (int64_t e = 0; e < extra.size(); ++e) out.lhs[n + e] = -1, out.rhs[n + e] = extra[e];
  return out;
}

}  // namespace lattice::cpu
