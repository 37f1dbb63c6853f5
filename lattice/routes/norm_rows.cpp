// The rows of batch_norm and of its gradient, and the launches that are not kernels of a GPU.
#include <mlx/transforms.h>

#include <bit>

#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/features/norm.h"
#include "lattice/routes/launch.h"
#include "lattice/routes/norm.h"

namespace lattice::routes {
namespace {

using graph::Arrays;

std::string key_of(const Norm& n) {
  return std::to_string(n.given) + "/" + std::to_string(n.residual) + "/" + std::to_string(n.relu) +
         "/" + std::to_string(std::bit_cast<uint32_t>(n.eps));
}

cpu::Rows rows_of(const graph::Input& x) {
  return {float_type_of(x.dtype), x.shape[0], x.shape[1]};
}

Arrays formula(const Norm& n, const Arrays& in, mx::StreamOrDevice s) {
  return norm_formula(n, in, [s](const mx::array& x) { return sum_axis(x, 0, false, s); }, s);
}

std::string text_of(const Norm& norm, const mx::array& x) {
  return graph::dtype_name(x.dtype()) + (norm.given ? " given" : "") +
         (norm.residual ? " residual" : "") + (norm.relu ? " relu" : "");
}

Facts facts_of(const Norm& norm, const Arrays& in, size_t written) {
  const mx::array& x = in[0];
  Facts facts;
  facts.dtype = x.dtype();
  facts.n_in = x.shape(0), facts.n_out = x.shape(0), facts.n_edges = x.shape(0);
  facts.flop = 8 * static_cast<double>(x.size());
  for (const mx::array& a : in) facts.bytes += static_cast<double>(a.nbytes());
  facts.bytes += static_cast<double>(written * x.nbytes());
  facts.relation = "all rows of a channel";
  facts.storage = norm.given ? "given statistics" : "statistics of the rows";
  facts.shape = channels_text(x.shape(1), x.shape(1)) + ", " + graph::dtype_name(x.dtype());
  return facts;
}

}  // namespace

Facts NormAsked::facts() const { return facts_of(norm, in, 1); }
std::string NormAsked::variant() const { return text_of(norm, in[0]); }
Facts NormVjpAsked::facts() const { return facts_of(norm, in, norm.residual && norm.relu ? 2 : 1); }
std::string NormVjpAsked::variant() const { return text_of(norm, in[0]); }

Arrays norm_on_cpu(const NormAsked& asked) {
  const auto& [n, in, s] = asked;
  const mx::array x = graph::row_contiguous(in[0], s);
  const mx::Shape channels = {x.shape(1)};
  Arrays moments;
  if (n.given)
    moments = {as_float32(in[3], s), as_float32(in[4], s)};
  else
    moments = graph::cpu_call(
        "moments", "", {x}, {{channels, mx::float32}, {channels, mx::float32}},
        [](std::span<const graph::Input> in, std::span<const graph::Output> out) {
          cpu::moments(rows_of(in[0]), in[0].data, out[0].as<float>(), out[1].as<float>());
        },
        s);
  const mx::array scale =
      mx::multiply(mx::rsqrt(mx::add(moments[1], mx::array(n.eps), s), s), as_float32(in[1], s), s);
  Arrays inputs = {x};
  for (const mx::array& v : {moments[0], scale, as_float32(in[2], s)})
    inputs.push_back(graph::row_contiguous(v, s));
  if (n.residual) inputs.push_back(graph::row_contiguous(in[n.residual_at()], s));
  const mx::array y = graph::cpu_call(
      "batch_norm", key_of(n), inputs, {{x.shape(), x.dtype()}},
      [relu = n.relu](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        cpu::norm_rows(rows_of(in[0]),
                       {in[0].data, in[1].as<float>(), in[2].as<float>(), in[3].as<float>(),
                        in.size() == 5 ? in[4].data : nullptr, relu, out[0].data});
      },
      s)[0];
  return {y, moments[0], moments[1]};
}

Arrays norm_vjp_on_cpu(const NormVjpAsked& asked) {
  const auto& [n, in, s] = asked;
  const mx::array& g = asked.g();
  const auto times = [s = asked.stream](const mx::array& a, const mx::array& b) {
    return mx::multiply(a, b, s);
  };
  const mx::array x = graph::row_contiguous(in[0], s), gradient = graph::row_contiguous(g, s);
  const mx::array mean = graph::row_contiguous(asked.mean(), s);
  const mx::Shape channels = {x.shape(1)};
  Arrays inputs = {x, gradient, mean};
  if (n.relu) inputs.push_back(graph::row_contiguous(asked.y(), s));
  const Arrays sums = graph::cpu_call(
      "norm_sums", key_of(n), inputs, {{channels, mx::float32}, {channels, mx::float32}},
      [](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        cpu::norm_sums(rows_of(in[0]), in[0].data, in[1].data,
                       in.size() == 4 ? in[3].data : nullptr, in[2].as<float>(), out[0].as<float>(),
                       out[1].as<float>());
      },
      s);
  const mx::array r = mx::rsqrt(mx::add(asked.var(), mx::array(n.eps), s), s),
                  a = times(r, as_float32(in[1], s));
  const mx::array cubed = times(a, times(r, r)), none = mx::zeros(channels, mx::float32, s);
  const mx::array share(-1.0f / static_cast<float>(std::max(x.shape(0), 1)));
  const mx::array b = n.given ? none : times(share, times(cubed, sums[1]));
  const mx::array d = n.given ? none : times(share, times(a, sums[0]));
  for (const mx::array& v : {a, b, d}) inputs.push_back(graph::row_contiguous(v, s));
  const bool keep = n.residual && n.relu;
  std::vector<graph::OutputSpec> specs(keep ? 2 : 1, {x.shape(), x.dtype()});
  const Arrays back = graph::cpu_call(
      "batch_norm_vjp", key_of(n), inputs, std::move(specs),
      [relu = n.relu](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        const size_t v = relu ? 4 : 3;
        cpu::norm_back(rows_of(in[0]),
                       {in[0].data, in[1].data, relu ? in[3].data : nullptr, in[2].as<float>(),
                        in[v].as<float>(), in[v + 1].as<float>(), in[v + 2].as<float>(),
                        out[0].data, out.size() == 2 ? out[1].data : nullptr});
      },
      s);
  Arrays grads = {back[0], mx::astype(times(r, sums[1]), in[1].dtype(), s),
                  mx::astype(sums[0], in[2].dtype(), s)};
  if (n.given) {
    grads.push_back(mx::astype(times(mx::array(-1.0f), times(a, sums[0])), in[3].dtype(), s));
    grads.push_back(mx::astype(times(mx::array(-0.5f), times(cubed, sums[1])), in[4].dtype(), s));
  }
  if (n.residual) grads.push_back(keep ? back[1] : g);
  return grads;
}

Arrays norm_with_mlx(const NormAsked& asked) { return formula(asked.norm, asked.in, asked.stream); }

Arrays norm_vjp_with_mlx(const NormVjpAsked& asked) {
  const auto& [n, in, s] = asked;
  return mx::vjp([&](const Arrays& a) { return Arrays{formula(n, a, s)[0]}; },
                 Arrays(in.begin(), in.begin() + static_cast<int64_t>(n.inputs())), {asked.g()})
      .second;
}

const Table<NormAsked, Arrays>& norm_rows() {
  static const Table<NormAsked, Arrays> table(
      "batch_norm", "batch norm",
      {{kCpu,
        Code::host,
        "cpu.rows",
        {},
        "statistics, then all values in one pass",
        counted<norm_on_cpu>},
       {kGpu,
        Code::metal,
        "metal.parts",
        {},
        "parts of 512 rows, combined in order; three launches, one if the statistics are given",
        counted<norm_with_metal>},
       {kGpu,
        Code::mlx,
        "gpu.mlx",
        {},
        "the formula in operations of MLX",
        counted<norm_with_mlx>}});
  return table;
}

const Table<NormVjpAsked, Arrays>& norm_vjp_rows() {
  static const Table<NormVjpAsked, Arrays> table(
      "batch_norm_vjp", "gradient of batch norm",
      {{kCpu,
        Code::host,
        "cpu.rows",
        {},
        "two sums per channel, then all values in one pass",
        counted<norm_vjp_on_cpu>},
       {kGpu,
        Code::metal,
        "metal.parts",
        {},
        "parts of 512 rows, combined in order; three launches",
        counted<norm_vjp_with_metal>},
       {kGpu,
        Code::mlx,
        "gpu.mlx",
        {},
        "MLX's gradient of the formula",
        counted<norm_vjp_with_mlx>}},
      Answer::sums);
  return table;
}

}  // namespace lattice::routes
