/// @file
/// Sparse tensors and point clouds on MLX: every value and every operation of the library.
#pragma once

/// @mainpage lattice
///
///     #include "lattice/lattice.h"
///
///     lattice::SparseTensor x(coords, feats);                     // (N, 4) and (N, C)
///     lattice::SparseTensor y = lattice::subm_conv3d(x, weight);
///
/// lattice.h has every value and every operation: one header for each topic in lattice/ops, and in
/// lattice/core the values that operations take and return. The text at the top of a header gives
/// the formulas and what all of its functions have in common. To write an operation of your own,
/// include extend.h too.
///
/// Errors: std::invalid_argument for shapes, dtypes and values that do not fit, std::overflow_error
/// where a result leaves its type, lattice::TypeError for a value of the wrong kind,
/// std::bad_alloc. A message begins with the operation, names the argument, and says what was found
/// and expected. Arguments are checked when an operation is called, not when MLX evaluates it.

#include "lattice/core/dense.h"
#include "lattice/core/errors.h"
#include "lattice/core/geometry_plan.h"
#include "lattice/core/sparse_tensor.h"
#include "lattice/io/cloud_files.h"
#include "lattice/ops/algebra.h"
#include "lattice/ops/attention.h"
#include "lattice/ops/backend.h"
#include "lattice/ops/boxes.h"
#include "lattice/ops/codec.h"
#include "lattice/ops/columns.h"
#include "lattice/ops/conv.h"
#include "lattice/ops/coords.h"
#include "lattice/ops/distance.h"
#include "lattice/ops/entropy.h"
#include "lattice/ops/features.h"
#include "lattice/ops/integer.h"
#include "lattice/ops/layouts.h"
#include "lattice/ops/maps.h"
#include "lattice/ops/neighbors.h"
#include "lattice/ops/optimizer.h"
#include "lattice/ops/points.h"
#include "lattice/ops/points_scan.h"
#include "lattice/ops/pool.h"
#include "lattice/ops/quantize.h"
#include "lattice/ops/quantize_file.h"
#include "lattice/ops/registration.h"
#include "lattice/ops/relations.h"
#include "lattice/ops/rulebook.h"
#include "lattice/ops/segments.h"
#include "lattice/ops/surface.h"
#include "lattice/ops/triplets.h"
#include "lattice/ops/voxels.h"
#include "lattice/program/detector.h"
#include "lattice/program/program.h"
#include "lattice/program/segmenter.h"
#include "lattice/program/tiles.h"
