#include "lattice/program/tiles.h"

#include <mlx/memory.h>
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

#include "lattice/core/arrays.h"
#include "lattice/core/row_independent.h"
#include "lattice/ops/coords.h"
#include "lattice/ops/reduce_rows.h"
#include "lattice/program/executor.h"
#include "lattice/program/locality.h"

namespace lattice {

using namespace program;

namespace {

bool inside(const Box& box, const int64_t* c) {
  for (size_t a = 0; a < 3; ++a)
    if (c[a] < box[a].low || c[a] >= box[a].high) return false;
  return true;
}

template <typename T>
cpu::Buffer<int32_t> rows_inside(const T* coords, int64_t rows, const Box& box) {
  cpu::Buffer<int32_t> kept(rows);
  int64_t n = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t c[3] = {static_cast<int64_t>(coords[r * 4 + 1]),
                          static_cast<int64_t>(coords[r * 4 + 2]),
                          static_cast<int64_t>(coords[r * 4 + 3])};
    if (inside(box, c)) kept[n++] = static_cast<int32_t>(r);
  }
  cpu::Buffer<int32_t> made(n);
  std::copy_n(kept.begin(), n, made.begin());
  return made;
}

// One tile through the network. Values of one stage share their coordinates; where a value enters
// another stage, its rows outside of what that stage needs are left out.
class TileRun {
 public:
  TileRun(const Loaded& program, const LocalGraph& graph, const Box& own)
      : program_(program), graph_(graph), needs_(needs_of(graph, program, own)), own_(own) {}

  SparseTensor run(const SparseTensor& x) {
    values_ = program_.constants;
    value(graph_.input) = cut(x, needs_.stage[0]);
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (graph_.nodes[i].reach == Reach::none) {
        if (!known(i)) keep_results(i, run_node(program_, i, values_));
        continue;
      }
      run_stage_node(i);
      drop_behind(i);
    }
    return cut(on_coords(graph_.output), own_);
  }

 private:
  struct Cut {
    RowGroups::Ptr rows;
    CoordinateMapKey key;
  };

  ProgramValue& value(int v) { return values_[static_cast<size_t>(v)]; }
  size_t stage_of(int v) const { return static_cast<size_t>(graph_.stage[static_cast<size_t>(v)]); }

  bool known(size_t i) const {
    const std::vector<int>& results = program_.graph.nodes[i].results;
    return std::all_of(results.begin(), results.end(), [&](int v) {
      return !std::holds_alternative<std::monostate>(values_[static_cast<size_t>(v)]);
    });
  }

  void run_stage_node(size_t i) {
    const Local& local = graph_.nodes[i];
    const size_t to = stage_of(program_.graph.nodes[i].results[0]);
    std::map<int, ProgramValue> whole;  // what the cut values were
    const auto enter = [&](int v, const Box& box) {
      const auto* tensor = std::get_if<SparseTensor>(&value(v));
      if (!tensor || stage_of(v) == to || whole.contains(v)) return;
      const SparseTensor part = cut(*tensor, box);
      whole.emplace(v, value(v));
      value(v) = part;
    };
    // A target that is also gathered from would need both cuts; the smaller serves the target.
    if (local.target >= 0) enter(local.target, needs_.stage[to]);
    for (const int v : local.inputs)
      enter(v, local.same_rows ? needs_.stage[to] : needs_.enters[stage_of(v)][to]);
    for (const int v : local.beside) enter(v, needs_.stage[to]);
    std::vector<ProgramValue> results = run_node(program_, i, values_);
    if (!local.same_rows && local.target < 0)
      results[0] = cut(std::get<SparseTensor>(results[0]), needs_.stage[to]);
    for (auto& [v, before] : whole) value(v) = std::move(before);
    keep_results(i, std::move(results));
    if (const auto* tensor = std::get_if<SparseTensor>(&value(program_.graph.nodes[i].results[0])))
      last_of_stage_.insert_or_assign(to, *tensor);
  }

  void keep_results(size_t i, std::vector<ProgramValue> results) {
    const std::vector<int>& numbers = program_.graph.nodes[i].results;
    for (size_t r = 0; r < numbers.size(); ++r) value(numbers[r]) = std::move(results[r]);
  }

  void drop_behind(size_t i) {
    const auto drop = [&](int v) {
      if (v != graph_.output && program_.last_use[static_cast<size_t>(v)] <= static_cast<int>(i))
        value(v) = {};
    };
    for (const Reference& operand : program_.graph.nodes[i].operands) {
      if (operand.kind == Reference::Kind::value) drop(operand.value);
      for (const Reference& item : operand.items)
        if (item.kind == Reference::Kind::value) drop(item.value);
    }
  }

  // A value with rows as a tensor on the coordinates of its stage.
  SparseTensor on_coords(int v) {
    if (const auto* tensor = std::get_if<SparseTensor>(&value(v))) return *tensor;
    const mx::array& rows = std::get<mx::array>(value(v));
    const mx::array wide = rows.ndim() == 2 ? rows : mx::reshape(rows, {rows.shape(0), -1});
    return last_of_stage_.at(stage_of(v)).with_feats(wide);
  }

  // The rows inside of the box. Tensors on the same coordinates stay on the same coordinates.
  SparseTensor cut(const SparseTensor& x, const Box& box) {
    const auto [found, added] = cuts_.try_emplace({x.coord_key(), box});
    Cut& made = found->second;
    if (added) {
      const int64_t n = x.active_count();
      const mx::array& coords = x.coords();
      cpu::Buffer<int32_t> rows = n == 0 ? cpu::Buffer<int32_t>(0)
                                  : coords.dtype() == mx::int64
                                      ? rows_inside(coords.data<int64_t>(), n, box)
                                      : rows_inside(coords.data<int32_t>(), n, box);
      if (rows.size() == n) return x;
      const mx::array numbers = new_array(rows.data(), {static_cast<int>(rows.size())}, mx::int32);
      mx::array kept = mx::take(coords, numbers, 0, mx::Device::cpu);
      mx::eval(kept);
      made.key = x.coord_manager()->insert_coords(kept, x.stride());
      if (const auto bounds = x.bounds())
        made.key = x.coord_manager()->with_bounds(made.key, *bounds);
      made.rows = RowGroups::create(std::move(rows), n);
    }
    if (!made.rows) return x;
    return {x.coord_manager(), made.key, gather_rows(x.feats(), made.rows)};
  }

  const Loaded& program_;
  const LocalGraph& graph_;
  const Needs needs_;
  const Box own_;
  std::vector<ProgramValue> values_;
  std::map<size_t, SparseTensor> last_of_stage_;
  std::map<std::pair<CoordinateMapKey, Box>, Cut> cuts_;
};

SparseTensor tile_result(const Loaded& program, const LocalGraph& graph, const SparseTensor& x,
                         const TileBox& own) {
  const RowIndependent only;
  try {
    const SparseTensor y = TileRun(program, graph, box_of(own, graph.output_ratio())).run(x);
    mx::array feats = y.feats();
    mx::eval(feats);
    // A manager of its own: that of the tile holds the relations of all stages.
    return {y.coords(), feats, y.stride()};
  } catch (const Error&) {
    throw;
  } catch (...) {
    rethrow_at("[run_tile]", "run_tile");
  }
}

// The coordinates of the output of the whole run, in its order.
CoordinateSet output_coords(const LocalGraph& graph, const SparseTensor& x) {
  const Triple& ratio = graph.output_ratio();
  if (ratio == Triple{1, 1, 1}) return x.coordinate_set();
  return {downsample_coords(x.coordinate_set(), ratio), "run_tiled"};
}

// The rows of x by the cells in which they lie.
using Cells = std::map<Triple, std::vector<int32_t>>;

Cells cells_of(const SparseTensor& x, const Triple& side) {
  Cells cells;
  mx::array coords = mx::astype(x.coords(), mx::int64, mx::Device::cpu);
  mx::eval(coords);
  const int64_t* c = x.active_count() ? coords.data<int64_t>() : nullptr;
  for (int64_t r = 0; r < x.active_count(); ++r) {
    Triple cell;
    for (size_t a = 0; a < 3; ++a)
      cell[a] = floor_to(c[r * 4 + 1 + static_cast<int64_t>(a)], side[a]) / side[a];
    cells[cell].push_back(static_cast<int32_t>(r));
  }
  return cells;
}

// The rows of cells that touch the box, ascending.
SparseTensor rows_near(const SparseTensor& x, const Cells& cells, const Triple& side,
                       const TileBox& box) {
  std::vector<int32_t> rows;
  const auto touches = [&](const Triple& cell) {
    for (size_t a = 0; a < 3; ++a)
      if (cell[a] * side[a] >= box.high[a] || (cell[a] + 1) * side[a] <= box.low[a]) return false;
    return true;
  };
  const int64_t first = floor_to(box.low[0], side[0]) / side[0];
  const int64_t least = std::numeric_limits<int64_t>::min();
  for (auto at = cells.lower_bound({first, least, least}); at != cells.end(); ++at) {
    if (at->first[0] * side[0] >= box.high[0]) break;
    if (touches(at->first)) rows.insert(rows.end(), at->second.begin(), at->second.end());
  }
  std::sort(rows.begin(), rows.end());
  const mx::array numbers = new_array(rows.data(), {static_cast<int>(rows.size())}, mx::int32);
  mx::array coords = mx::take(x.coords(), numbers, 0, mx::Device::cpu);
  mx::array feats = mx::take(x.feats(), numbers, 0, mx::Device::cpu);
  mx::eval(coords, feats);
  return {coords, feats, x.stride()};
}

// Steps of the cells in which rows are counted, and tiles as multiples of them.
Triple counted_side(const Triple& alignment, TileOptions& options) {
  Triple side;
  for (size_t a = 0; a < 3; ++a) {
    int64_t& tile = options.tile[a];
    if (tile < 0)
      throw Error(ErrorCode::argument,
                  "[run_tiled] tile must be 0 or more on each axis, found " + std::to_string(tile),
                  "run_tiled", "tile");
    const int64_t steps = tile ? std::max<int64_t>(1, tile / alignment[a] / 8)
                               : std::max<int64_t>(1, 64 / alignment[a]);
    side[a] = alignment[a] * steps;
    tile = -floor_to(-tile, side[a]);
    options.origin[a] = floor_to(options.origin[a], side[a]);
  }
  return side;
}

}  // namespace

ReceptiveField receptive_field(const Program& program) {
  const LocalGraph graph = local_graph(*program.loaded());
  ReceptiveField field;
  field.output_stride = graph.output_ratio();
  for (const Triple& ratio : graph.ratio)
    for (size_t a = 0; a < 3; ++a) field.alignment[a] = std::max(field.alignment[a], ratio[a]);
  TileBox own;
  for (size_t a = 0; a < 3; ++a) own.high[a] = 1024 * field.alignment[a];
  const TileBox needed = tile_input(program, own);
  for (size_t a = 0; a < 3; ++a) {
    field.before[a] = own.low[a] - needed.low[a];
    field.after[a] = needed.high[a] - own.high[a];
  }
  return field;
}

SparseTensor run_tile(const Program& program, const SparseTensor& x, const TileBox& own) {
  return tile_result(*program.loaded(), local_graph(*program.loaded()), x, own);
}

SparseTensor run_tiled(const Program& program, const SparseTensor& x, const TileOptions& given) {
  const Loaded& loaded = *program.loaded();
  const LocalGraph graph = local_graph(loaded);
  if (!graph.keeps_order())
    throw Error(ErrorCode::argument,
                "[run_tiled] the output has rows that a convolution makes, and only the whole run "
                "knows their order; run the network on the whole cloud",
                "run_tiled");
  TileOptions options = given;
  const Triple side = counted_side(receptive_field(program).alignment, options);
  const Cells cells = cells_of(x, side);
  std::vector<int64_t> at, counts;
  for (const auto& [cell, rows] : cells) {
    at.insert(at.end(), cell.begin(), cell.end());
    counts.push_back(static_cast<int64_t>(rows.size()));
  }
  const CoordinateSet out = output_coords(graph, x);
  const Triple& ratio = graph.output_ratio();
  std::vector<std::byte> data;
  std::optional<SparseTensor> last;
  int64_t done = 0;
  for (const TileBox& own : plan_tiles(program, at, counts, side, options)) {
    const TileBox needed = program::tile_input(loaded, graph, own);
    last = tile_result(loaded, graph, rows_near(x, cells, side, needed), own);
    const mx::array rows = lookup_coords(out, last->coordinate_set());
    const mx::array feats = evaluated(last->feats(), "run_tiled", "x");
    const size_t row = feats.itemsize() * static_cast<size_t>(feats.shape(1));
    data.resize(static_cast<size_t>(out.rows()) * row);
    const auto* from = feats.size() ? feats.data<std::byte>() : nullptr;
    for (int64_t r = 0; r < last->active_count(); ++r)
      std::memcpy(data.data() + static_cast<size_t>(rows.data<int32_t>()[r]) * row,
                  from + static_cast<size_t>(r) * row, row);
    mx::clear_cache();
    done += last->active_count();
    if (options.progress) options.progress(done, out.rows());
  }
  if (!last)  // no rows: what the network makes of none
    last = tile_result(loaded, graph, x, {{0, 0, 0}, ratio});
  const int channels = static_cast<int>(last->channels());
  Triple stride = x.stride();
  for (size_t a = 0; a < 3; ++a) stride[a] *= ratio[a];
  const mx::array feats =
      new_array(data.data(), {static_cast<int>(out.rows()), channels}, last->dtype());
  if (ratio == Triple{1, 1, 1}) return x.with_feats(feats);
  return {out.array(), feats, stride};
}

}  // namespace lattice
