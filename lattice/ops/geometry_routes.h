// The geometry operations as rows of the route table: arrays in, one int32 array out.
//
//   unique    (coords)           (2, N): the distinct row of each row, first seen first; then the
//   first row of each, -1 behind them lookup    (coords, queries)  (Q,): the first equal row, or -1
//   relate    (in, out)          (n_out, K + ceil(K / 32)): out_in_map, -1 = none, then the masks
//   of the rows neighbors (source, query)    (2 + Q + 1 + 2 E,): truncated (30 bits, the rest), row
//   offsets, source rows, bits of the distances
//
// Geometry is computed when it is asked for. On a GPU the default is the CPU's own code in the
// memory that both share ("cpu.unified"): it is measured, its index is what later calls need, and
// sizes are needed on the CPU before anything can be launched. The kernels of "metal.*" give the
// same arrays; LATTICE_ROUTE="lookup=metal.hash" takes them.
#pragma once

#include <optional>
#include <vector>

#include "lattice/ops/oracle_cases.h"
#include "lattice/ops/routes.h"

namespace lattice {

void add_geometry_routes(std::vector<Route>& rows);
void add_geometry_cases(std::vector<OracleCase>& cases);

// (M, 4): the distinct rows of evaluated, contiguous coordinates, first seen first.
mx::array distinct_coords(const mx::array& coords, mx::StreamOrDevice s);
// (Q,) int32, evaluated: the first equal row of coords, or -1.
mx::array find_coords(const CoordinateSet& coords, const CoordinateSet& queries,
                      mx::StreamOrDevice s);
// relate() of core by the route that is chosen.
Relation::Ptr relate_on(RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                        const std::optional<CoordinateSet>& target, std::string_view operation,
                        mx::StreamOrDevice s);

Call geometry_call(const char* operation, std::vector<mx::array> inputs, Geometry geometry,
                   mx::StreamOrDevice s);
// Decides. Where a kernel of Metal is chosen: its result, evaluated. Nothing: the CPU's code is to
// be used.
std::optional<mx::array> run_on_metal(const Call& call);

}  // namespace lattice
