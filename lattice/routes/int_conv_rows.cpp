// The rows of integer_conv. Every row gives the same bits; one that could not is not offered.
#include "lattice/graph/dtype.h"
#include "lattice/routes/int_conv.h"

namespace lattice::routes {

Facts IntConvAsked::facts() const {
  const int64_t c_in = kernel.in_channels(), c_out = kernel.out_channels();
  Facts facts;
  facts.dtype = kernel.parts().output;
  facts.n_in = relation->n_in(), facts.n_out = relation->n_out();
  facts.n_edges = relation->edge_count();
  facts.flop = 2 * static_cast<double>(relation->edge_count() * c_in) * static_cast<double>(c_out);
  facts.bytes = static_cast<double>(relation->n_in() * c_in) *
                    static_cast<double>(kernel.parts().input.size()) +
                static_cast<double>(relation->n_out() * c_out) *
                    static_cast<double>(kernel.parts().output.size());
  facts.relation = relation->text();
  facts.storage = "int8 weights, sums int32";
  facts.shape = channels_text(c_in, c_out) + ", " + variant();
  return facts;
}
std::string IntConvAsked::variant() const {
  return graph::dtype_name(kernel.parts().input) + " to " +
         graph::dtype_name(kernel.parts().output);
}

const Table<IntConvAsked, mx::array>& int_conv_rows() {
  static const std::string kTiles = "any shape: tiles of output rows, panels of 32 columns";
  static const Table<IntConvAsked, mx::array> table(
      "integer_conv", "convolution in integers",
      {{kCpu, Code::host, "cpu.tiles", {}, kTiles, int_conv_tiles, int_conv_note},
       {kCpu,
        Code::host,
        "cpu.reference",
        {},
        "any shape: one value at a time; it defines the bits",
        int_conv_reference},
       {kGpu,
        Code::host,
        "cpu.unified",
        {},
        kTiles + ", on the CPU",
        int_conv_tiles,
        int_conv_note}});
  return table;
}

}  // namespace lattice::routes
