// The rows of all_finite and their launches.
#include "lattice/routes/optimizer.h"

#include <mlx/ops.h>

#include <algorithm>

#include "lattice/graph/dtype.h"
#include "lattice/kernels/portable/finite_sizes.h"
#include "lattice/routes/kernel_call.h"

namespace lattice::routes {
namespace {

constexpr size_t kArrays = std::size(FiniteSizes{}.size);  // of a launch: Metal has 31 buffers
constexpr int kStrips = 256, kSimdgroup = 32;

// Flags of some arrays: 1 where a value is not finite.
mx::array flags_of(const graph::Arrays& arrays, mx::StreamOrDevice s) {
  KernelCall kernel("finite_" + std::to_string(arrays.size()), "finite");
  FiniteSizes sizes{.arrays = static_cast<int>(arrays.size()), .strips = kStrips, .size = {}};
  std::string branches;
  for (size_t i = 0; i < arrays.size(); ++i) {
    const std::string name = "a" + std::to_string(i), number = std::to_string(i);
    sizes.size[i] = static_cast<int>(arrays[i].size());
    kernel.add(name.c_str(), arrays[i]);
    branches += "if (threadgroup_position_in_grid.y == " + number + ") lattice::flag_strip(" +
                name + ", flags, sizes, " + number +
                ", threadgroup_position_in_grid.x, thread_index_in_simdgroup);\n";
  }
  kernel.add_output("flags", {{sizes.arrays, kStrips}, mx::float32});
  kernel.add_sizes("FiniteSizes", sizes);
  kernel.call.source += branches;
  kernel.call.grid = {kStrips * kSimdgroup, sizes.arrays, 1};
  kernel.call.threadgroup = {kSimdgroup, 1, 1};
  return mx::reshape(kernel.run(s)[0], {-1}, s);
}

bool is_large(const mx::array& a) { return a.size() > (size_t{1} << 31) - 1; }

}  // namespace

Facts FiniteAsked::facts() const {
  Facts facts;
  facts.n_out = 1, facts.n_edges = 0;
  for (const mx::array& a : arrays) {
    facts.dtype = a.dtype();
    facts.n_in += static_cast<int64_t>(a.size());
    facts.bytes += static_cast<double>(a.nbytes());
  }
  facts.relation = "all values";
  facts.storage = std::to_string(arrays.size()) + " arrays";
  facts.shape = graph::dtype_name(facts.dtype);
  return facts;
}

std::string FiniteAsked::variant() const {
  return arrays.empty() ? "" : graph::dtype_name(arrays[0].dtype());
}

mx::array all_finite_with_metal(const FiniteAsked& asked) {
  const mx::StreamOrDevice s = asked.stream;
  graph::Arrays some, flags;
  for (const mx::array& a : asked.arrays)
    if (a.size() > 0) some.push_back(a);
  if (some.empty()) return mx::array(true);
  for (size_t i = 0; i < some.size(); i += kArrays)
    flags.push_back(
        flags_of({some.begin() + static_cast<int64_t>(i),
                  some.begin() + static_cast<int64_t>(std::min(some.size(), i + kArrays))},
                 s));
  const mx::array all = flags.size() == 1 ? flags[0] : mx::concatenate(flags, 0, s);
  return mx::equal(mx::max(all, false, s), mx::array(0.0f), s);
}

mx::array all_finite_with_mlx(const FiniteAsked& asked) {
  const mx::StreamOrDevice s = asked.stream;
  graph::Arrays each;
  for (const mx::array& a : asked.arrays)
    if (a.size() > 0) each.push_back(mx::all(mx::isfinite(a, s), false, s));
  return each.empty() ? mx::array(true) : mx::all(mx::stack(each, 0, s), false, s);
}

const Table<FiniteAsked, mx::array>& all_finite_rows() {
  static const std::vector<Condition<FiniteAsked>> kFits = {
      {Step::shape, "",
       [](const FiniteAsked& a) { return std::ranges::none_of(a.arrays, is_large); },
       [](const FiniteAsked&) { return std::string("an array has 2^31 values or more"); }}};
  static const Table<FiniteAsked, mx::array> table(
      "all_finite", "test of gradients",
      {{kCpu,
        Code::mlx,
        "cpu.mlx",
        {},
        "isfinite of MLX, array by array",
        counted<all_finite_with_mlx>},
       {kGpu, Code::metal, "metal.strips", kFits,
        "up to " + number(int64_t{kArrays}) + " arrays in one launch",
        counted<all_finite_with_metal>},
       {kGpu,
        Code::mlx,
        "gpu.mlx",
        {},
        "isfinite of MLX, array by array",
        counted<all_finite_with_mlx>}},
      Answer::sums);
  return table;
}

}  // namespace lattice::routes
