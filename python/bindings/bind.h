// Each file of this folder binds one topic; module.cpp calls them all.
#pragma once

#include <nanobind/nanobind.h>

namespace nb = nanobind;

// Other Python threads run while one lives. Every function that may build geometry, evaluate an
// array or wait holds one: as an object, as the argument Unlocked() of def, or through unlocked().
using Release = nb::gil_scoped_release;
using Unlocked = nb::call_guard<Release>;

template <typename F>
auto unlocked(const F& f) {
  Release release;
  return f();
}

void bind_algebra(nb::module_& m);
void bind_attention(nb::module_& m);
void bind_backend(nb::module_& m);
void bind_boxes(nb::module_& m);
void bind_codec(nb::module_& m);
void bind_conv(nb::module_& m);
void bind_coords(nb::module_& m);
void bind_features(nb::module_& m);
void bind_distance(nb::module_& m);
void bind_optimizer(nb::module_& m);
void bind_pool(nb::module_& m);
void bind_integer(nb::module_& m);
void bind_io(nb::module_& m);
void bind_layouts(nb::module_& m);
void bind_manager(nb::module_& m);
void bind_maps(nb::module_& m);
void bind_neighbors(nb::module_& m);
void bind_plan(nb::module_& m);
void bind_points(nb::module_& m);
void bind_program(nb::module_& m);
void bind_entropy(nb::module_& m);
void bind_quantize(nb::module_& m);
void bind_registration(nb::module_& m);
void bind_routes(nb::module_& m);
void bind_relations(nb::module_& m);
void bind_rulebook(nb::module_& m);
void bind_segments(nb::module_& m);
void bind_surface(nb::module_& m);
void bind_tensor(nb::module_& m);
void bind_tiles(nb::module_& m);
void bind_triplets(nb::module_& m);
void bind_voxels(nb::module_& m);
