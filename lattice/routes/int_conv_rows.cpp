// The rows of integer_conv. All rows give the same bits; a row that could give others does not fit.
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

namespace {

using cpu::IntDot;
using When = std::vector<Condition<IntConvAsked>>;

// The machine has the products.
template <IntDot kDot>
When machine_has() {
  return {{Step::capability, cpu::name(kDot), [](const IntConvAsked&) { return cpu::has(kDot); },
           [](const IntConvAsked&) {
             return std::string("this machine, or LATTICE_SIMD, has no ") + cpu::name(kDot);
           }}};
}

template <IntDot kDot>
mx::array tiles_with(const IntConvAsked& asked, const Route& route) {
  return int_conv_tiles(asked, route, kDot);
}
mx::array tiles_with_best(const IntConvAsked& asked, const Route& route) {
  return int_conv_tiles(asked, route, cpu::int_dots().front());
}
std::string best_note(const IntConvAsked&) {
  return std::string("products of ") + cpu::name(cpu::int_dots().front());
}

const std::string kTiles = "tiles of output rows, panels of 32 columns";

}  // namespace

const Table<IntConvAsked, mx::array>& int_conv_rows() {
  static const Table<IntConvAsked, mx::array> table(
      "integer_conv", "convolution in integers",
      {{kCpu, Code::host, "cpu.vnni512", machine_has<IntDot::vnni512>(),
        kTiles + "; four products of bytes and their sum in one instruction",
        tiles_with<IntDot::vnni512>},
       {kCpu, Code::host, "cpu.vnni256", machine_has<IntDot::vnni256>(),
        kTiles + "; the same, half as wide", tiles_with<IntDot::vnni256>},
       {kCpu, Code::host, "cpu.avx2", machine_has<IntDot::avx2>(),
        kTiles + "; pairs of products in 16 bits, exact by the lane rule",
        tiles_with<IntDot::avx2>},
       {kCpu, Code::host, "cpu.sdot", machine_has<IntDot::sdot>(),
        kTiles + "; products of signed bytes, 128 taken off the inputs", tiles_with<IntDot::sdot>},
       {kCpu,
        Code::host,
        "cpu.tiles",
        {},
        "any machine: " + kTiles + ", plain C++",
        tiles_with<IntDot::plain>},
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
        "any shape: the best of the rows above, on the CPU",
        tiles_with_best,
        best_note}});
  return table;
}

}  // namespace lattice::routes
