// A GPU that counts: it launches every kernel and computes nothing.
#pragma once

#include <nanobind/nanobind.h>

void bind_counting(nanobind::module_& m);
