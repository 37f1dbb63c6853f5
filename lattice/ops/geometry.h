// Geometry by the route that is chosen: distinct rows, rows found by value, relations.
//
// Geometry is computed when it is asked for. On a GPU the default is the code of the CPU in the
// memory that both share ("cpu.unified"). That code is measured, and later calls need the index
// that it makes. The CPU also needs sizes before it can launch anything. The kernels of "metal.*"
// give the same arrays; LATTICE_ROUTE="lookup=metal.hash" takes them.
#pragma once

#include <optional>
#include <vector>

#include "lattice/routes/call.h"

namespace lattice {

// (M, 4): the distinct rows of evaluated, contiguous coordinates, first seen first.
mx::array distinct_coords(const mx::array& coords, mx::StreamOrDevice s);
// (Q,) int32, evaluated: the first equal row of coords, or -1.
mx::array find_coords(const CoordinateSet& coords, const CoordinateSet& queries,
                      mx::StreamOrDevice s);
// relate() of core by the route that is chosen.
Relation::Fresh relate_on(RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                          const std::optional<CoordinateSet>& target, std::string_view operation,
                          mx::StreamOrDevice s);

Call geometry_call(Operation operation, std::vector<mx::array> inputs, Geometry geometry,
                   mx::StreamOrDevice s);
// Decides. A row that does not run the CPU's code: its result, evaluated. Nothing: the caller runs
// the CPU's code on the objects that it has.
std::optional<mx::array> run_off_host(const Call& call);

}  // namespace lattice
