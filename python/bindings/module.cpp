// The extension module mlx_lattice._ext. No logic here: one line per topic, and what C++ exceptions
// become.
#include "bind.h"
#include "lattice/core/errors.h"

NB_MODULE(_ext, m) {
  nb::register_exception_translator([](const std::exception_ptr& p, void*) {
    // nanobind itself turns std::invalid_argument into ValueError and std::overflow_error into
    // OverflowError.
    try {
      std::rethrow_exception(p);
    } catch (const lattice::TypeError& e) {
      PyErr_SetString(PyExc_TypeError, e.what());
    }
  });

  bind_backend(m);
  bind_coords(m);
  bind_relations(m);
  bind_manager(m);
  bind_tensor(m);
  bind_routes(m);
  bind_quantize(m);
  bind_conv(m);
  bind_integer(m);
  bind_optimizer(m);
  bind_pool(m);
  bind_plan(m);
  bind_points(m);
  bind_layouts(m);
  bind_maps(m);
  bind_entropy(m);
  bind_codec(m);
  bind_io(m);
  bind_registration(m);
  bind_algebra(m);
  bind_attention(m);
  bind_features(m);
  bind_segments(m);
  bind_neighbors(m);
  bind_surface(m);
  bind_triplets(m);
  bind_distance(m);
  bind_rulebook(m);
  bind_boxes(m);
  bind_voxels(m);
  bind_program(m);
  bind_tiles(m);
}
