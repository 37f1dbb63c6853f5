// Rotated boxes. Arguments only.
#include "lattice/ops/boxes.h"

#include "arguments.h"
#include "bind.h"

using namespace lattice;
using namespace nb::literals;

void bind_boxes(nb::module_& m) {
  def(m, "box_overlap", &box_overlap, "a"_a, "b"_a, "kind"_a, Unlocked());
  def(m, "box_overlap_pairs", &box_overlap_pairs, "a"_a, "b"_a, "kind"_a, Unlocked());
  def(m, "nms", &nms, "boxes"_a, "scores"_a, "threshold"_a, "kind"_a, "pre"_a, "post"_a,
      Unlocked());
  def(m, "points_in_boxes", &points_in_boxes, "points"_a, "boxes"_a, Unlocked());
}
