#include "lattice/ops/entropy.h"

#include <mlx/ops.h>

#include <algorithm>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/coding/rans.h"

namespace lattice {
namespace {

using cpu::Buffer;
using cpu::CdfSpan;
using cpu::Coder;

// Rows with their values; the first alone when it stands for all: there is one, or all are one in
// memory.
struct Rows {
  mx::array kept;
  bool shared;
  int64_t expected;  // symbols, or -1 for any number
};

// `extra`: columns besides the alphabet.
Rows rows_of(const mx::array& a, std::string_view operation, std::string_view what, int extra) {
  if (a.ndim() != 2 || a.shape(1) < 2 + extra || a.shape(1) > cpu::kMostSymbols + extra)
    fail(operation, std::string(what) + " must have shape (R, " + (extra ? "A + 1" : "A") +
                        ") with 2 <= A <= 65536, got " + shape_text(a.shape()));
  const int rows = a.shape(0);
  mx::array first =
      evaluated(mx::slice(a, {0, 0}, {std::min(rows, 1), a.shape(1)}), operation, what);
  if (rows == 1) return {std::move(first), true, -1};
  if (rows > 1 && a.strides()[0] == 0)
    return {std::move(first), true, rows};  // known now that a is evaluated
  return {evaluated(a, operation, what), false, rows};
}

// Tables with what keeps their memory.
struct Tables {
  mx::array kept;
  CdfSpan span;
  int64_t expected;
};

Tables tables_of(const Rows& cdf, std::string_view operation) {
  const mx::array& a = cdf.kept;
  const uint16_t* data = a.size() ? reinterpret_cast<const uint16_t*>(a.data<int16_t>()) : nullptr;
  Tables out{a, {data, a.shape(0), a.shape(1) - 1, cdf.shared}, cdf.expected};
  cpu::check_cdf(out.span, operation);
  return out;
}

Tables tables_of(const mx::array& cdf, std::string_view operation) {
  if (cdf.dtype() != mx::int16 && cdf.dtype() != mx::uint16)
    fail(operation, "cdf must be int16 or uint16, got " + graph::dtype_name(cdf.dtype()));
  return tables_of(rows_of(cdf, operation, "cdf", 1), operation);
}

Rows cdf_of(const mx::array& prob, std::string_view operation) {
  if (!mx::issubdtype(prob.dtype(), mx::floating))
    fail(operation,
         "prob must be float32, float16 or bfloat16, got " + graph::dtype_name(prob.dtype()));
  const Rows rows = rows_of(prob, operation, "prob", 0);
  const mx::array p =
      evaluated(mx::astype(rows.kept, mx::float32, mx::Device::cpu), operation, "prob");
  const int n = p.shape(0), alphabet = p.shape(1);
  Buffer<int16_t> out(int64_t{n} * (alphabet + 1));
  cpu::normalized_cdf(p.size() ? p.data<float>() : nullptr, n, alphabet,
                      reinterpret_cast<uint16_t*>(out.data()), operation);
  return {adopt(std::move(out), {n, alphabet + 1}), rows.shared, rows.expected};
}

ByteString encode(Coder coder, const Tables& tables, const mx::array& symbols,
                  std::string_view operation) {
  const mx::array values = checked_rows(symbols, tables.span.alphabet, operation, "symbols");
  if (tables.expected >= 0 && values.shape(0) != tables.expected)
    fail(operation, "symbols must have shape (" + std::to_string(tables.expected) +
                        ",), one for each row of the table, got " + shape_text(values.shape()));
  const std::span<const int32_t> rows(values.size() ? values.data<int32_t>() : nullptr,
                                      values.size());
  return coder == Coder::range ? cpu::range_encode(tables.span, rows)
                               : cpu::rans_encode(tables.span, rows);
}

mx::array decode(Coder coder, const Tables& tables, ByteSpan data, std::string_view operation) {
  const cpu::Stream stream = cpu::open_stream(data, coder, tables.span, operation);
  if (tables.expected >= 0 && stream.rows != tables.expected)
    fail(operation, "data has " + std::to_string(stream.rows) + " rows, expected " +
                        std::to_string(tables.expected));
  Buffer<int32_t> symbols(stream.rows);
  if (coder == Coder::range)
    cpu::range_decode(tables.span, stream, symbols.span(), operation);
  else
    cpu::rans_decode(tables.span, stream, symbols.span(), operation);
  return adopt(std::move(symbols), {static_cast<int>(stream.rows)});
}

}  // namespace

mx::array normalized_cdf(const mx::array& prob, mx::StreamOrDevice) {
  const Rows cdf = cdf_of(prob, "normalized_cdf");
  return cdf.expected > 1 && cdf.shared
             ? mx::broadcast_to(cdf.kept, {prob.shape(0), cdf.kept.shape(1)}, mx::Device::cpu)
             : cdf.kept;
}

ByteString range_encode(const mx::array& cdf, const mx::array& symbols, mx::StreamOrDevice) {
  return encode(Coder::range, tables_of(cdf, "range_encode"), symbols, "range_encode");
}
mx::array range_decode(const mx::array& cdf, ByteSpan data, mx::StreamOrDevice) {
  return decode(Coder::range, tables_of(cdf, "range_decode"), data, "range_decode");
}
ByteString range_encode_from_prob(const mx::array& prob, const mx::array& symbols,
                                  mx::StreamOrDevice) {
  constexpr std::string_view op = "range_encode_from_prob";
  return encode(Coder::range, tables_of(cdf_of(prob, op), op), symbols, op);
}
mx::array range_decode_from_prob(const mx::array& prob, ByteSpan data, mx::StreamOrDevice) {
  constexpr std::string_view op = "range_decode_from_prob";
  return decode(Coder::range, tables_of(cdf_of(prob, op), op), data, op);
}
ByteString rans_encode_from_prob(const mx::array& prob, const mx::array& symbols,
                                 mx::StreamOrDevice) {
  constexpr std::string_view op = "rans_encode_from_prob";
  return encode(Coder::rans, tables_of(cdf_of(prob, op), op), symbols, op);
}
mx::array rans_decode_from_prob(const mx::array& prob, ByteSpan data, mx::StreamOrDevice) {
  constexpr std::string_view op = "rans_decode_from_prob";
  return decode(Coder::rans, tables_of(cdf_of(prob, op), op), data, op);
}

}  // namespace lattice
