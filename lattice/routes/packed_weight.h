// Weights in the forms that routes need: transposed, or made dense again from packed codes.
#pragma once

#include "lattice/routes/conv.h"

namespace lattice::routes {

// Matrices (N, G, C, M) as conv reads them, (N, C, G M); a view for one group.
mx::array side_by_side(const mx::array& a, mx::StreamOrDevice s = {});

// (n_k, c_in / G, c_out) -> (n_k, c_out / G, c_in), group by group: the weight of the input
// gradient. A view when there is one group.
mx::array transposed_weight(const mx::array& w, int64_t groups, mx::StreamOrDevice s = {});

// The same question with its packed weight made dense as a whole.
ConvAsked with_dense_weight(const ConvAsked& asked);
// W[k], (c_in / groups, c_out), dense; of packed weights only this offset is expanded.
mx::array weight_of_offset(const ConvAsked& asked, int k);

// W = scale * code + bias of parts of a weight. Product and sum are float32, then rounded once to
// the dtype. codes (n, C_out, words) when `by_output`, else (n, words, C_out), to (n, C_in, C_out).
mx::array dequantize_codes(const mx::array& codes, const mx::array& scales, const mx::array& biases,
                           bool by_output, int64_t group_size, int64_t bits, int64_t in_channels,
                           mx::StreamOrDevice s = {});

}  // namespace lattice::routes
