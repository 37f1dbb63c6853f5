// Entropy coding. Arguments only; streams are bytes.
#include "lattice/ops/entropy.h"

#include <nanobind/stl/variant.h>

#include "bind.h"

namespace mx = mlx::core;
using namespace lattice;

namespace {

using Encode = ByteString (*)(const mx::array&, const mx::array&, mx::StreamOrDevice);
using Decode = mx::array (*)(const mx::array&, ByteSpan, mx::StreamOrDevice);

void def_pair(nb::module_& m, const char* encode_name, Encode encode, const char* decode_name,
              Decode decode, const char* table, const char* encode_doc, const char* decode_doc) {
  m.def(
      encode_name,
      [encode](const mx::array& tables, const mx::array& symbols, mx::StreamOrDevice s) {
        ByteString data;
        {
          Release release;
          data = encode(tables, symbols, s);
        }
        return nb::bytes(data.data(), data.size());
      },
      nb::arg(table), nb::arg("symbols"), nb::kw_only(), nb::arg("stream") = nb::none(),
      encode_doc);
  m.def(
      decode_name,
      [decode](const mx::array& tables, const nb::bytes& data, mx::StreamOrDevice s) {
        const ByteSpan span(static_cast<const uint8_t*>(data.data()), data.size());
        Release release;
        return decode(tables, span, s);
      },
      nb::arg(table), nb::arg("data"), nb::kw_only(), nb::arg("stream") = nb::none(), decode_doc);
}

}  // namespace

void bind_entropy(nb::module_& m) {
  m.def(
      "normalized_cdf",
      [](const mx::array& prob, mx::StreamOrDevice s) {
        Release release;
        return normalized_cdf(prob, s);
      },
      nb::arg("prob"), nb::kw_only(), nb::arg("stream") = nb::none(),
      "(R, A) probabilities -> (R, A + 1) int16 with uint16 bits: 0 = c[0] < ... < c[A] = 65536, "
      "stored as 0.");
  def_pair(m, "range_encode", range_encode, "range_decode", range_decode, "cdf",
           "Symbols (R,) with tables (R, A + 1) or (1, A + 1) -> bytes.",
           "The symbols of range_encode, (R,) int32.");
  def_pair(m, "range_encode_from_prob", range_encode_from_prob, "range_decode_from_prob",
           range_decode_from_prob, "prob", "range_encode with normalized_cdf(prob).",
           "The symbols of range_encode_from_prob, (R,) int32.");
  def_pair(m, "rans_encode_from_prob", rans_encode_from_prob, "rans_decode_from_prob",
           rans_decode_from_prob, "prob",
           "Symbols (R,) with normalized_cdf(prob) as a rANS stream; one row of prob for all "
           "symbols decodes fastest.",
           "The symbols of rans_encode_from_prob, (R,) int32.");
}
