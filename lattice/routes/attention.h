// Attention over ragged segments and its gradient: the questions, and the functions that launch the
// answers.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lattice/core/segment_pairs.h"
#include "lattice/graph/output_spec.h"
#include "lattice/routes/decide.h"

namespace lattice::routes {

// The options of attention (kernels/cpu/features/attention.h) besides its arrays.
struct Attend {
  struct Positions {  // of a table; (rows, axes) int32
    mx::array of_queries, of_keys;
    std::vector<int> bounds;
    bool joint = false;
  };
  SegmentPairs::Ptr segments = {};
  float scale = 1;
  bool biased = false;  // by all pairs, or by the table if there are positions
  bool causal = false;
  std::optional<Positions> positions = {};
  std::optional<mx::array> mask = {};  // (pairs,) bool, segments behind each other
};

struct AttentionAsked {
  Attend attend;
  mx::array q, k, v;
  std::optional<mx::array> bias = {};  // of all pairs, or the table by position
  mx::StreamOrDevice stream = {};
  // {q, k, v} and, if there is one, the bias.
  graph::Arrays inputs() const;
  Facts facts() const;
  std::string variant() const;
};
struct AttentionVjpAsked {
  AttentionAsked forward;
  mx::array out;
  mx::array lse;  // the log-sum-exp; of no rows: the forward pass saved none
  mx::array g;    // the cotangent of out
  mx::StreamOrDevice stream = {};
  Facts facts() const;
  std::string variant() const { return forward.variant(); }
};
// From arrays as inputs() has them; of the gradient then out, the log-sum-exp and the cotangent.
AttentionAsked attention_asked(const Attend& attend, const graph::Arrays& in, mx::StreamOrDevice s);
AttentionVjpAsked attention_vjp_asked(const Attend& attend, const graph::Arrays& in,
                                      mx::StreamOrDevice s);

const Table<AttentionAsked, graph::Arrays>& attention_rows();
const Table<AttentionVjpAsked, graph::Arrays>& attention_vjp_rows();
std::vector<AttentionAsked> probe_cases(const AttentionAsked& like);
std::vector<AttentionVjpAsked> probe_cases(const AttentionVjpAsked& like);

// {out, log-sum-exp}. MLX's own kernel (sdpa) gives no log-sum-exp.
graph::Arrays attention_tiles(const AttentionAsked& asked, const Route& route);
graph::Arrays attention_with_metal(const AttentionAsked& asked);
graph::Arrays attention_with_sdpa(const AttentionAsked& asked);
graph::Arrays attention_with_mlx(const AttentionAsked& asked);
// Cotangents of q, k, v and of the bias.
graph::Arrays attention_vjp_tiles(const AttentionVjpAsked& asked, const Route& route);
graph::Arrays attention_vjp_with_metal(const AttentionVjpAsked& asked);
graph::Arrays attention_vjp_with_mlx(const AttentionVjpAsked& asked);

// {out, log-sum-exp} in MLX operations, differentiable as they are: one product of matrices per run
// of segments of one length, with arrays of all pairs. Inputs: q, k, v and the bias or table.
// lookup(table (H, entries), indices) gives (H, indices); by default MLX's take, which lacks
// tangents of its gradient.
using Lookup = std::function<mx::array(const mx::array& table, const mx::array& indices)>;
graph::Arrays attention_formula(const Attend& attend, const graph::Arrays& in, mx::StreamOrDevice s,
                                const Lookup& lookup = {});

}  // namespace lattice::routes
