// Rotary position encoding from plain MLX operations.
#include <mlx/ops.h>

#include <cmath>

#include "lattice/routes/rotary.h"

namespace lattice {

mx::array rotary_with_mlx(const Call& call) {
  const Rotary& r = call.get<Rotary>();
  const mx::StreamOrDevice s = call.stream;
  const mx::array& x = call.inputs[0];
  const int n = x.shape(0), heads = x.shape(1), size = x.shape(2), axes = r.positions.shape(1),
            pairs = size / (2 * axes), rotated = 2 * pairs * axes;
  if (x.size() == 0 || pairs == 0) return x;
  std::vector<float> frequencies;
  for (int m = 0; m < pairs; ++m)
    frequencies.push_back(static_cast<float>(std::pow(r.base, -double(m) / double(pairs))));
  const mx::array angles =
      mx::reshape(mx::multiply(mx::expand_dims(r.positions, 2, s),
                               mx::array(frequencies.data(), {1, 1, pairs}, mx::float32), s),
                  {n, 1, pairs * axes, 1}, s);
  const mx::array c = mx::cos(angles, s),
                  d = r.inverse ? mx::negative(mx::sin(angles, s), s) : mx::sin(angles, s);
  const mx::array values = as_float32(x, s);
  const mx::array part = mx::reshape(mx::slice(values, {0, 0, 0}, {n, heads, rotated}, s),
                                     {n, heads, pairs * axes, 2}, s);
  const mx::array x0 = mx::slice(part, {0, 0, 0, 0}, {n, heads, pairs * axes, 1}, s),
                  x1 = mx::slice(part, {0, 0, 0, 1}, {n, heads, pairs * axes, 2}, s);
  const mx::array y0 = mx::subtract(mx::multiply(x0, c, s), mx::multiply(x1, d, s), s),
                  y1 = mx::add(mx::multiply(x0, d, s), mx::multiply(x1, c, s), s);
  mx::array y = mx::reshape(mx::concatenate({y0, y1}, 3, s), {n, heads, rotated}, s);
  if (rotated < size)
    y = mx::concatenate({y, mx::slice(values, {0, 0, rotated}, {n, heads, size}, s)}, 2, s);
  return mx::astype(y, x.dtype(), s);
}

}  // namespace lattice
