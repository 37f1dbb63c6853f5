// Launches of kernels/metal/norm.metal.
#include "lattice/routes/norm.h"

#include <mlx/ops.h>

#include "lattice/kernels/portable/norm_sizes.h"
#include "lattice/routes/kernel_call.h"

namespace lattice::routes {
namespace {

using graph::Arrays;

constexpr int kPart = 512;     // rows that a group adds up
constexpr int kThreads = 256;  // of such a group, and of one that makes values
constexpr int kEach = 8;       // channels of a thread that makes values

const char* flag(bool on) { return on ? "true" : "false"; }

struct NormKernel : KernelCall {
  int rows, channels;
  bool given;
  float eps;

  NormKernel(const std::string& name, const Norm& norm, const mx::array& x)
      : KernelCall("norm_" + name, "norm"),
        rows(x.shape(0)),
        channels(x.shape(1)),
        given(norm.given),
        eps(norm.eps) {}
  int parts() const { return (rows + kPart - 1) / kPart; }
  void begin() { add_sizes("NormSizes", NormSizes{rows, channels, kPart, given, eps}); }
  // A group per part and 32 channels; each part makes `numbers` per channel.
  Arrays run_parts(const std::string& function, const std::string& arguments, int numbers,
                   mx::StreamOrDevice s) {
    begin();
    add_output("parts", {{parts(), numbers, channels}, mx::float32});
    call.shared = {{"float", "memory", std::to_string(kThreads)}};
    enter(function, arguments + ", parts, sizes, memory, " + kThreadPlace);
    call.grid = {parts() * kThreads, (channels + 31) / 32, 1};
    call.threadgroup = {kThreads, 1, 1};
    return KernelCall::run(s);
  }
  // A simdgroup per channel.
  Arrays run_channels(const std::string& function, const std::string& arguments,
                      mx::StreamOrDevice s) {
    begin();
    enter(function,
          arguments + ", sizes, threadgroup_position_in_grid.x, thread_index_in_simdgroup");
    call.grid = {32 * channels, 1, 1};
    call.threadgroup = {32, 1, 1};
    return KernelCall::run(s);
  }
  // A thread for 8 neighboring channels, or for one.
  int each() const { return channels % kEach == 0 ? kEach : 1; }
  Arrays run_values(const std::string& function, const std::string& flags,
                    const std::string& arguments, mx::StreamOrDevice s) {
    begin();
    if (each() > 1) call.name += "_by8";
    enter(function + "<" + std::to_string(each()) + flags + ">",
          arguments + ", sizes, thread_position_in_grid.xy");
    const int across = channels / each(), wide = std::min(across, kThreads);
    call.grid = {across, rows, 1};
    call.threadgroup = {wide, kThreads / wide, 1};
    return KernelCall::run(s);
  }
};

}  // namespace

Arrays norm_with_metal(const NormAsked& asked) {
  const auto& [norm, in, s] = asked;
  const mx::array& x = in[0];
  if (x.size() == 0) return norm_with_mlx(asked);
  const mx::Shape channels = {x.shape(1)};
  Arrays moments;
  if (norm.given) {
    moments = {as_float32(in[3], s), as_float32(in[4], s)};
  } else {
    NormKernel parts("parts", norm, x);
    parts.add("x", x);
    const mx::array found = parts.run_parts("norm_parts", "x", 3, s)[0];
    NormKernel combine("combine", norm, x);
    combine.add("parts", found);
    combine.add_output("mean", {channels, mx::float32});
    combine.add_output("var", {channels, mx::float32});
    moments = combine.run_channels("norm_combine", "parts, mean, var", s);
  }
  NormKernel apply(
      std::string("apply") + (norm.residual ? "_add" : "") + (norm.relu ? "_relu" : ""), norm, x);
  apply.add("x", x), apply.add("mean", moments[0]), apply.add("var", moments[1]);
  apply.add("weight", in[1]), apply.add("bias", in[2]);
  if (norm.residual) apply.add("residual", in[norm.residual_at()]);
  apply.add_output("y", {x.shape(), x.dtype()});
  const mx::array y = apply.run_values(
      "norm_apply", std::string(", ") + flag(norm.residual) + ", " + flag(norm.relu),
      std::string("x, lattice::norm_channels(mean, var, weight, bias), ") +
          (norm.residual ? "residual" : "x") + ", y",
      s)[0];
  return {y, moments[0], moments[1]};
}

Arrays norm_vjp_with_metal(const NormVjpAsked& asked) {
  const auto& [norm, in, s] = asked;
  const mx::array& x = in[0];
  if (x.size() == 0) return norm_vjp_with_mlx(asked);
  const mx::Shape channels = {x.shape(1)};
  const std::string relu = norm.relu ? "_relu" : "", y = norm.relu ? "y" : "g";
  const auto add_rows = [&](NormKernel& kernel) {
    kernel.add("x", x), kernel.add("g", asked.g());
    if (norm.relu) kernel.add("y", asked.y());
    kernel.add("mean", asked.mean());
  };
  NormKernel parts("slope_parts" + relu, norm, x);
  add_rows(parts);
  const mx::array found = parts.run_parts(std::string("norm_slope_parts<") + flag(norm.relu) + ">",
                                          "lattice::norm_rows(x, g, " + y + ", mean)", 2, s)[0];
  NormKernel combine("slope_combine", norm, x);
  combine.add("parts", found), combine.add("var", asked.var()), combine.add("weight", in[1]);
  combine.add_output("line", {{3, x.shape(1)}, mx::float32});
  combine.add_output("dweight", {channels, in[1].dtype()});
  combine.add_output("dbias", {channels, in[2].dtype()});
  combine.add_output("dmean", {channels, mx::float32});
  combine.add_output("dvar", {channels, mx::float32});
  const Arrays sums = combine.run_channels(
      "norm_slope_combine",
      "parts, var, weight, lattice::norm_slopes(line, dweight, dbias, dmean, dvar)", s);
  const bool keep = norm.residual && norm.relu;
  NormKernel apply(std::string("slope_apply") + relu + (keep ? "_keep" : ""), norm, x);
  add_rows(apply);
  apply.add("line", sums[0]);
  apply.add_output("dx", {x.shape(), x.dtype()});
  if (keep) apply.add_output("kept", {x.shape(), x.dtype()});
  const Arrays made = apply.run_values(
      "norm_slope_apply", std::string(", ") + flag(norm.relu) + ", " + flag(keep),
      "lattice::norm_rows(x, g, " + y + ", mean), line, dx, " + (keep ? "kept" : "dx"), s);
  Arrays grads = {made[0], sums[1], sums[2]};
  if (norm.given) {
    grads.push_back(mx::astype(sums[3], in[3].dtype(), s));
    grads.push_back(mx::astype(sums[4], in[4].dtype(), s));
  }
  if (norm.residual) grads.push_back(keep ? made[1] : asked.g());
  return grads;
}

}  // namespace lattice::routes
