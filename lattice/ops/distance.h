// Distances between rows: all pairs as a matrix, or given pairs.
//
//   indexed_distance:          d[i, j] = |a[a_idx[i]] - b[b_idx[j]]|   (N, M)
//   indexed_distance_blocked:  the same values; besides d and its gradient nothing larger than
//                              block_size rows of d is made
//   indexed_pair_distance:     d[t] = |a[a_idx[t]] - b[b_idx[t]]|      (T,)
//
// euclidean, squared_euclidean, cosine = 1 - <a, b> / max(|a| |b|, 1e-8); pairs also chebyshev =
// max |a - b|. No (N, M, C) array is ever made. The gradient of a euclidean distance is 0 where it
// is 0. Differentiable to any order in a and b; computed in float32, rounded once. Index arrays are
// evaluated and checked here.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <string_view>

#include "lattice/core/arrays.h"

namespace lattice {

enum class Metric { euclidean, squared_euclidean, cosine, chebyshev };
// std::invalid_argument lists the choices.
Metric parse_metric(std::string_view name, std::string_view function, bool chebyshev = false);

mx::array indexed_distance(const mx::array& a, const mx::array& b,
                           const std::optional<mx::array>& a_idx = std::nullopt,
                           const std::optional<mx::array>& b_idx = std::nullopt,
                           Metric metric = Metric::euclidean, mx::StreamOrDevice s = {});
mx::array indexed_distance_blocked(const mx::array& a, const mx::array& b, int64_t block_size = 512,
                                   Metric metric = Metric::euclidean, mx::StreamOrDevice s = {});
mx::array indexed_pair_distance(const mx::array& a, const mx::array& a_idx, const mx::array& b,
                                const mx::array& b_idx, Metric metric = Metric::euclidean,
                                mx::StreamOrDevice s = {});

}  // namespace lattice
