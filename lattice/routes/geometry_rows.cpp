// The rows of unique, lookup, relate and neighbors. Those of the CPU are calls of core and kernels.
#include <limits>

#include "lattice/core/arrays.h"
#include "lattice/graph/dtype.h"
#include "lattice/routes/geometry.h"

namespace lattice::routes {
namespace {

const std::string kUnified =
    "always, and the default: the CPU's code in shared memory; its result is needed there";
const std::string kOptIn =
    ". Opt-in: not the default, because it has not been benchmarked on a GPU yet.";

// Rows of a table on a GPU, and values of a map: MLX counts both in 32 bits.
constexpr int kLogRows = 29, kLogValues = 31;
constexpr int64_t kMostRows = int64_t{1} << kLogRows, kMostValues = int64_t{1} << kLogValues;
std::string power(int exponent) { return "2^" + std::to_string(exponent); }

std::vector<mx::array> arrays_of(const UniqueAsked& a) { return {a.coords.array()}; }
std::vector<mx::array> arrays_of(const LookupAsked& a) {
  return {a.coords.array(), a.queries.array()};
}
std::vector<mx::array> arrays_of(const RelateAsked& a) {
  if (a.target) return {a.in.array(), a.target->array()};
  return {a.in.array()};
}
std::vector<mx::array> arrays_of(const NeighborsAsked& a) {
  if (a.rows.query) return {a.rows.source, *a.rows.query};
  return {a.rows.source};
}

template <class Asked>
Condition<Asked> takes_32_bits(const char* words) {
  return {Step::shape, words,
          [](const Asked& asked) {
            for (const mx::array& rows : arrays_of(asked))
              if (rows.dtype() == mx::int64 || rows.shape(0) >= kMostRows) return false;
            return true;
          },
          [](const Asked&) {
            return "coordinates are int64 or have " + power(kLogRows) + " rows or more";
          }};
}

// The most output rows that there can be.
int64_t most_out(const RelateAsked& asked) {
  if (const auto out = asked.out()) return out->rows();
  return asked.in.rows() * (asked.scatters() ? asked.spec.volume() : 1);
}

const Condition<RelateAsked> kShortMap{
    Step::shape, "",
    [](const RelateAsked& asked) {
      const int64_t k = asked.spec.volume(), words = (k + 31) / 32, n_out = most_out(asked);
      return n_out < kMostRows && n_out * (k + words) < kMostValues;
    },
    [](const RelateAsked&) { return "the map may have " + power(kLogValues) + " values or more"; }};

const Condition<RelateAsked> kMadeRowsFit{
    Step::shape, "",
    [](const RelateAsked& asked) {
      if (asked.target || !asked.scatters()) return true;
      const KernelSpec& spec = asked.spec;
      const cpu::CoordSpan in = asked.in.span();
      for (int64_t r = 0; r < in.rows; ++r)
        for (size_t a = 0; a < 3; ++a) {
          const int64_t low = in.at(r, static_cast<int>(a) + 1) * spec.stride[a] - spec.padding[a];
          const int64_t high = low + (spec.size[a] - 1) * spec.dilation[a];
          if (low < std::numeric_limits<int32_t>::min() ||
              high > std::numeric_limits<int32_t>::max())
            return false;
        }
      return true;
    },
    [](const RelateAsked&) { return std::string("some output coordinate leaves int32"); }};

const Condition<RelateAsked> kFloored{
    Step::shape, "", [](const RelateAsked& asked) { return !is_reached(asked.kind); },
    [](const RelateAsked&) { return std::string("reached supports are built on the CPU"); }};

cpu::Distinct unique_sorted(const UniqueAsked& asked) {
  return cpu::distinct_rows(*asked.coords.index());
}

cpu::Buffer<int32_t> lookup_sorted(const LookupAsked& asked) {
  return cpu::lookup(*asked.coords.index(), *asked.queries.index());
}

Relation::Fresh relate_sorted(const RelateAsked& asked) {
  return relate_checked(asked.kind, asked.in, asked.spec, asked.target, asked.operation);
}

NeighborRelation::Ptr neighbors_by_tree(const NeighborsAsked& asked) {
  const auto& [source, query, batches, query_batches] = asked.rows;
  const NeighborIndex index(source, batches, asked.operation, "source_coords");
  return index.search(asked.query, asked.limit, query, query_batches, asked.operation);
}

Facts facts_of(const std::vector<mx::array>& arrays, std::optional<int64_t> n_out,
               std::string relation) {
  Facts facts;
  facts.n_in = arrays[0].shape(0);
  facts.n_out = n_out;
  for (const mx::array& a : arrays) facts.bytes += static_cast<double>(a.nbytes());
  facts.relation = std::move(relation);
  facts.storage = "coordinates, which exist";
  facts.shape = "rows of " + std::to_string(arrays[0].ndim() > 1 ? arrays[0].shape(1) : 0) + ", " +
                graph::dtype_name(arrays[0].dtype());
  return facts;
}

}  // namespace

std::optional<CoordinateSet> RelateAsked::out() const {
  if (target) return target;
  if (!scatters() && !is_reached(kind) && spec.stride == Triple{1, 1, 1} &&
      spec.padding == Triple{0, 0, 0})
    return in;
  return std::nullopt;
}

Facts UniqueAsked::facts() const {
  return facts_of(arrays_of(*this), std::nullopt, "none: rows are compared by value");
}
Facts LookupAsked::facts() const {
  return facts_of(arrays_of(*this), queries.rows(), "none: rows are compared by value");
}
Facts RelateAsked::facts() const {
  const auto known = out();
  return facts_of(arrays_of(*this), known ? std::optional(known->rows()) : std::nullopt,
                  std::string("to be built: ") + kind_name(kind) + ", " + spec.text());
}
Facts NeighborsAsked::facts() const {
  return facts_of(arrays_of(*this), rows.query.value_or(rows.source).shape(0),
                  "to be built: neighbors");
}

const Table<UniqueAsked, cpu::Distinct>& unique_rows() {
  static const Table<UniqueAsked, cpu::Distinct> table(
      "unique", "distinct coordinates",
      {{kCpu, Code::host, "cpu.sorted", {}, "any coordinates: sorted keys", counted<unique_sorted>},
       {kGpu, Code::host, "cpu.unified", {}, kUnified, counted<unique_sorted>},
       {kGpu,
        Code::metal,
        "metal.hash",
        {takes_32_bits<UniqueAsked>("int32 coordinates")},
        "a table, then a prefix sum" + kOptIn,
        counted<unique_with_metal>}});
  return table;
}

const Table<LookupAsked, cpu::Buffer<int32_t>>& lookup_rows() {
  static const Table<LookupAsked, cpu::Buffer<int32_t>> table(
      "lookup", "coordinates found by value",
      {{kCpu,
        Code::host,
        "cpu.sorted",
        {},
        "any coordinates: sorted keys, merged",
        counted<lookup_sorted>},
       {kGpu, Code::host, "cpu.unified", {}, kUnified, counted<lookup_sorted>},
       {kGpu,
        Code::metal,
        "metal.hash",
        {takes_32_bits<LookupAsked>("int32 coordinates")},
        "a table" + kOptIn,
        counted<lookup_with_metal>}});
  return table;
}

const Table<RelateAsked, Relation::Fresh>& relate_rows() {
  static const Table<RelateAsked, Relation::Fresh> table(
      "relate", "relation of coordinates",
      {{kCpu,
        Code::host,
        "cpu.sorted",
        {},
        "any coordinates: sorted keys, walked once for each (x, y) offset",
        counted<relate_sorted>},
       {kGpu, Code::host, "cpu.unified", {}, kUnified, counted<relate_sorted>},
       {kGpu,
        Code::metal,
        "metal.hash",
        {takes_32_bits<RelateAsked>("int32 coordinates"), kFloored, kShortMap, kMadeRowsFit},
        "a table, probed for each output row and offset" + kOptIn,
        counted<relate_with_metal>}});
  return table;
}

const Table<NeighborsAsked, NeighborRelation::Ptr>& neighbors_rows() {
  static const Table<NeighborsAsked, NeighborRelation::Ptr> table(
      "neighbors", "neighbors",
      {{kCpu,
        Code::host,
        "cpu.tree",
        {},
        "any rows: k-d trees of both ends",
        counted<neighbors_by_tree>},
       {kGpu, Code::host, "cpu.unified", {}, kUnified, counted<neighbors_by_tree>},
       {kGpu,
        Code::metal,
        "metal.brute",
        {takes_32_bits<NeighborsAsked>("float points or int32 coordinates")},
        "every query against every source" + kOptIn,
        counted<neighbors_with_metal>}});
  return table;
}

namespace {

mx::array array_of(const cpu::Buffer<int32_t>& values) {
  return new_array(values.data(), {static_cast<int>(values.size())}, mx::int32);
}

}  // namespace

graph::Arrays compared(const UniqueAsked&, const cpu::Distinct& made) {
  return {array_of(made.inverse), array_of(made.first)};
}
graph::Arrays compared(const LookupAsked&, const cpu::Buffer<int32_t>& made) {
  return {array_of(made)};
}
graph::Arrays compared(const RelateAsked&, const Relation::Fresh& made) {
  return {made->implicit_gemm().out_in_map, made->implicit_gemm().row_masks};
}
graph::Arrays compared(const NeighborsAsked&, const NeighborRelation::Ptr& made) {
  return {mx::array(static_cast<float>(made->truncated())), made->row_offsets(),
          made->source_rows(), made->distances()};
}

}  // namespace lattice::routes
