/// @file
/// Rotated boxes: overlaps, the choice among overlapping boxes, and the points inside of boxes.
/// Results are concrete: they are computed on the CPU when the function is called, and have no
/// derivative.
///
/// A box is a row (x, y, z, dx, dy, dz, heading); z is the center, dx lies along the heading, and
/// the heading turns counterclockwise from x. More columns are not read. Boxes are float32,
/// float16, bfloat16 or float64 (then overlaps are float64 too), finite, with sizes >= 0; otherwise
/// std::invalid_argument names the row.
#pragma once

#include <cstdint>
#include <string_view>

#include "lattice/core/names.h"

namespace lattice {

/// (N, M) overlaps of boxes a (N, 7) and b (M, 7). kind: "bev" is the IoU seen from above, "3d"
/// that of the volumes, "upright" that seen from above without the headings, "area" the area that
/// both cover. Exact to the rounding of float64.
LATTICE_API mx::array box_overlap(const mx::array& a, const mx::array& b, std::string_view kind);
/// (N,) overlaps of a[i] with b[i].
LATTICE_API mx::array box_overlap_pairs(const mx::array& a, const mx::array& b,
                                        std::string_view kind);

/// (K,) int32: rows that stay, by falling scores; of equal scores the lower row comes first. A box
/// falls when its overlap with a kept one is above `threshold`: kind "rotated" takes the IoU seen
/// from above, "upright" the same without the headings. With "circle" it falls when the squared
/// distance of the centers is at most `threshold`. Only the `pre` best rows take part, and at most
/// `post` stay; -1: no limit.
LATTICE_API mx::array nms(const mx::array& boxes, const mx::array& scores, double threshold,
                          std::string_view kind, int64_t pre = -1, int64_t post = -1);

/// (N,) int32: for each point of (N, 3) the first box that holds it, sides included; -1 if none.
LATTICE_API mx::array points_in_boxes(const mx::array& points, const mx::array& boxes);

}  // namespace lattice
