#include "lattice/program/tile_plan.h"

#include <algorithm>
#include <limits>

#include "lattice/core/errors.h"
#include "lattice/program/locality.h"

namespace lattice {

using namespace program;

namespace {

struct Cell {
  Triple at;
  int64_t rows;
};

int64_t bytes_of_row(const Program& program) {
  // Values at their most, and a quarter more for coordinates, relations and kernels (measured on
  // MinkUNets of depth 14 to 34; docs/notebook.md).
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
        row_bytes_(bytes_of_row(program)) {}

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

  int64_t rows_in(const TileBox& box) const {
    const auto begins_before = [&](const Cell& cell, int64_t x) {
      return (cell.at[0] + 1) * side_[0] <= x;
    };
    int64_t rows = 0;
    for (auto at = std::lower_bound(cells_.begin(), cells_.end(), box.low[0], begins_before);
         at != cells_.end() && at->at[0] * side_[0] < box.high[0]; ++at) {
      bool touches = true;
      for (size_t a = 1; a < 3; ++a)
        touches = touches && at->at[a] * side_[a] < box.high[a] &&
                  (at->at[a] + 1) * side_[a] > box.low[a];
      if (touches) rows += at->rows;
    }
    return rows;
  }

  void add(const Triple& first, const Triple& last) {
    const TileBox own = box(first, last);
    if (rows_in(own) == 0) return;
    const int64_t most =
        options_.bytes > 0 ? options_.bytes / row_bytes_ : std::numeric_limits<int64_t>::max();
    const int64_t rows = rows_in(tile_input(program_, graph_, own));
    if (rows <= most) {
      made_.push_back(own);
      return;
    }
    Triple middle = last;
    bool split = false;
    for (size_t a = 0; a < 3; ++a)
      if (step_[a] && last[a] - first[a] > 1) {
        middle[a] = first[a] + (last[a] - first[a]) / 2;
        split = true;
      }
    if (!split)
      throw Error(ErrorCode::limit,
                  "[plan_tiles] the smallest tile at " + triple_text(own.low) + " needs " +
                      std::to_string(rows) + " rows with those around it, about " +
                      std::to_string(rows * row_bytes_ >> 20) + " MiB, and the limit is " +
                      std::to_string(options_.bytes >> 20) +
                      " MiB; give more memory or larger voxels",
                  "plan_tiles", "bytes");
    for (int part = 0; part < 8; ++part) {
      Triple from = first, to = last;
      bool exists = true;
      for (size_t a = 0; a < 3; ++a) {
        const bool upper = part >> (2 - a) & 1;
        if (middle[a] == last[a])
          exists = exists && !upper;
        else
          (upper ? from[a] : to[a]) = middle[a];
      }
      if (exists) add(from, to);
    }
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
