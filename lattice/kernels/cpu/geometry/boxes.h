// Overlap of rotated boxes, and the greedy choice among boxes that overlap.
//
//   area(a, b) = area of the intersection of the two rectangles seen from above
//   BEV IoU    = area / max(A + B - area, 1e-8)
//   3D IoU     = v / max(V_a + V_b - v, 1e-6),   v = area * overlap of the z intervals
//
// The intersection is exact: the corners of one rectangle, in the frame of the other, are clipped
// at its four sides (Sutherland and Hodgman, "Reentrant polygon clipping", 1974). All sums are
// float64 and relative to one center, so that coordinates of a map keep their digits.
#pragma once

#include <cstdint>

#include "lattice/kernels/cpu/base/memory.h"

namespace lattice::cpu {

// A box (x, y, z, dx, dy, dz, heading): z is the center, dx lies along the heading, and the heading
// turns counterclockwise from x. The rest is derived.
struct RotatedBox {
  double x, y, z, dx, dy, dz;
  double cos, sin;        // of the heading
  double radius;          // of the circle around the rectangle
  double half_x, half_y;  // half the sides of the upright rectangle around it
  double area() const { return dx * dy; }
};
RotatedBox rotated_box(const double* seven);

// The kind of overlap: the IoU seen from above, the area seen from above, the IoU of the volumes,
// or the IoU seen from above without the headings.
enum class BoxOverlap { bev, area, volume, upright };

double intersection_area(const RotatedBox& a, const RotatedBox& b);
double box_overlap(const RotatedBox& a, const RotatedBox& b, BoxOverlap kind);

// out[i * m + j] of all pairs, or out[i] of pairs (i, i).
void overlap_matrix(const double* a, int64_t n, const double* b, int64_t m, BoxOverlap kind,
                    double* out);
void overlap_pairs(const double* a, const double* b, int64_t n, BoxOverlap kind, double* out);

// When a kept box suppresses another one: if their BEV IoU, with or without headings, is above the
// threshold, or if the squared distance of their centers is at most the threshold.
enum class Suppression { rotated, upright, circle };

// Rows of boxes (n, 7) that stay, in the order of falling scores, of equal ones the lower row
// first: of the `pre` best rows those that no row before suppresses, at most `post`; negative: no
// limit.
Buffer<int32_t> suppress(const double* boxes, const float* scores, int64_t n, double threshold,
                         Suppression kind, int64_t pre, int64_t post);

// owner[i] is the first box that holds point i of (n, 3), sides included; -1: none.
void points_in_boxes(const float* points, int64_t n, const double* boxes, int64_t m,
                     int32_t* owner);

}  // namespace lattice::cpu
