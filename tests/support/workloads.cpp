#include "tests/support/workloads.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>

#include "tests/support/random.h"

namespace lattice::support {
namespace {

using Point = std::array<double, 3>;

struct Box {
  Point low;
  Point high;
};

// Sorts, drops duplicates, shuffles.
Coords finish(std::vector<std::array<int32_t, 4>>& rows, Random& random) {
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  Coords flat;
  flat.reserve(rows.size() * 4);
  for (const auto& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  random.shuffle_rows(flat, 4);
  return flat;
}

std::array<int32_t, 4> voxel(const Point& p, double per_metre) {
  return {0, static_cast<int32_t>(std::floor(p[0] * per_metre)),
          static_cast<int32_t>(std::floor(p[1] * per_metre)),
          static_cast<int32_t>(std::floor(p[2] * per_metre))};
}

// Where the ray t * d from the origin enters the box; infinity when it does not (slab method).
double enter(const Box& box, const Point& d) {
  double near = 0, far = 1e30;
  for (int a = 0; a < 3; ++a) {
    if (d[a] == 0) {
      if (box.low[a] > 0 || box.high[a] < 0) return 1e30;
      continue;
    }
    double t0 = box.low[a] / d[a], t1 = box.high[a] / d[a];
    near = std::max(near, std::min(t0, t1));
    far = std::min(far, std::max(t0, t1));
  }
  return near > 0 && near <= far ? near : 1e30;
}

// Street scene around a scanner at the origin, 1.73 m above the ground.
std::vector<Box> street(Random& random) {
  std::vector<Box> boxes;
  auto add = [&](double half_x, double half_y, double height, double near, double far) {
    double x, y;
    do {
      x = random.uniform(-far, far);
      y = random.uniform(-far, far);
    } while (std::max(std::abs(x) - half_x, std::abs(y) - half_y) < near);
    boxes.push_back({{x - half_x, y - half_y, -1.8}, {x + half_x, y + half_y, -1.73 + height}});
  };
  for (int i = 0; i < 30; ++i) add(2.1, 0.9, 1.5, 3.0, 35.0);    // cars
  for (int i = 0; i < 40; ++i) add(0.15, 0.15, 4.0, 4.0, 40.0);  // poles
  for (int i = 0; i < 30; ++i) add(0.3, 0.25, 1.7, 3.0, 30.0);   // people
  for (int i = 0; i < 30; ++i) {  // houses; braces fix the order of the draws
    Point half{random.uniform(4, 9), random.uniform(4, 9), random.uniform(4, 9)};
    add(half[0], half[1], half[2], 12.0, 50.0);
  }
  return boxes;
}

// A rectangle corner + u * a + v * b, 0 <= u, v < 1, of which a share `missing` of 0.4 m patches
// was not seen.
struct Sheet {
  Point corner, a, b;
  double missing;
};

void add_box(std::vector<Sheet>& sheets, const Point& p, const Point& size, double missing) {
  auto [x, y, z] = size;
  sheets.push_back({{p[0], p[1], p[2] + z}, {x, 0, 0}, {0, y, 0}, missing});
  for (double at : {0.0, y})
    sheets.push_back({{p[0], p[1] + at, p[2]}, {x, 0, 0}, {0, 0, z}, missing});
  for (double at : {0.0, x})
    sheets.push_back({{p[0] + at, p[1], p[2]}, {0, y, 0}, {0, 0, z}, missing});
}

std::vector<Sheet> rooms(Random& random) {
  std::vector<Sheet> sheets;
  for (int r = 0; r < 2; ++r) {
    double x0 = 0.013 + 4.9 * r, y0 = -0.017, wide = 4.5, deep = 3.4, high = 2.5;
    sheets.push_back({{x0, y0, 0.011}, {wide, 0, 0}, {0, deep, 0}, 0.05});
    for (double at : {0.0, deep})
      sheets.push_back({{x0, y0 + at, 0}, {wide, 0, 0}, {0, 0, high}, 0.2});
    for (double at : {0.0, wide})
      sheets.push_back({{x0 + at, y0, 0}, {0, deep, 0}, {0, 0, high}, 0.2});
    for (int i = 0; i < 9; ++i) {  // cupboards, tables, chairs
      Point size{random.uniform(0.5, 1.8), random.uniform(0.4, 0.9), random.uniform(0.4, 1.4)};
      add_box(sheets,
              {x0 + random.uniform(0, wide - size[0]), y0 + random.uniform(0, deep - size[1]), 0.0},
              size, 0.25);
    }
    for (int i = 0; i < 60; ++i) {  // clutter at any height, tilted
      double s = random.uniform(0.1, 0.4);
      Point corner{x0 + random.uniform(0, wide - s), y0 + random.uniform(0, deep - s),
                   random.uniform(0, 1.6)};
      Point a{s, random.uniform(-0.1, 0.1), random.uniform(-0.1, 0.1)};
      Point b{random.uniform(-0.1, 0.1), s, random.uniform(-s, s)};
      sheets.push_back({corner, a, b, 0.1});
    }
  }
  return sheets;
}

}  // namespace

Coords lidar(uint64_t seed) {
  constexpr int kBeams = 64, kTurns = 2048;
  constexpr double kStepCos = 0.99999529380957619,
                   kStepSin = 0.0030679567629659761;  // one turn / 2048
  Random random(seed);
  std::vector<Box> boxes = street(random);
  std::vector<std::array<int32_t, 4>> rows;
  double c = 0.8, s = 0.6;  // no ray runs along an axis, where the last bit would choose the voxel
  for (int turn = 0; turn < kTurns; ++turn) {
    for (int beam = 0; beam < kBeams; ++beam) {
      double slope =
          0.035 - 0.49 * beam / (kBeams - 1);  // tangent of the elevation: +2 to -24.5 degrees
      Point d{c, s, slope};
      double ground = slope < 0 ? -1.73 / slope : 1e30;
      double t = ground;
      for (const Box& box : boxes) t = std::min(t, enter(box, d));
      if (t > 60.0 || random.chance(0.14)) continue;  // out of reach, or lost
      t *= 1.0 + 0.003 * random.bump();
      double bumps = t >= ground * 0.99 ? 0.03 * random.bump() : 0.0;
      rows.push_back(voxel({t * d[0], t * d[1], t * d[2] + bumps}, 10.0));
    }
    double next = c * kStepCos - s * kStepSin;
    s = s * kStepCos + c * kStepSin;
    c = next;
  }
  return finish(rows, random);
}

Coords room(uint64_t seed) {
  constexpr double kPointsPerSquareMeter = 4000, kNoise = 0.0138;
  Random random(seed);
  std::vector<std::array<int32_t, 4>> rows;
  for (const Sheet& sheet : rooms(random)) {
    double la =
        std::sqrt(sheet.a[0] * sheet.a[0] + sheet.a[1] * sheet.a[1] + sheet.a[2] * sheet.a[2]);
    double lb =
        std::sqrt(sheet.b[0] * sheet.b[0] + sheet.b[1] * sheet.b[1] + sheet.b[2] * sheet.b[2]);
    int64_t na = static_cast<int64_t>(la / 0.4) + 1, nb = static_cast<int64_t>(lb / 0.4) + 1;
    std::vector<char> seen(na * nb);
    for (char& patch : seen) patch = !random.chance(sheet.missing);
    int64_t points = static_cast<int64_t>(la * lb * kPointsPerSquareMeter);
    for (int64_t i = 0; i < points; ++i) {
      double u = random.unit(), v = random.unit();
      Point p;
      for (int a = 0; a < 3; ++a)
        p[a] = sheet.corner[a] + u * sheet.a[a] + v * sheet.b[a] + kNoise * random.bump();
      if (seen[static_cast<int64_t>(u * na) * nb + static_cast<int64_t>(v * nb)])
        rows.push_back(voxel(p, 25.0));
    }
  }
  return finish(rows, random);
}

Coords random_set(int64_t n, int64_t extent, int64_t batches, uint64_t seed) {
  double possible =
      8.0 * static_cast<double>(extent) * static_cast<double>(extent) * static_cast<double>(extent);
  if (n < 0 || extent < 1 || batches < 1 ||
      static_cast<double>(n) > 0.5 * possible * static_cast<double>(batches))
    throw std::invalid_argument("[random_set] n must be at most half of the possible rows, found " +
                                std::to_string(n));
  Random random(seed);
  std::vector<std::array<int32_t, 4>> rows;
  auto coordinate = [&] { return static_cast<int32_t>(random.between(-extent, extent - 1)); };
  while (static_cast<int64_t>(rows.size()) < n) {
    for (int64_t i = static_cast<int64_t>(rows.size()); i < n; ++i) {
      int32_t batch = static_cast<int32_t>(random.below(batches)), x = coordinate(),
              y = coordinate(), z = coordinate();
      rows.push_back({batch, x, y, z});
    }
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  }
  return finish(rows, random);
}

Coords line(int64_t n, int32_t first, uint64_t seed) {
  Random random(seed);
  std::vector<std::array<int32_t, 4>> rows;
  for (int64_t i = 0; i < n; ++i) rows.push_back({0, static_cast<int32_t>(first + i), 0, 0});
  return finish(rows, random);
}

Coords dense_block(int64_t nx, int64_t ny, int64_t nz, uint64_t seed) {
  Random random(seed);
  std::vector<std::array<int32_t, 4>> rows;
  for (int64_t x = 0; x < nx; ++x)
    for (int64_t y = 0; y < ny; ++y)
      for (int64_t z = 0; z < nz; ++z)
        rows.push_back({0, static_cast<int32_t>(x - nx / 2), static_cast<int32_t>(y - ny / 2),
                        static_cast<int32_t>(z - nz / 2)});
  return finish(rows, random);
}

Coords empty() { return {}; }

Scene scene(const std::string& name) {
  if (name == "lidar") return {name, lidar()};
  if (name == "room") return {name, room()};
  if (name == "random") return {name, random_set(100000, 64, 2)};
  if (name == "line") return {name, line(20000, -10000)};
  if (name == "dense_block") return {name, dense_block(40, 40, 40)};
  if (name == "empty") return {name, empty()};
  throw std::invalid_argument(
      "[scene] name must be lidar, room, random, line, dense_block or empty, found " + name);
}

std::vector<Scene> scenes() {
  std::vector<Scene> all;
  for (const char* name : {"lidar", "room", "random", "line", "dense_block", "empty"})
    all.push_back(scene(name));
  return all;
}

}  // namespace lattice::support
