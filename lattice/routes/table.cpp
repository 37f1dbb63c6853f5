#include "lattice/routes/table.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "lattice/core/errors.h"
#include "lattice/core/row_independent.h"
#include "lattice/routes/attention.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/conv.h"
#include "lattice/routes/distance.h"
#include "lattice/routes/geometry.h"
#include "lattice/routes/int_conv.h"
#include "lattice/routes/norm.h"
#include "lattice/routes/optimizer.h"
#include "lattice/routes/pool.h"

namespace lattice::routes {
namespace {

std::string trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(' '), end = text.find_last_not_of(' ');
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// "conv=cpu.reference, outer=cpu.tiles" -> the name for this operation, if any.
std::optional<std::string> forced_route(const std::string& operation) {
  const char* text = std::getenv("LATTICE_ROUTE");
  if (!text) return std::nullopt;
  std::stringstream list{std::string(text)};
  for (std::string item; std::getline(list, item, ',');) {
    const size_t equals = item.find('=');
    if (equals == std::string::npos)
      fail("LATTICE_ROUTE", "expected \"operation=route,...\", got \"" + item + "\"");
    const std::string key = trimmed(item.substr(0, equals));
    if (key == operation) return trimmed(item.substr(equals + 1));
    if (std::ranges::none_of(tables(), [&](const AnyTable* t) { return t->operation == key; }))
      fail("LATTICE_ROUTE", "there is no operation \"" + key + "\"");
  }
  return std::nullopt;
}

}  // namespace

Frame::Frame(const AnyTable& table, mx::StreamOrDevice s)
    : device(on_gpu(s) ? kGpu : kCpu),
      forced(forced_route(table.operation)),
      rows_alone(RowIndependent::is_asked()) {}

const std::vector<const AnyTable*>& tables() {
  static const std::vector<const AnyTable*> all = {
      &conv_rows(),           &linear_rows(),        &outer_rows(),    &per_edge_apply_rows(),
      &per_edge_outer_rows(), &int_conv_rows(),      &pool_rows(),     &segments_rows(),
      &argmax_rows(),         &gather_rows(),        &map_rows_rows(), &distance_rows(),
      &attention_rows(),      &attention_vjp_rows(), &unique_rows(),   &lookup_rows(),
      &relate_rows(),         &neighbors_rows(),     &norm_rows(),     &norm_vjp_rows(),
      &all_finite_rows()};
  return all;
}

std::vector<const Route*> all() {
  std::vector<const Route*> rows;
  for (const AnyTable* table : tables())
    rows.insert(rows.end(), table->routes.begin(), table->routes.end());
  return rows;
}

int64_t run_count(const std::string& operation, const std::string& route) {
  int64_t count = 0;
  for (const Route* row : all())
    if (row->operation == operation && row->name == route) count += row->runs.n;
  return count;
}

}  // namespace lattice::routes
