/// @file
/// Attention over ragged segments, without an array of lengths squared.
///
///     out[i, h, :] = sum_j P[i, j] v[j, g, :]      P[i, :] = softmax_j(L[i, j])
///     L[i, j] = scale <q[i, h, :], k[j, g, :]> + bias(h, i, j),      g = h / (H / H_kv)
///
/// q (T, H, D), k and v (S, H_kv, D), 1 <= D <= 256. i and j run over the rows of one segment:
/// queries offsets[s] .. offsets[s + 1], keys k_offsets[s] .. k_offsets[s + 1]; without k_offsets
/// they are the same. Offsets are evaluated, copied and checked here. A query that sees no key
/// gives 0. float32, float16 and bfloat16; sums are float32. Differentiable to any order in q, k,
/// v, bias and table. First gradients are computed from the saved log-sum-exp of each row; tangents
/// and second derivatives are MLX operations on arrays of all pairs.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lattice/core/neighbors.h"

namespace lattice {

/// bias(h, i, j) from a table by relative position p = q_positions[i] - k_positions[j], clipped to
/// -bounds .. bounds on each axis:
///
///     joint:  table[h, e], e counts the clipped positions of all axes in row-major order
///     else:   the sum over the axes a of table[h, e_a]; axis a owns 2 bounds[a] + 1 entries
///
/// table (H, entries) is differentiable; positions (rows, axes) or (rows,) are integers, copied.
struct LATTICE_API PositionBias {
  mx::array table;          ///< (H, entries)
  mx::array q_positions;    ///< (T, axes) int32
  mx::array k_positions;    ///< (S, axes) int32
  std::vector<int> bounds;  ///< of each axis
  bool joint;               ///< one entry for all axes together
  /// Without k_positions the keys have the positions of the queries. `bounds` has one value for
  /// each axis.
  PositionBias(const mx::array& table, const mx::array& q_positions,
               const std::optional<mx::array>& k_positions, const std::vector<int64_t>& bounds,
               bool joint = false);
};

/// No bias; an array (H, L_q, L_k) per segment; one array with all of them flat one after the other
/// or, if segments are equal, (B, H, L_q, L_k); or a table.
using AttentionBias = std::variant<std::monostate, mx::array, std::vector<mx::array>, PositionBias>;
/// No mask; "causal", with which query i sees the keys j <= i + L_k - L_q; or booleans shaped like
/// a bias without H, true where a key is seen.
using AttentionMask = std::variant<std::monostate, mx::array, std::vector<mx::array>, std::string>;

/// Options of attention().
struct AttentionOptions {
  std::optional<mx::array> k_offsets = std::nullopt;  ///< (segments + 1,): borders of the keys
  std::optional<float> scale = std::nullopt;          ///< 1 / sqrt(D)
  AttentionBias bias = {};                            ///< added to the logits
  AttentionMask mask = {};                            ///< which keys a query sees
};

/// Like q.
LATTICE_API mx::array attention(const mx::array& q, const mx::array& k, const mx::array& v,
                                const mx::array& offsets, const AttentionOptions& options = {},
                                mx::StreamOrDevice s = {});

/// Attention along the edges of a relation, without an array of edges times channels:
///
///     out[i, h, :] = sum_e P[e, h] v[source of e, h, :]
///     P = softmax of L over the edges of query i
///     L[e, h] = scale <q[i, h, :], k[source of e, h, :]> + bias[e, h]
///
/// q (N, H, D), k and v (M, H, D), bias (E, H) in the order of the relation's edges. Without q and
/// k the bias alone is the logit: grouped vector attention. A query without edges gives 0. Queries
/// of a kernel relation are its output rows. Differentiable to any order in q, k, v and bias.
struct NeighborAttentionOptions {
  std::optional<mx::array> bias = std::nullopt;  ///< (E, H)
  std::optional<float> scale = std::nullopt;     ///< 1 / sqrt(D)
};
/// (N, H, D): attention along `edges`, with the formula and the shapes of NeighborAttentionOptions.
/// Throws std::invalid_argument for other shapes.
LATTICE_API mx::array neighbor_attention(const std::optional<mx::array>& q,
                                         const std::optional<mx::array>& k, const mx::array& v,
                                         EdgeSegments edges,
                                         const NeighborAttentionOptions& options = {},
                                         mx::StreamOrDevice s = {});

/// Rotary position encoding: x (N, H, D) with pairs of channels turned by angles that grow with
/// positions (N, axes), 1 to 3 axes; see kernels/cpu/features/rotary.h. `halves`: a pair is channel
/// m of both halves of an axis instead of two neighbors. Differentiable to any order in x;
/// positions are constants.
LATTICE_API mx::array rotary(const mx::array& x, const mx::array& positions, double base = 10000,
                             bool halves = false, mx::StreamOrDevice s = {});

}  // namespace lattice
