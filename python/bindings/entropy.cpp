// Entropy coding. Arguments only; streams are bytes.
#include "lattice/ops/entropy.h"

#include "arguments.h"
#include "bind.h"

namespace mx = mlx::core;
using namespace lattice;
using namespace nb::literals;

namespace {

using Encode = ByteString (*)(const mx::array&, const mx::array&, mx::StreamOrDevice);
using Decode = mx::array (*)(const mx::array&, ByteSpan, mx::StreamOrDevice);

void def_pair(nb::module_& m, const char* encode_name, Encode encode, const char* decode_name,
              Decode decode, const char* table) {
  def(
      m, encode_name,
      [encode](const mx::array& tables, const mx::array& symbols, mx::StreamOrDevice s) {
        const ByteString data = unlocked([&] { return encode(tables, symbols, s); });
        return nb::bytes(data.data(), data.size());
      },
      nb::arg(table), "symbols"_a, "stream"_a);
  def(
      m, decode_name,
      [decode](const mx::array& tables, const nb::bytes& data, mx::StreamOrDevice s) {
        const ByteSpan span(static_cast<const uint8_t*>(data.data()), data.size());
        return unlocked([&] { return decode(tables, span, s); });
      },
      nb::arg(table), "data"_a, "stream"_a);
}

}  // namespace

void bind_entropy(nb::module_& m) {
  def(m, "normalized_cdf", &normalized_cdf, "prob"_a, "stream"_a, Unlocked());
  def_pair(m, "range_encode", range_encode, "range_decode", range_decode, "cdf");
  def_pair(m, "range_encode_from_prob", range_encode_from_prob, "range_decode_from_prob",
           range_decode_from_prob, "prob");
  def_pair(m, "rans_encode_from_prob", rans_encode_from_prob, "rans_decode_from_prob",
           rans_decode_from_prob, "prob");
}
