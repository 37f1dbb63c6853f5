#include "lattice/kernels/cpu/geometry/rulebook.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/geometry/edges.h"
#include "lattice/kernels/cpu/geometry/keys.h"
#include "lattice/kernels/cpu/geometry/relations.h"

namespace lattice::cpu {
namespace {

// (n, 4) rows (sample, axes in `axes` order) of floor(p / cell), computed in Real.
template <typename Real>
Buffer<int32_t> cell_rows(const PointSpan& points, Real cell, const std::array<int, 3>& axes) {
  Buffer<int32_t> rows(points.n * 4);
  for (int64_t s = 0; s < points.n_samples; ++s)
    for (int64_t r = points.offsets[s]; r < points.offsets[s + 1]; ++r) {
      rows[r * 4] = static_cast<int32_t>(s);
      for (int a = 0; a < 3; ++a) {
        const Real v =
            std::floor(static_cast<Real>(points.xyz[r * 3 + axes[static_cast<size_t>(a)]]) / cell);
        if (!(v >= Real{-2147483000.0} && v <= Real{2147483000.0}))  // room for the cells around it
          throw std::overflow_error("a point is more than 2^31 cells from the origin: row " +
                                    std::to_string(r));
        rows[r * 4 + 1 + a] = static_cast<int32_t>(v);
      }
    }
  return rows;
}

struct Grid {
  std::shared_ptr<Buffer<int32_t>> order;   // position -> row, by cell, ascending inside
  Buffer<int32_t> first;                    // cell -> first position
  Buffer<int32_t> cells;                    // (n_cells, 4), ascending
  std::shared_ptr<const CoordIndex> index;  // of the cells
  int64_t n() const { return first.size() - 1; }
};

Grid sort_by_cell(const Buffer<int32_t>& rows) {
  const int64_t n = rows.size() / 4;
  Grid g;
  const CoordIndex sorted = index_coords({rows.data(), n, false});
  g.order = std::make_shared<Buffer<int32_t>>(n);
  std::copy(sorted.order().begin(), sorted.order().begin() + n, g.order->begin());
  const auto row = [&](int64_t p) { return rows.data() + int64_t{(*g.order)[p]} * 4; };
  std::vector<int32_t> first;
  for (int64_t p = 0; p < n; ++p)
    if (p == 0 || !std::equal(row(p), row(p) + 4, row(p - 1)))
      first.push_back(static_cast<int32_t>(p));
  const int64_t n_cells = static_cast<int64_t>(first.size());
  g.first = Buffer<int32_t>(n_cells + 1);
  g.cells = Buffer<int32_t>(n_cells * 4);
  std::copy(first.begin(), first.end(), g.first.begin());
  g.first[n_cells] = static_cast<int32_t>(n);
  for (int64_t c = 0; c < n_cells; ++c) std::copy_n(row(g.first[c]), 4, g.cells.begin() + c * 4);
  return g;
}

struct Hit {
  int32_t in, out;  // positions
  float dx, dy, dz, distance;
};

// Cells of queries are taken in pieces of about this many queries.
constexpr int64_t kPieceQueries = 1024;

// Finds all hits; visit(piece, hits of it) is called once for each piece, several at a time. Hits
// are by query position, then by point position.
struct Pairs {
  Grid points, queries;
  Buffer<int32_t> around,
      neighbors;  // cells of points around cell c of queries: neighbors[around[c]] .. [around[c +
                  // 1]]
  std::vector<int64_t> pieces;  // first cell of each piece, and the end

  Pairs(const PointSpan& p, const PointSpan& q, const Search& search) {
    const double cell =
        double{search.radius} * (1 + 0x1p-18) + double{std::numeric_limits<float>::min()};
    const bool same = p.xyz == q.xyz && p.n == q.n && p.offsets == q.offsets;
    points = sort_by_cell(cell_rows<double>(p, cell, {0, 1, 2}));
    const auto make_index = [](const Grid& g) {
      return std::make_shared<const CoordIndex>(index_coords({g.cells.data(), g.n(), false}));
    };
    points.index = make_index(points);
    RelationLists lists;
    if (same) {
      queries.order = points.order;
      queries.first = Buffer<int32_t>(points.first.size());
      std::copy(points.first.begin(), points.first.end(), queries.first.begin());
      lists = relate_same(points.index, Kernel{});
    } else {
      queries = sort_by_cell(cell_rows<double>(q, cell, {0, 1, 2}));
      queries.index = make_index(queries);
      lists = relate_gather(points.index, queries.index, Kernel{});
    }
    around = Buffer<int32_t>(lists.n_out + 1);
    neighbors = Buffer<int32_t>(lists.n_edges);
    Buffer<int32_t> out(lists.n_edges), k(lists.n_edges);
    edge_arrays(lists, around.data(), neighbors.data(), out.data(), k.data());
    for (int64_t c = 0; c < queries.n(); ++c)
      if (pieces.empty() || queries.first[c] - queries.first[pieces.back()] >= kPieceQueries)
        pieces.push_back(c);
    pieces.push_back(queries.n());
  }

  template <typename F>
  void search(const PointSpan& p, const PointSpan& q, const Search& how, const F& visit) const {
    parallel_for(static_cast<int64_t>(pieces.size()) - 1, [&](int64_t piece) {
      std::vector<float> x, y, z, distance;
      std::vector<int32_t> position;
      std::vector<Hit> hits;
      for (int64_t c = pieces[static_cast<size_t>(piece)];
           c < pieces[static_cast<size_t>(piece) + 1]; ++c) {
        x.clear(), y.clear(), z.clear(), position.clear();
        for (int64_t e = around[c]; e < around[c + 1]; ++e)
          for (int32_t i = points.first[neighbors[e]]; i < points.first[neighbors[e] + 1]; ++i) {
            const float* at = p.xyz + int64_t{(*points.order)[i]} * 3;
            x.push_back(at[0]), y.push_back(at[1]), z.push_back(at[2]);
            position.push_back(i);
          }
        const size_t n = position.size();
        distance.resize(n);
        for (int32_t i = queries.first[c]; i < queries.first[c + 1]; ++i) {
          const float* at = q.xyz + int64_t{(*queries.order)[i]} * 3;
          const float qx = at[0], qy = at[1], qz = at[2];
          if (how.cube) {
            for (size_t j = 0; j < n; ++j)
              distance[j] = std::max(std::max(std::fabs(x[j] - qx), std::fabs(y[j] - qy)),
                                     std::fabs(z[j] - qz));
          } else {
            for (size_t j = 0; j < n; ++j) {
              const float dx = x[j] - qx, dy = y[j] - qy, dz = z[j] - qz;
              distance[j] = std::sqrt(dx * dx + dy * dy + dz * dz);
            }
          }
          for (size_t j = 0; j < n; ++j)
            if (distance[j] <= how.radius)
              hits.push_back({position[j], i, x[j] - qx, y[j] - qy, z[j] - qz, distance[j]});
        }
      }
      visit(static_cast<size_t>(piece), std::move(hits));
    });
  }
};

int64_t checked_total(int64_t n) {
  if (n > std::numeric_limits<int32_t>::max())
    throw std::length_error("there are " + std::to_string(n) + " neighbors; the limit is 2^31 - 1");
  return n;
}

int32_t axis_tap(float d, float grid, int32_t ks) {
  const float l = std::nearbyint(d / grid) + static_cast<float>(ks / 2);
  return static_cast<int32_t>(std::clamp(l, 0.0f, static_cast<float>(ks - 1)));
}

}  // namespace

int64_t first_bad_point(const float* xyz, int64_t n) {
  for (int64_t i = 0; i < 3 * n; ++i)
    if (!std::isfinite(xyz[i])) return i / 3;
  return -1;
}

int32_t voxel_tap(float dx, float dy, float dz, float grid, int32_t ks) {
  return (axis_tap(dx, grid, ks) * ks + axis_tap(dy, grid, ks)) * ks + axis_tap(dz, grid, ks);
}

NearPoints near_points(const PointSpan& points, const PointSpan& queries, const Search& search) {
  const Pairs pairs(points, queries, search);
  const int64_t n = queries.n;
  std::vector<std::vector<Hit>> hits(pairs.pieces.size());
  pairs.search(points, queries, search,
               [&](size_t piece, std::vector<Hit>&& found) { hits[piece] = std::move(found); });
  NearPoints near;
  near.offsets = Buffer<int32_t>(n + 1);
  std::fill(near.offsets.begin(), near.offsets.end(), 0);
  int64_t total = 0;
  for (const auto& piece : hits) total += static_cast<int64_t>(piece.size());
  checked_total(total);
  for (const auto& piece : hits)
    for (const Hit& h : piece) ++near.offsets[(*pairs.queries.order)[h.out] + 1];
  std::partial_sum(near.offsets.begin(), near.offsets.end(), near.offsets.begin());
  near.rows = Buffer<int32_t>(total);
  near.distances = Buffer<float>(total);
  parallel_for(static_cast<int64_t>(hits.size()), [&](int64_t p) {
    auto& piece = hits[static_cast<size_t>(p)];
    for (Hit& h : piece) h.in = (*pairs.points.order)[h.in];
    for (size_t begin = 0, end; begin < piece.size(); begin = end) {  // the hits of one query
      for (end = begin + 1; end < piece.size() && piece[end].out == piece[begin].out;) ++end;
      std::sort(piece.begin() + static_cast<std::ptrdiff_t>(begin),
                piece.begin() + static_cast<std::ptrdiff_t>(end),
                [](const Hit& a, const Hit& b) { return a.in < b.in; });
      int64_t at = near.offsets[(*pairs.queries.order)[piece[begin].out]];
      for (size_t i = begin; i < end; ++i, ++at)
        near.rows[at] = piece[i].in, near.distances[at] = piece[i].distance;
    }
  });
  return near;
}

RelationLists point_lists(const PointSpan& points, const PointSpan& queries, const Search& search,
                          float grid, int32_t ks) {
  const Pairs pairs(points, queries, search);
  const int64_t n_k = int64_t{ks} * ks * ks,
                n_pieces = static_cast<int64_t>(pairs.pieces.size()) - 1;
  struct Edge {
    int32_t in, out, k;
  };
  std::vector<std::vector<Edge>> edges(static_cast<size_t>(n_pieces));
  std::vector<int64_t> at(
      static_cast<size_t>(n_k * n_pieces));  // of list k and piece: where its edges begin
  pairs.search(points, queries, search, [&](size_t piece, const std::vector<Hit>& hits) {
    edges[piece].reserve(hits.size());
    for (const Hit& h : hits) {
      const int32_t k = voxel_tap(h.dx, h.dy, h.dz, grid, ks);
      edges[piece].push_back({h.in, h.out, k});
      ++at[static_cast<size_t>(k * n_pieces) + piece];
    }
  });
  int64_t total = 0;
  std::vector<int64_t> begins;
  for (int64_t k = 0; k < n_k; ++k) {
    begins.push_back(total);
    for (int64_t p = 0; p < n_pieces; ++p)
      total += std::exchange(at[static_cast<size_t>(k * n_pieces + p)], total);
  }
  begins.push_back(checked_total(total));
  auto in = std::make_shared<Buffer<int32_t>>(total),
       out = std::make_shared<Buffer<int32_t>>(total);
  parallel_for(n_pieces, [&](int64_t p) {
    for (const Edge& e : edges[static_cast<size_t>(p)]) {
      const int64_t to = at[static_cast<size_t>(e.k * n_pieces + p)]++;
      (*in)[to] = e.in;
      (*out)[to] = e.out;
    }
  });
  RelationLists lists;
  lists.n_in = points.n;
  lists.n_out = queries.n;
  lists.n_edges = total;
  lists.in_once = false;
  lists.in_order = pairs.points.order;
  lists.out_order = pairs.queries.order;
  for (int64_t k = 0; k < n_k; ++k) {
    const int64_t from = begins[static_cast<size_t>(k)], to = begins[static_cast<size_t>(k) + 1];
    lists.lists.push_back({in->data() + from, out->data() + from, to - from});
    lists.monotone = lists.monotone && std::is_sorted(in->data() + from, in->data() + to);
  }
  lists.count_buckets();
  lists.storage = {std::move(in), std::move(out)};
  return lists;
}

PointCells point_cells(const PointSpan& points, float cell) {
  Grid g = sort_by_cell(cell_rows<float>(points, cell, {2, 1, 0}));
  PointCells out;
  out.cell_of = Buffer<int32_t>(points.n);
  for (int64_t c = 0; c < g.n(); ++c) {
    std::swap(g.cells[c * 4 + 1], g.cells[c * 4 + 3]);
    for (int32_t p = g.first[c]; p < g.first[c + 1]; ++p)
      out.cell_of[(*g.order)[p]] = static_cast<int32_t>(c);
  }
  out.order = std::move(*g.order);
  out.first = std::move(g.first);
  out.cells = std::move(g.cells);
  return out;
}

}  // namespace lattice::cpu
