// All of the shim: what <metal_stdlib> and its siblings give on a Mac.
#pragma once
#pragma clang system_header

#include "atomics.h"
#include "builtins.h"
#include "matrix.h"
#include "simdgroup.h"
#if __METAL_VERSION__ >= 400
#include "tensor.h"
#endif
