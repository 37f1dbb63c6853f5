#include "lattice/kernels/cpu/geometry/rulebook.h"

#include <algorithm>
#include <atomic>
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

// Cells of queries are taken in pieces of about this many queries; a piece hands over this many
// hits at once.
constexpr int64_t kPieceQueries = 1024;
constexpr size_t kHandOver = size_t{1} << 18;
// From this many pairs on, hits are counted before the first is stored, because 2^31 hits are an
// error.
constexpr int64_t kManyPairs = int64_t{1} << 28;

int64_t checked_total(int64_t n) {
  if (n > std::numeric_limits<int32_t>::max())
    throw std::length_error("found " + std::to_string(n) +
                            " neighbors, expected at most 2^31 - 1; reduce the radius or the grid");
  return n;
}

// Finds all hits; visit(piece, some hits of it) is called for whole queries in order, several
// pieces at a time. Hits are by query position, then by point position.
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

  // Pairs of a query and a point in a cell around it.
  int64_t candidates() const {
    int64_t total = 0;
    for (int64_t c = 0; c < queries.n(); ++c) {
      int64_t near = 0;
      for (int64_t e = around[c]; e < around[c + 1]; ++e)
        near += points.first[neighbors[e] + 1] - points.first[neighbors[e]];
      total += near * (queries.first[c + 1] - queries.first[c]);
    }
    return total;
  }

  // Points around a query: coordinates, distances from the query, positions.
  struct Around {
    std::vector<float> x, y, z, distance;
    std::vector<int32_t> position;
  };

  // f(query position, its coordinates, around) for the queries of a piece, in order.
  template <typename F>
  void each_query(int64_t piece, const PointSpan& p, const PointSpan& q, const Search& how,
                  const F& f) const {
    Around a;
    for (int64_t c = pieces[static_cast<size_t>(piece)]; c < pieces[static_cast<size_t>(piece) + 1];
         ++c) {
      a.x.clear(), a.y.clear(), a.z.clear(), a.position.clear();
      for (int64_t e = around[c]; e < around[c + 1]; ++e)
        for (int32_t i = points.first[neighbors[e]]; i < points.first[neighbors[e] + 1]; ++i) {
          const float* at = p.xyz + int64_t{(*points.order)[i]} * 3;
          a.x.push_back(at[0]), a.y.push_back(at[1]), a.z.push_back(at[2]);
          a.position.push_back(i);
        }
      const size_t n = a.position.size();
      a.distance.resize(n);
      for (int32_t i = queries.first[c]; i < queries.first[c + 1]; ++i) {
        const float* at = q.xyz + int64_t{(*queries.order)[i]} * 3;
        const float qx = at[0], qy = at[1], qz = at[2];
        if (how.cube) {
          for (size_t j = 0; j < n; ++j)
            a.distance[j] = std::max(std::max(std::fabs(a.x[j] - qx), std::fabs(a.y[j] - qy)),
                                     std::fabs(a.z[j] - qz));
        } else {
          for (size_t j = 0; j < n; ++j) {
            const float dx = a.x[j] - qx, dy = a.y[j] - qy, dz = a.z[j] - qz;
            a.distance[j] = std::sqrt(dx * dx + dy * dy + dz * dz);
          }
        }
        f(i, at, a);
      }
    }
  }

  template <typename F>
  void search(const PointSpan& p, const PointSpan& q, const Search& how, const F& visit) const {
    const int64_t n_pieces = static_cast<int64_t>(pieces.size()) - 1;
    if (candidates() > kManyPairs) {
      std::atomic<int64_t> total{0};
      parallel_for(n_pieces, [&](int64_t piece) {
        each_query(piece, p, q, how, [&](int32_t, const float*, const Around& a) {
          int64_t found = 0;
          for (const float distance : a.distance) found += distance <= how.radius;
          total.fetch_add(found, std::memory_order_relaxed);
        });
      });
      checked_total(total.load());
    }
    parallel_for(n_pieces, [&](int64_t piece) {
      std::vector<Hit> hits;
      each_query(piece, p, q, how, [&](int32_t i, const float* at, const Around& a) {
        for (size_t j = 0; j < a.distance.size(); ++j)
          if (a.distance[j] <= how.radius)
            hits.push_back(
                {a.position[j], i, a.x[j] - at[0], a.y[j] - at[1], a.z[j] - at[2], a.distance[j]});
        if (hits.size() < kHandOver) return;
        visit(static_cast<size_t>(piece), hits);
        hits.clear();
      });
      visit(static_cast<size_t>(piece), hits);
    });
  }
};

int32_t axis_tap(float d, float grid, int32_t ks) {
  const int32_t center = ks / 2;
  const float l = std::nearbyint(d / grid) + static_cast<float>(center);
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
  struct Near {
    int32_t row;
    float distance;
  };
  std::vector<std::vector<Near>> found(pairs.pieces.size());  // by query position, then by row
  NearPoints near;
  near.offsets = Buffer<int32_t>(n + 1);
  std::fill(near.offsets.begin(), near.offsets.end(), 0);
  pairs.search(points, queries, search, [&](size_t piece, const std::vector<Hit>& hits) {
    auto& to = found[piece];
    for (size_t begin = 0, end; begin < hits.size(); begin = end) {  // the hits of one query
      const auto first = static_cast<std::ptrdiff_t>(to.size());
      for (end = begin; end < hits.size() && hits[end].out == hits[begin].out; ++end)
        to.push_back({(*pairs.points.order)[hits[end].in], hits[end].distance});
      std::sort(to.begin() + first, to.end(),
                [](const Near& a, const Near& b) { return a.row < b.row; });
      near.offsets[(*pairs.queries.order)[hits[begin].out] + 1] = static_cast<int32_t>(end - begin);
    }
  });
  int64_t total = 0;
  for (const auto& piece : found) total += static_cast<int64_t>(piece.size());
  checked_total(total);
  std::partial_sum(near.offsets.begin(), near.offsets.end(), near.offsets.begin());
  near.rows = Buffer<int32_t>(total);
  near.distances = Buffer<float>(total);
  parallel_for(static_cast<int64_t>(pairs.pieces.size()) - 1, [&](int64_t p) {
    auto& piece = found[static_cast<size_t>(p)];
    auto from = piece.begin();
    const int64_t last_cell = pairs.pieces[static_cast<size_t>(p) + 1];
    for (int32_t i = pairs.queries.first[pairs.pieces[static_cast<size_t>(p)]];
         i < pairs.queries.first[last_cell]; ++i) {
      const int32_t query = (*pairs.queries.order)[i];
      for (int64_t at = near.offsets[query]; at < near.offsets[query + 1]; ++at, ++from)
        near.rows[at] = from->row, near.distances[at] = from->distance;
    }
    piece = {};
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
