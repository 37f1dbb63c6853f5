// Whether a kernel of a GPU works on this machine.
//
// MLX compiles a kernel when it first runs, inside eval, where nothing can fall back. So before a
// row with a text of ours serves for the first time, a small case runs on the row and on the CPU.
// Once per row, dtype and packing. A row whose case throws or differs is refused from then on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lattice/routes/route.h"

namespace lattice {

struct Probe {
  std::string label;    // "conv metal.sorted float16"
  std::string failure;  // what was thrown, or how the results differ; empty: they agree
};

// Rejects where the probe of this row failed. Runs the probe if it has not run yet.
Rejection passes_probe(const Route& route, const Call& call);
// The probe of this row and call, if it ran.
std::optional<Probe> probe_of(const Route& route, const Call& call);
// All that ran in this process.
std::vector<Probe> probes();

// The case of a probe: one tile for a row that serves `call`; none: the row takes no small case.
std::optional<Call> probe_case(const Route& route, const Call& call);
// The mode of that case: adjoints run on the kernels of a sum.
ReduceMode plain_mode(ReduceMode mode);

// Probes run where MLX has a GPU itself. Tests switch them on or off elsewhere; none: as the
// machine says. Forgets what ran.
void set_probing(std::optional<bool> on);

}  // namespace lattice
