// Geometry: distinct rows, rows found by value, relations, neighbors.
//
// Geometry is computed when it is asked for. On a GPU the default is the code of the CPU in the
// memory that both share ("cpu.unified"). That code is measured, and later calls need the index
// that it makes. The CPU also needs sizes before it can launch anything. The kernels of "metal.*"
// give the same results; LATTICE_ROUTE="lookup=metal.hash" takes them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lattice/core/neighbors.h"
#include "lattice/core/relation.h"
#include "lattice/kernels/cpu/geometry/coords.h"
#include "lattice/kernels/cpu/geometry/neighbors.h"
#include "lattice/routes/decide.h"

namespace lattice::routes {

// Which rows are distinct, first seen first.
struct UniqueAsked {
  CoordinateSet coords;
  mx::StreamOrDevice stream = {};
  Facts facts() const;
  std::string variant() const { return "int32"; }
};
// For each query the first row of coords that equals it, or -1.
struct LookupAsked {
  CoordinateSet coords, queries;
  mx::StreamOrDevice stream = {};
  Facts facts() const;
  std::string variant() const { return "int32"; }
};
// The arguments of relate() (core/relation.h), which were checked.
struct RelateAsked {
  RelationKind kind;
  CoordinateSet in;
  KernelSpec spec;
  std::optional<CoordinateSet> target;
  std::string operation;  // begins messages
  mx::StreamOrDevice stream = {};
  // Whether offsets are added to input rows instead of output rows.
  bool scatters() const { return lattice::scatters(kind); }
  // The rows of the output end; none: the relation makes them.
  std::optional<CoordinateSet> out() const;
  Facts facts() const;
  std::string variant() const { return scatters() ? "int32 scatter" : "int32 gather"; }
};
// The neighbors of rows; `limit` is what the user gave.
struct NeighborsAsked {
  NeighborRows rows;
  cpu::NeighborQuery query;
  std::optional<int64_t> limit;
  std::string operation;  // begins messages
  mx::StreamOrDevice stream = {};
  bool are_points() const { return mx::issubdtype(rows.source.dtype(), mx::floating); }
  Facts facts() const;
  std::string variant() const { return are_points() ? "points" : "int32"; }
};

const Table<UniqueAsked, cpu::Distinct>& unique_rows();
const Table<LookupAsked, cpu::Buffer<int32_t>>& lookup_rows();
const Table<RelateAsked, Relation::Fresh>& relate_rows();
const Table<NeighborsAsked, NeighborRelation::Ptr>& neighbors_rows();

// The rows "metal.*"; int32 coordinates only.
cpu::Distinct unique_with_metal(const UniqueAsked& asked);
cpu::Buffer<int32_t> lookup_with_metal(const LookupAsked& asked);
Relation::Fresh relate_with_metal(const RelateAsked& asked);
NeighborRelation::Ptr neighbors_with_metal(const NeighborsAsked& asked);

// What tests and probes compare: the map of a relation and its masks; of neighbors how many were
// cut off, offsets, rows and distances.
graph::Arrays compared(const UniqueAsked&, const cpu::Distinct& made);
graph::Arrays compared(const LookupAsked&, const cpu::Buffer<int32_t>& made);
graph::Arrays compared(const RelateAsked&, const Relation::Fresh& made);
graph::Arrays compared(const NeighborsAsked&, const NeighborRelation::Ptr& made);

std::vector<UniqueAsked> probe_cases(const UniqueAsked& like);
std::vector<LookupAsked> probe_cases(const LookupAsked& like);
std::vector<RelateAsked> probe_cases(const RelateAsked& like);
std::vector<NeighborsAsked> probe_cases(const NeighborsAsked& like);

}  // namespace lattice::routes
