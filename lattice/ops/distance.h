/// @file
/// Distances between rows: all pairs as a matrix, or given pairs.
///
///     indexed_distance:          d[i, j] = |a[a_idx[i]] - b[b_idx[j]]|   (N, M)
///     indexed_distance_blocked:  the same values; besides d and its gradient nothing larger than
///                                block_size rows of d is made
///     indexed_pair_distance:     d[t] = |a[a_idx[t]] - b[b_idx[t]]|      (T,)
///
/// euclidean, squared_euclidean, cosine = 1 - <a, b> / max(|a| |b|, 1e-8); pairs also chebyshev =
/// max |a - b|. No (N, M, C) array is ever made. The gradient of a euclidean distance is 0 where it
/// is 0. Differentiable to any order in a and b; computed in float32, rounded once. Index arrays
/// are evaluated and checked here.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <string_view>

#include "lattice/core/names.h"

namespace lattice {

/// The distance of two rows; the text above has the formulas.
enum class Metric { euclidean, squared_euclidean, cosine, chebyshev };
/// std::invalid_argument lists the choices.
LATTICE_API Metric parse_metric(std::string_view name, std::string_view function,
                                bool chebyshev = false);

/// (N, M), of the rows that a_idx (N,) and b_idx (M,) name; without them of all rows.
LATTICE_API mx::array indexed_distance(const mx::array& a, const mx::array& b,
                                       const std::optional<mx::array>& a_idx = std::nullopt,
                                       const std::optional<mx::array>& b_idx = std::nullopt,
                                       Metric metric = Metric::euclidean,
                                       mx::StreamOrDevice s = {});
/// (N, M) of all rows, in blocks of block_size rows.
LATTICE_API mx::array indexed_distance_blocked(const mx::array& a, const mx::array& b,
                                               int64_t block_size = 512,
                                               Metric metric = Metric::euclidean,
                                               mx::StreamOrDevice s = {});
/// (T,), of the pairs of rows that a_idx and b_idx (T,) name.
LATTICE_API mx::array indexed_pair_distance(const mx::array& a, const mx::array& a_idx,
                                            const mx::array& b, const mx::array& b_idx,
                                            Metric metric = Metric::euclidean,
                                            mx::StreamOrDevice s = {});

}  // namespace lattice
