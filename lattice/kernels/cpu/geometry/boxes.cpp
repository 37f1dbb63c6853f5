#include "lattice/kernels/cpu/geometry/boxes.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"

namespace lattice::cpu {
namespace {

// A convex polygon gains one corner at each of four cuts. Rounding may make it slightly concave;
// then a cut of n corners leaves at most 3 n / 2: 4, 6, 9, 13, 19.
constexpr int kMostCorners = 20;
constexpr double kLeastArea = 1e-8, kLeastVolume = 1e-6;

struct Polygon {
  std::array<double, kMostCorners> x, y;
  int size = 0;
  void add(double px, double py) {
    x[static_cast<size_t>(size)] = px;
    y[static_cast<size_t>(size++)] = py;
  }
};

// The part of the polygon with sign * coordinate <= limit. `axis` 0 cuts x, 1 cuts y.
Polygon clipped(const Polygon& from, int axis, double sign, double limit) {
  Polygon out;
  if (from.size == 0) return out;
  const auto& along = axis == 0 ? from.x : from.y;
  size_t before = static_cast<size_t>(from.size - 1);
  double d_before = limit - sign * along[before];
  for (size_t i = 0; i < static_cast<size_t>(from.size); ++i) {
    const double d = limit - sign * along[i];
    if ((d >= 0) != (d_before >= 0)) {
      const double t = d_before / (d_before - d);
      out.add(from.x[before] + t * (from.x[i] - from.x[before]),
              from.y[before] + t * (from.y[i] - from.y[before]));
    }
    if (d >= 0) out.add(from.x[i], from.y[i]);
    before = i;
    d_before = d;
  }
  return out;
}

double area_of(const Polygon& p) {
  double twice = 0;
  for (int i = 1; i + 1 < p.size; ++i) {
    const size_t a = static_cast<size_t>(i), b = a + 1;
    twice += (p.x[a] - p.x[0]) * (p.y[b] - p.y[0]) - (p.x[b] - p.x[0]) * (p.y[a] - p.y[0]);
  }
  return std::max(0.0, twice / 2);
}

double length(double center_a, double half_a, double center_b, double half_b) {
  return std::max(0.0, std::min(center_a + half_a, center_b + half_b) -
                           std::max(center_a - half_a, center_b - half_b));
}

bool far_apart(const RotatedBox& a, const RotatedBox& b) {
  const double dx = a.x - b.x, dy = a.y - b.y, reach = a.radius + b.radius;
  return dx * dx + dy * dy > reach * reach;
}

double upright_area(const RotatedBox& a, const RotatedBox& b) {
  return length(0, a.dx / 2, b.x - a.x, b.dx / 2) * length(0, a.dy / 2, b.y - a.y, b.dy / 2);
}

double union_ratio(double shared, double a, double b, double least) {
  return shared / std::max(a + b - shared, least);
}

std::vector<RotatedBox> all_boxes(const double* rows, int64_t n) {
  std::vector<RotatedBox> boxes(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) boxes[static_cast<size_t>(i)] = rotated_box(rows + i * 7);
  return boxes;
}

// Whether the BEV IoU is above the threshold. The upright rectangles around the boxes bound the
// intersection from above; the margin is far above the rounding of either.
bool overlap_above(const RotatedBox& a, const RotatedBox& b, double threshold) {
  const double most =
      std::min({length(0, a.half_x, b.x - a.x, b.half_x) * length(0, a.half_y, b.y - a.y, b.half_y),
                a.area(), b.area()});
  constexpr double kMargin = 1 + 1e-9;
  if (threshold >= 0 && union_ratio(most, a.area(), b.area(), kLeastArea) * kMargin <= threshold)
    return false;
  return box_overlap(a, b, BoxOverlap::bev) > threshold;
}

// The candidates in the order of falling scores, with what the search reads side by side.
struct Candidates {
  std::vector<int32_t> rows;
  std::vector<RotatedBox> boxes;
  std::vector<float> x, y, reach;  // float32, with the reach rounded up
};

Candidates candidates_of(const double* boxes, const float* scores, int64_t n, int64_t pre) {
  Candidates c;
  c.rows.resize(static_cast<size_t>(n));
  std::iota(c.rows.begin(), c.rows.end(), 0);
  std::stable_sort(c.rows.begin(), c.rows.end(),
                   [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  if (pre >= 0 && pre < n) c.rows.resize(static_cast<size_t>(pre));
  for (const int32_t row : c.rows) {
    const RotatedBox box = rotated_box(boxes + int64_t{row} * 7);
    c.boxes.push_back(box);
    c.x.push_back(static_cast<float>(box.x));
    c.y.push_back(static_cast<float>(box.y));
    const double size = std::abs(box.x) + std::abs(box.y) + box.radius;
    c.reach.push_back(static_cast<float>(box.radius + 4e-7 * size));
  }
  return c;
}

// may_fall[j] for all j > i: whether j still stands and can meet box i. A plain loop, which
// compilers turn into vectors.
void mark_near(const Candidates& c, size_t i, bool is_local, const uint8_t* is_out,
               uint8_t* may_fall) {
  const size_t count = c.rows.size();
  const float *xs = c.x.data(), *ys = c.y.data(), *reaches = c.reach.data();
  const float x = xs[i], y = ys[i], reach = reaches[i];
  for (size_t j = i + 1; j < count; ++j) {
    const float dx = xs[j] - x, dy = ys[j] - y, r = (reaches[j] + reach) * 1.00001f;
    const int is_near = dx * dx + dy * dy <= r * r || !is_local;
    may_fall[j] = static_cast<uint8_t>(is_near & (is_out[j] ^ 1));
  }
}

}  // namespace

RotatedBox rotated_box(const double* b) {
  RotatedBox box{b[0], b[1], b[2], b[3], b[4], b[5], std::cos(b[6]), std::sin(b[6]), 0, 0, 0};
  box.radius = std::hypot(box.dx, box.dy) / 2;
  box.half_x = (std::abs(box.cos) * box.dx + std::abs(box.sin) * box.dy) / 2;
  box.half_y = (std::abs(box.sin) * box.dx + std::abs(box.cos) * box.dy) / 2;
  return box;
}

double intersection_area(const RotatedBox& a, const RotatedBox& b) {
  if (far_apart(a, b)) return 0;
  // Corners of a in the frame of b.
  const double tx = a.x - b.x, ty = a.y - b.y;
  const double x = tx * b.cos + ty * b.sin, y = ty * b.cos - tx * b.sin;
  const double c = a.cos * b.cos + a.sin * b.sin, s = a.sin * b.cos - a.cos * b.sin;
  const double ux = c * a.dx / 2, uy = s * a.dx / 2, vx = -s * a.dy / 2, vy = c * a.dy / 2;
  Polygon p;
  p.add(x + ux + vx, y + uy + vy);
  p.add(x - ux + vx, y - uy + vy);
  p.add(x - ux - vx, y - uy - vy);
  p.add(x + ux - vx, y + uy - vy);
  const double hx = b.dx / 2, hy = b.dy / 2;
  p = clipped(clipped(clipped(clipped(p, 0, 1, hx), 0, -1, hx), 1, 1, hy), 1, -1, hy);
  return area_of(p);
}

double box_overlap(const RotatedBox& a, const RotatedBox& b, BoxOverlap kind) {
  switch (kind) {
    case BoxOverlap::area:
      return intersection_area(a, b);
    case BoxOverlap::upright:
      return union_ratio(upright_area(a, b), a.area(), b.area(), kLeastArea);
    case BoxOverlap::volume: {
      const double shared = length(0, a.dz / 2, b.z - a.z, b.dz / 2) * intersection_area(a, b);
      return union_ratio(shared, a.area() * a.dz, b.area() * b.dz, kLeastVolume);
    }
    default:
      return union_ratio(intersection_area(a, b), a.area(), b.area(), kLeastArea);
  }
}

void overlap_matrix(const double* a, int64_t n, const double* b, int64_t m, BoxOverlap kind,
                    double* out) {
  const std::vector<RotatedBox> rows = all_boxes(a, n), columns = all_boxes(b, m);
  parallel_range(n, 1 + (1 << 14) / std::max<int64_t>(m, 1), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = 0; j < m; ++j) {
        const RotatedBox &p = rows[static_cast<size_t>(i)], &q = columns[static_cast<size_t>(j)];
        out[i * m + j] = far_apart(p, q) ? 0 : box_overlap(p, q, kind);
      }
  });
}

void overlap_pairs(const double* a, const double* b, int64_t n, BoxOverlap kind, double* out) {
  parallel_range(n, 1 << 10, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      out[i] = box_overlap(rotated_box(a + i * 7), rotated_box(b + i * 7), kind);
  });
}

Buffer<int32_t> suppress(const double* boxes, const float* scores, int64_t n, double threshold,
                         Suppression kind, int64_t pre, int64_t post) {
  const Candidates c = candidates_of(boxes, scores, n, pre);
  const size_t count = c.rows.size();
  // Whole words of eight marks are read, so that the tail needs room.
  std::vector<uint8_t> is_out(count + sizeof(uint64_t)), may_fall(count + sizeof(uint64_t));
  const auto falls = [&](const RotatedBox& kept, const RotatedBox& other) {
    if (kind == Suppression::rotated) return overlap_above(kept, other, threshold);
    if (kind == Suppression::upright)
      return box_overlap(kept, other, BoxOverlap::upright) > threshold;
    const double dx = kept.x - other.x, dy = kept.y - other.y;
    return dx * dx + dy * dy <= threshold;
  };
  // With a negative threshold, boxes that do not meet at all suppress each other too.
  const bool is_local = kind != Suppression::circle && threshold >= 0;
  Buffer<int32_t> kept(static_cast<int64_t>(count));
  int64_t n_kept = 0;
  for (size_t i = 0; i < count && (post < 0 || n_kept < post); ++i) {
    if (is_out[i]) continue;
    kept[n_kept++] = c.rows[i];
    mark_near(c, i, is_local, is_out.data(), may_fall.data());
    for (size_t j = i + 1; j < count; j += sizeof(uint64_t)) {
      uint64_t some = 0;
      std::memcpy(&some, &may_fall[j], sizeof(some));
      if (some == 0) continue;
      for (size_t k = j; k < std::min(count, j + sizeof(uint64_t)); ++k)
        if (may_fall[k]) is_out[k] = falls(c.boxes[i], c.boxes[k]);
    }
  }
  kept.shrink(n_kept);
  return kept;
}

void points_in_boxes(const float* points, int64_t n, const double* rows, int64_t m,
                     int32_t* owner) {
  const std::vector<RotatedBox> boxes = all_boxes(rows, m);
  parallel_range(n, 1 << 10, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      owner[i] = -1;
      for (size_t j = 0; j < boxes.size() && owner[i] < 0; ++j) {
        const RotatedBox& b = boxes[j];
        const double x = double{points[i * 3]} - b.x, y = double{points[i * 3 + 1]} - b.y,
                     z = double{points[i * 3 + 2]} - b.z;
        if (std::abs(z) <= b.dz / 2 && std::abs(x * b.cos + y * b.sin) <= b.dx / 2 &&
            std::abs(y * b.cos - x * b.sin) <= b.dy / 2)
          owner[i] = static_cast<int32_t>(j);
      }
    }
  });
}

}  // namespace lattice::cpu
