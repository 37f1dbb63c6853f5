// Float points for benchmarks, the same for the same arguments: flat (n, 3) float32.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/support/random.h"

namespace lattice::bench {

using Cloud = std::vector<float>;

// One turn of a scanner with 64 beams of 2,048 directions over ground with objects, in the order of
// acquisition: about 126,000 points, very dense near the scanner, thin rings far away.
inline Cloud sweep(uint64_t seed = 1) {
  support::Random random(seed);
  std::vector<double> wall(2048);  // distance of the nearest object in each direction
  for (size_t t = 0; t < wall.size();) {
    const double distance = random.chance(0.4) ? random.uniform(4, 20) : random.uniform(20, 75);
    for (int64_t width = 8 + random.below(90); width > 0 && t < wall.size(); --width, ++t)
      wall[t] = distance + 0.01 * static_cast<double>(width);
  }
  Cloud points;
  for (size_t t = 0; t < wall.size(); ++t)
    for (int beam = 0; beam < 64; ++beam) {
      if (random.chance(0.04)) continue;
      const double angle = 2 * M_PI * static_cast<double>(t) / 2048,
                   slope = 0.035 - 0.49 * beam / 63;
      const double ground = slope < -0.02 ? -1.73 / slope : 1e9;
      const double range = std::min({ground, wall[t], 80.0}) + 0.015 * random.bump();
      for (const double v : {range * std::cos(angle), range * std::sin(angle), range * slope})
        points.push_back(static_cast<float>(v));
    }
  return points;
}

// n points on the walls and furniture of rooms, noise 2 mm; about 90 m^2 for each million points.
// `shuffled`: in no order.
inline Cloud scan(int64_t n, bool shuffled, uint64_t seed = 1) {
  support::Random random(seed);
  const double edge = 3 * std::sqrt(static_cast<double>(n) * 1e-6);
  Cloud points;
  points.reserve(static_cast<size_t>(n * 3));
  constexpr int kSheets = 24;
  for (int s = 0; s < kSheets; ++s) {
    const int64_t rows = n * (s + 1) / kSheets - n * s / kSheets;
    const int axis = s % 3;
    double corner[3], size[3];
    for (int a = 0; a < 3; ++a)
      corner[a] = random.uniform(0, edge), size[a] = random.uniform(0.5, 1) * edge;
    for (int64_t i = 0; i < rows; ++i) {
      const double u = static_cast<double>(i) / static_cast<double>(rows), v = random.unit();
      double p[3];
      p[axis] = corner[axis] + 0.002 * random.bump();
      p[(axis + 1) % 3] = corner[(axis + 1) % 3] + u * size[(axis + 1) % 3];
      p[(axis + 2) % 3] = corner[(axis + 2) % 3] + v * size[(axis + 2) % 3];
      for (double x : p) points.push_back(static_cast<float>(x));
    }
  }
  if (shuffled) random.shuffle_rows(points, 3);
  return points;
}

}  // namespace lattice::bench
