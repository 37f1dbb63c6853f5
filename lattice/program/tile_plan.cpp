#include "lattice/program/tile_plan.h"

#include <algorithm>
#include <limits>
#include <map>

#include "lattice/core/errors.h"
#include "lattice/program/locality.h"

namespace lattice {

using namespace program;

namespace {

struct Cell {
  Triple at;
  int64_t rows;
};

// Where nobody has measured: the values at their most, and a quarter more for coordinates,
// relations and kernels. Relations depend on the cloud: dense clouds may need more than this.
int64_t estimate(const Program& program) {
  constexpr int64_t kRows = 1024;
  return std::max<int64_t>(1, program.bytes_for(kRows) / kRows * 5 / 4);
}

class Planner {
 public:
  Planner(const Program& program, std::vector<Cell> cells, const Triple& side,
          const TileOptions& options)
      : program_(*program.loaded()),
        graph_(local_graph(program_)),
        cells_(std::move(cells)),
        side_(side),
        options_(options),
        row_bytes_(options.row_bytes > 0 ? options.row_bytes : estimate(program)) {}

  std::vector<TileBox> plan() {
    if (cells_.empty()) return {};
    Triple low = cells_[0].at, high = cells_[0].at;
    for (const Cell& cell : cells_)
      for (size_t a = 0; a < 3; ++a) {
        low[a] = std::min(low[a], cell.at[a]);
        high[a] = std::max(high[a], cell.at[a]);
      }
    Triple first, last;
    for (size_t a = 0; a < 3; ++a) {
      step_[a] = options_.tile[a] / side_[a];
      origin_[a] = options_.origin[a] / side_[a];
      if (step_[a] == 0 && a < 2) {  // the smallest square of cells around everything
        origin_[a] = low[a];
        step_[a] = 1;
        while (step_[a] <= high[a] - low[a]) step_[a] *= 2;
      }
    }
    // Only tiles that hold a row are visited: a cloud may have empty space of any size.
    std::vector<Triple> tiles;
    for (const Cell& cell : cells_) tiles.push_back(tile_of(cell.at));
    std::sort(tiles.begin(), tiles.end());
    tiles.erase(std::unique(tiles.begin(), tiles.end()), tiles.end());
    for (const Triple& tile : tiles) {
      for (size_t a = 0; a < 3; ++a) {
        first[a] = step_[a] ? origin_[a] + tile[a] * step_[a] : -kFar;
        last[a] = step_[a] ? first[a] + step_[a] : kFar;
      }
      add(first, last);
    }
    return std::move(made_);
  }

 private:
  Triple tile_of(const Triple& cell) const {
    Triple tile{0, 0, 0};
    for (size_t a = 0; a < 3; ++a) {
      if (!step_[a]) continue;
      const int64_t at = cell[a] - origin_[a];
      tile[a] = at / step_[a] - (at % step_[a] != 0 && at < 0);
    }
    return tile;
  }

  // Corners in cells to corners in steps.
  TileBox box(const Triple& first, const Triple& last) const {
    TileBox made;
    for (size_t a = 0; a < 3; ++a) {
      made.low[a] = step_[a] ? first[a] * side_[a] : -kFar;
      made.high[a] = step_[a] ? last[a] * side_[a] : kFar;
    }
    return made;
  }

  template <typename Visit>
  void for_cells(const TileBox& box, const Visit& visit) const {
    const auto begins_before = [&](const Cell& cell, int64_t x) {
      return (cell.at[0] + 1) * side_[0] <= x;
    };
    for (auto at = std::lower_bound(cells_.begin(), cells_.end(), box.low[0], begins_before);
         at != cells_.end() && at->at[0] * side_[0] < box.high[0]; ++at) {
      bool touches = true;
      for (size_t a = 1; a < 3; ++a)
        touches = touches && at->at[a] * side_[a] < box.high[a] &&
                  (at->at[a] + 1) * side_[a] > box.low[a];
      if (touches) visit(*at);
    }
  }

  int64_t rows_in(const TileBox& box) const {
    int64_t rows = 0;
    for_cells(box, [&](const Cell& cell) { rows += cell.rows; });
    return rows;
  }

  void add(const Triple& first, const Triple& last) {
    const TileBox own = box(first, last);
    if (rows_in(own) == 0) return;
    const int64_t needed = bytes_of(own);
    if (options_.bytes <= 0 || needed <= options_.bytes) {
      made_.push_back(own);
      return;
    }
    split(own, needed);
  }

  int64_t bytes_of(const TileBox& own) const {
    const int64_t rows = rows_in(tile_input(program_, graph_, own));
    if (options_.row_bytes <= 0) return rows * row_bytes_;
    // Rows around a tile are left out after the first stages: 0.2 to 0.4 of the bytes (measured;
    // docs/notebook.md).
    const int64_t inside = rows_in(own);
    return inside * row_bytes_ + (rows - inside) * row_bytes_ / 4;
  }

  // Divides a tile on its longer side. If three tiles would do, the parts get one and two of them,
  // and so on, so that most tiles use most of the memory.
  void split(const TileBox& own, int64_t needed) {
    Triple first{-kFar, -kFar, -kFar}, last{kFar, kFar, kFar};  // around the rows, in cells
    for (size_t a = 0; a < 3; ++a)
      if (step_[a]) std::swap(first[a], last[a]);
    for_cells(own, [&](const Cell& cell) {
      for (size_t a = 0; a < 3; ++a)
        if (step_[a]) {
          first[a] = std::min(first[a], cell.at[a]);
          last[a] = std::max(last[a], cell.at[a] + 1);
        }
    });
    const auto length = [&](size_t a) { return step_[a] ? (last[a] - first[a]) * side_[a] : 0; };
    size_t axis = 0;
    for (size_t a = 1; a < 3; ++a)
      if (length(a) > length(axis)) axis = a;
    if (length(axis) <= side_[axis])
      throw Error(
          ErrorCode::limit,
          "[plan_tiles] the smallest tile at " + triple_text(own.low) + " needs about " +
              std::to_string(needed >> 20) + " MiB with the rows around it, and the limit is " +
              std::to_string(options_.bytes >> 20) + " MiB; give more memory or larger voxels",
          "plan_tiles", "bytes");
    Triple middle = last;
    const int64_t tiles = std::max<int64_t>(2, (needed - 1) / options_.bytes + 1);
    const int64_t cut = cut_at(own, axis, first[axis], tiles);
    middle[axis] = cut;
    add(first, middle);
    middle = first;
    middle[axis] = cut;
    add(middle, last);
  }

  // The cell after `first` on an axis below which about tiles / 2 of `tiles` shares of rows lie.
  int64_t cut_at(const TileBox& own, size_t axis, int64_t first, int64_t tiles) const {
    std::map<int64_t, int64_t> rows;  // by cell; there may be empty space of any size
    int64_t total = 0;
    for_cells(own, [&](const Cell& cell) {
      rows[cell.at[axis]] += cell.rows;
      total += cell.rows;
    });
    int64_t at = first, below = 0;
    for (const auto& [cell, n] : rows) {
      if (cell > first) at = cell;
      if (cell > first && (below + n / 2) * tiles >= total * (tiles / 2)) break;
      below += n;
    }
    return at;
  }

  const Loaded& program_;
  const LocalGraph graph_;
  const std::vector<Cell> cells_;  // sorted
  const Triple side_;
  const TileOptions& options_;
  const int64_t row_bytes_;
  Triple step_{0, 0, 0}, origin_{0, 0, 0};  // in cells; a step of 0: the axis is not cut
  std::vector<TileBox> made_;
};

}  // namespace

std::vector<TileBox> plan_tiles(const Program& program, std::span<const int64_t> cells,
                                std::span<const int64_t> counts, const Triple& side,
                                const TileOptions& options) {
  if (cells.size() != 3 * counts.size())
    throw Error(ErrorCode::argument,
                "[plan_tiles] there must be three numbers in cells for each count, found " +
                    std::to_string(cells.size()) + " and " + std::to_string(counts.size()),
                "plan_tiles", "cells");
  constexpr int64_t kMost = int64_t{1} << 31;
  for (size_t a = 0; a < 3; ++a)
    if (side[a] < 1 || side[a] > kMost || options.tile[a] < 0 || options.tile[a] > kMost)
      throw Error(ErrorCode::argument,
                  "[plan_tiles] side must be in 1..2^31 and tile in 0..2^31 on each axis, found " +
                      triple_text(side) + " and " + triple_text(options.tile),
                  "plan_tiles", "side");
  std::vector<Cell> counted;
  for (size_t k = 0; k < counts.size(); ++k)
    counted.push_back({{cells[3 * k], cells[3 * k + 1], cells[3 * k + 2]}, counts[k]});
  std::sort(counted.begin(), counted.end(),
            [](const Cell& a, const Cell& b) { return a.at < b.at; });
  return Planner(program, std::move(counted), side, options).plan();
}

TileBox tile_input(const Program& program, const TileBox& own) {
  const LocalGraph graph = local_graph(*program.loaded());
  return program::tile_input(*program.loaded(), graph, own);
}

}  // namespace lattice
