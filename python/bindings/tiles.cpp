// Programs on clouds that are larger than memory. Arguments only.
#include "lattice/program/tiles.h"

#include <nanobind/stl/array.h>

#include "arguments.h"
#include "bind.h"

using namespace lattice;
using namespace nb::literals;

namespace {

nb::tuple pair_of(const TileBox& box) {
  return nb::make_tuple(to_python(box.low), to_python(box.high));
}

std::function<void(int64_t, int64_t)> progress_of(const nb::object& callback) {
  if (callback.is_none()) return {};
  return [callback](int64_t done, int64_t total) {
    const nb::gil_scoped_acquire held;
    callback(done, total);
  };
}

}  // namespace

void bind_tiles(nb::module_& m) {
  m.def(
      "receptive_field",
      [](const Program& program) {
        const ReceptiveField field = unlocked([&] { return receptive_field(program); });
        return nb::make_tuple(to_python(field.before), to_python(field.after),
                              to_python(field.alignment), to_python(field.output_stride));
      },
      "program"_a, "(before, after, alignment, output stride) in steps of the input.");
  m.def(
      "plan_tiles",
      [](const Program& program, const std::vector<int64_t>& cells,
         const std::vector<int64_t>& counts, const Triple& side, const Triple& tile,
         const Triple& origin, int64_t bytes, int64_t row_bytes) {
        const TileOptions options{tile, origin, bytes, row_bytes};
        const auto boxes =
            unlocked([&] { return plan_tiles(program, cells, counts, side, options); });
        nb::list made;
        for (const TileBox& box : boxes) made.append(pair_of(box));
        return made;
      },
      "program"_a, "cells"_a, "counts"_a, "side"_a, "tile"_a, "origin"_a, "bytes"_a,
      "row_bytes"_a = 0, "(low, high) of each tile.");
  m.def(
      "tile_input",
      [](const Program& program, const Triple& low, const Triple& high) {
        return pair_of(unlocked([&] { return tile_input(program, {low, high}); }));
      },
      "program"_a, "low"_a, "high"_a, "(low, high) of the rows that a tile needs.");
  m.def(
      "run_tile",
      [](const Program& program, const SparseTensor& x, const Triple& low, const Triple& high) {
        return unlocked([&] { return run_tile(program, x, {low, high}); });
      },
      "program"_a, "x"_a, "low"_a, "high"_a, "The rows of the output inside of a tile.");
  m.def(
      "run_tiled",
      [](const Program& program, const SparseTensor& x, const Triple& tile, const Triple& origin,
         int64_t bytes, const nb::object& progress) {
        const TileOptions options{tile, origin, bytes, 0, progress_of(progress)};
        return unlocked([&] { return run_tiled(program, x, options); });
      },
      "program"_a, "x"_a, "tile"_a, "origin"_a, "bytes"_a, "progress"_a = nb::none(),
      "The output of the whole run, tile by tile.");
}
