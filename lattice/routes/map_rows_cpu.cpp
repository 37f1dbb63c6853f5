// map_rows on the CPU.
#include <cmath>

#include "lattice/routes/launch.h"
#include "lattice/routes/pool.h"

namespace lattice::routes {
namespace {

using Kernel = void (*)(const RowMap&, const cpu::RowArray&, void*);

mx::array node(const MapRowsAsked& asked, const Route& route, Kernel kernel) {
  return cpu_node(
      route, asked.stream, contiguous({asked.x}, asked.stream), address(asked.map.get()),
      {{static_cast<int>(asked.map->n_out()), asked.x.shape(1)}, asked.x.dtype()},
      [kernel, map = asked.map](std::span<const graph::Input> in, const graph::Output& out) {
        kernel(*map, row_array(in[0]), out.data);
      });
}

void reduce(const RowMap& map, const cpu::RowArray& x, void* out) {
  if (!map.offsets()) return cpu::gather_rows(x, map.rows(), map.n_out(), 0.0f, out);
  cpu::reduce_segments({map.n_out(), map.offsets(), map.rows(), nullptr, map.weights()}, x,
                       map.reduction(), out);
}

// One element at a time, sums in float64.
void reference(const RowMap& map, const cpu::RowArray& x, void* out) {
  cpu::visit_float_type(x.storage, [&]<typename T>(T) {
    for (int64_t o = 0; o < map.n_out(); ++o)
      for (int64_t c = 0; c < x.channels; ++c) {
        const int64_t from = map.offsets() ? map.offsets()[o] : o,
                      to = map.offsets() ? map.offsets()[o + 1] : o + 1;
        double value = map.reduction() == Reduction::max && from < to ? -INFINITY : 0;
        for (int64_t e = from; e < to; ++e) {
          if (map.rows()[e] < 0) {
            value = 0;
            continue;
          }
          const double v =
              double{cpu::widen(static_cast<const T*>(x.x)[map.rows()[e] * x.channels + c])} *
              double{map.weights() ? map.weights()[e] : 1.0f};
          if (map.reduction() != Reduction::max)
            value += v;
          else if (!(v <= value) && !std::isnan(value))
            value = v;
        }
        if (map.reduction() == Reduction::mean && from < to)
          value /= static_cast<double>(to - from);
        static_cast<T*>(out)[o * x.channels + c] = cpu::narrow<T>(static_cast<float>(value));
      }
  });
}

}  // namespace

mx::array map_rows_segments(const MapRowsAsked& asked, const Route& route) {
  return node(asked, route, reduce);
}
mx::array map_rows_reference(const MapRowsAsked& asked, const Route& route) {
  return node(asked, route, reference);
}

}  // namespace lattice::routes
