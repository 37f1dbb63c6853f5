#include "lattice/program/locality.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "lattice/core/errors.h"
#include "lattice/core/relation.h"
#include "lattice/program/executor.h"
#include "lattice/program/ops_common.h"

namespace lattice::program {

namespace {

using Names = std::set<std::string_view>;

Names names_in(std::string_view text) {
  Names names;
  for (size_t end = 0; !text.empty(); text.remove_prefix(std::min(end + 1, text.size()))) {
    end = std::min(text.find(' '), text.size());
    names.insert(text.substr(0, end));
  }
  return names;
}

// Row r of the result depends on row r of each operand and on nothing else.
const Names kByRow = names_in(
    "abs add argmax astype batch_norm batch_norm_act batch_norm_features cat concatenate cos "
    "divide equal exp fast_layer_norm fast_rms_norm feats gelu gelu_features greater "
    "greater_equal layer_norm layer_norm_features leaky_relu leaky_relu_features less less_equal "
    "linear linear_features log log1p logical_and logical_not logical_or max maximum mean min "
    "minimum multiply negative not_equal ones_like power reciprocal relu relu_features rms_norm "
    "rms_norm_features rsqrt sigmoid sigmoid_array sigmoid_features sign silu silu_features sin "
    "softmax softplus softplus_features sparse_add sparse_binary sparse_cat_aligned "
    "sparse_maximum sparse_minimum sparse_mul sparse_sub sqrt square subtract sum tanh "
    "tanh_array tanh_features where with_feats zeros_like activation");
// Those of them that also work along an axis, which must not be that of the rows.
const Names kAlongAxis = names_in("argmax concatenate max mean min softmax sum");
const Names kGather =
    names_in("conv3d subm_conv3d normalized_subm_conv3d pool3d sum_pool3d avg_pool3d max_pool3d");
const Names kScatter = names_in(
    "conv_transpose3d generative_conv_transpose3d normalized_conv_transpose3d "
    "normalized_generative_conv_transpose3d pool_transpose3d trilinear_upsample3d");
const Names kBatchNorm = names_in("batch_norm batch_norm_act batch_norm_features");

[[noreturn]] void refuse(const NodeView& node, const std::string& why) {
  throw Error(ErrorCode::argument,
              "[receptive_field] " + node.place() + " is not local: " + why +
                  "; run the network on the whole cloud, or on windows",
              node.node().operation->name);
}

bool has_attribute(const Node& node, std::string_view name) {
  return std::any_of(node.operation->attributes.begin(), node.operation->attributes.end(),
                     [&](const Attribute& a) { return a.name == name; });
}

// Ranks of values that are arrays: few rows show them.
std::vector<int> ranks_of(const Loaded& program) {
  std::vector<int> all(program.graph.names.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  const ProgramLimits none;
  ProgramStats stats;
  const std::shared_ptr<const Loaded> here(std::shared_ptr<const Loaded>{}, &program);
  const Frame frame = frame_of(here, few_rows(program.graph.inputs, true), none);
  const auto values = execute(frame, {none, stats, false, &all});
  std::vector<int> ranks(values.size(), 0);
  for (size_t i = 0; i < values.size(); ++i)
    if (const auto* array = std::get_if<mx::array>(&values[i]))
      ranks[i] = static_cast<int>(array->ndim());
  return ranks;
}

class Reader {
 public:
  explicit Reader(const Loaded& program)
      : program_(program), ranks_(ranks_of(program)), kinds_(program.graph.names.size(), false) {}

  LocalGraph read() {
    const Graph& graph = program_.graph;
    if (graph.inputs.size() != 1 || graph.inputs[0].type.kind != "sparse")
      throw Error(ErrorCode::argument,
                  "[receptive_field] the program must have one input, a sparse tensor; found " +
                      std::to_string(graph.inputs.size()) + " inputs",
                  "receptive_field");
    made_.stage.assign(graph.names.size(), -1);
    made_.nodes.resize(graph.nodes.size());
    made_.ratio.push_back({1, 1, 1});
    made_.ordered.push_back(true);
    made_.stage[0] = 0;
    kinds_[0] = true;
    for (size_t i = 0; i < graph.nodes.size(); ++i) read_node(i);
    if (graph.outputs.size() != 1 || made_.stage[at(graph.outputs[0].second)] < 0)
      throw Error(ErrorCode::argument,
                  "[receptive_field] the program must have one output with rows; found " +
                      std::to_string(graph.outputs.size()) + " outputs",
                  "receptive_field");
    made_.output = graph.outputs[0].second;
    return std::move(made_);
  }

 private:
  static size_t at(int value) { return static_cast<size_t>(value); }

  // Operands that have rows.
  std::vector<int> with_rows(const Reference& operand) const {
    std::vector<int> found;
    const auto add = [&](const Reference& item) {
      if (item.kind == Reference::Kind::value && made_.stage[at(item.value)] >= 0)
        found.push_back(item.value);
    };
    add(operand);
    for (const Reference& item : operand.items) add(item);
    return found;
  }

  void read_node(size_t i) {
    const Node& node = program_.graph.nodes[i];
    const NodeView view(node);
    Local& local = made_.nodes[i];
    std::vector<int> all;
    for (const Reference& operand : node.operands)
      for (const int value : with_rows(operand)) all.push_back(value);
    if (all.empty()) return;  // of tensors alone
    const std::string_view name = node.operation->name;
    if (kByRow.contains(name) && node.operation->version == 1) {
      local.reach = Reach::rows;
      local.beside = all;
      check_by_row(view);
    } else if (name == "conv_norm") {
      read_conv_norm(view, local);
    } else if (kGather.contains(name) || kScatter.contains(name)) {
      read_kernel(view, local, kGather.contains(name) ? Reach::gather : Reach::scatter);
    } else {
      refuse(view, std::string("nothing is known about the rows that ") + node.operation->name +
                       " reads");
    }
    place(view, local);
  }

  void check_by_row(const NodeView& view) {
    const Node& node = view.node();
    const std::string_view name = node.operation->name;
    if (kBatchNorm.contains(name))
      for (const char* statistic : {"mean", "var"})
        if (node.operands[view.operand_index(statistic)].kind == Reference::Kind::none)
          refuse(view, "the statistics are those of all rows");
    if (name.starts_with("fast_") && ranks_[at(with_rows(node.operands[0]).at(0))] < 2)
      refuse(view, "it works along the rows");
    if (!kAlongAxis.contains(name)) return check_ranks(view);
    const int rank = ranks_[at(with_rows(node.operands[0]).at(0))];
    std::vector<int64_t> axes;
    if (has_attribute(node, "axes") && view.has("axes")) axes = view.integers("axes");
    if (has_attribute(node, "axis") && view.has("axis")) axes = {view.integer("axis")};
    for (const int64_t axis : axes)
      if (axis == 0 || axis == -rank) axes.clear();
    if (axes.empty()) refuse(view, "it works along the rows");
  }

  // Arrays of other ranks are broadcast, so that rows could meet other rows.
  void check_ranks(const NodeView& view) {
    const Node& node = view.node();
    const auto rank = [&](int value) { return kinds_[at(value)] ? 2 : ranks_[at(value)]; };
    const bool sparse = std::string_view(node.operation->results[0]) == "sparse";
    const int made = sparse ? 2 : ranks_[at(node.results[0])];
    for (const Reference& operand : node.operands)
      for (const int value : with_rows(operand))
        if (rank(value) != made) refuse(view, "it broadcasts rows along another axis");
  }

  int target_of(const NodeView& view, const char* operand) const {
    for (const Operand& known : view.node().operation->operands)
      if (std::string_view(known.name) == operand) {
        const Reference& given = view.node().operands[view.operand_index(operand)];
        if (given.kind == Reference::Kind::none) return -1;
        const std::vector<int> found = with_rows(given);
        if (found.size() != 1 || !kinds_[at(found[0])])
          refuse(view, "its output coordinates are not those of a sparse tensor of the graph");
        return found[0];
      }
    return -1;
  }

  static Triple triple_or(const NodeView& view, const char* name, const Triple& otherwise) {
    return has_attribute(view.node(), name) ? view.triple(name) : otherwise;
  }

  static KernelSpec spec_of(const NodeView& view) {
    if (std::string_view(view.node().operation->name) == "trilinear_upsample3d") {
      const Triple s = view.triple("stride");
      return {{2 * s[0] - 1, 2 * s[1] - 1, 2 * s[2] - 1}, s, {s[0] - 1, s[1] - 1, s[2] - 1}};
    }
    return {view.triple("kernel_size"), triple_or(view, "stride", {1, 1, 1}),
            triple_or(view, "padding", {0, 0, 0}), triple_or(view, "dilation", {1, 1, 1})};
  }

  void set_kernel(const NodeView& view, Local& local, Reach reach, const char* target) {
    local.reach = reach;
    local.spec = spec_of(view);
    local.centered = reach == Reach::gather;
    local.target = target_of(view, target);
    local.same_rows = reach == Reach::gather && local.target < 0 &&
                      local.spec.stride == Triple{1, 1, 1} && local.spec.padding == Triple{0, 0, 0};
  }

  void read_kernel(const NodeView& view, Local& local, Reach reach) {
    local.inputs = with_rows(view.node().operands[0]);
    if (has_attribute(view.node(), "support") && view.text("support") != "floor")
      refuse(view, "its output has every cell that a kernel reaches");
    const std::string_view name = view.node().operation->name;
    const bool pools = name == "pool_transpose3d" || name == "trilinear_upsample3d";
    set_kernel(view, local, reach, pools ? "target" : "coordinates");
  }

  void read_conv_norm(const NodeView& view, Local& local) {
    const std::string& kind = view.text("kind");
    const bool gathers =
        kind == kind_name(RelationKind::forward) || kind == kind_name(RelationKind::submanifold);
    if (!gathers && kind != kind_name(RelationKind::transposed) &&
        kind != kind_name(RelationKind::generative))
      refuse(view, "nothing is known about the rows that the kind \"" + kind + "\" reads");
    const auto& operands = view.node().operands;
    local.inputs = with_rows(operands[view.operand_index("x")]);
    local.beside = with_rows(operands[view.operand_index("residual")]);
    set_kernel(view, local, gathers ? Reach::gather : Reach::scatter, "coordinates");
  }

  // The stage of the results: a new one where the coordinates are others.
  void place(const NodeView& view, const Local& local) {
    int stage = -1;
    if (local.same_rows) {
      for (const int value : local.inputs) stage = std::max(stage, made_.stage[at(value)]);
      for (const int value : local.beside) stage = std::max(stage, made_.stage[at(value)]);
      for (const std::vector<int>* values : {&local.inputs, &local.beside})
        for (const int value : *values) check_enters(view, value, stage);
    } else {
      stage = new_stage(view, local);
      for (const int value : local.beside) check_enters(view, value, stage);
    }
    const auto& results = view.node().results;
    for (size_t r = 0; r < results.size(); ++r) {
      const char* kind = view.node().operation->results[r];
      // The statistics of a batch norm have no rows.
      if (r > 0 && kBatchNorm.contains(view.node().operation->name)) continue;
      made_.stage[at(results[r])] = stage;
      kinds_[at(results[r])] = std::string_view(kind) == "sparse";
    }
  }

  void check_enters(const NodeView& view, int value, int stage) const {
    const int from = made_.stage[at(value)];
    if (from == stage) return;
    if (made_.ratio[at(from)] != made_.ratio[at(stage)])
      refuse(view, "its operands have different strides");
    if (!kinds_[at(value)])
      refuse(view, "it joins an array to rows on other coordinates; give it the sparse tensor");
    if (root(from) != root(stage))
      refuse(view, "its operands lie on coordinates that the graph does not make equal");
  }

  // The first stage whose coordinates a stage has: targets have those of another.
  int root(int stage) const {
    while (parent_[at(stage)] >= 0) stage = parent_[at(stage)];
    return stage;
  }

  int new_stage(const NodeView& view, const Local& local) {
    const int from = made_.stage[at(local.inputs.at(0))];
    for (const int value : local.inputs) check_enters(view, value, from);
    Triple ratio = made_.ratio[at(from)];
    const Triple stride = local.spec.stride;
    for (size_t a = 0; a < 3; ++a) {
      if (local.reach == Reach::scatter && ratio[a] % stride[a])
        refuse(view, "its lattice is finer than that of the input");
      ratio[a] = local.reach == Reach::gather ? ratio[a] * stride[a] : ratio[a] / stride[a];
    }
    const int target = local.target < 0 ? -1 : made_.stage[at(local.target)];
    // Cells that a generative convolution makes depend on its kernel too.
    const Triple size = local.reach == Reach::scatter ? local.spec.size : Triple{0, 0, 0};
    const auto [found, added] =
        known_.try_emplace({from, target, stride, size}, static_cast<int>(made_.ratio.size()));
    if (!added) return found->second;
    made_.ratio.push_back(ratio);
    made_.ordered.push_back(target >= 0 ? made_.ordered[at(target)]
                                        : made_.ordered[at(from)] && local.reach == Reach::gather);
    parent_.resize(made_.ratio.size(), -1);
    parent_.back() = target;
    return found->second;
  }

  const Loaded& program_;
  const std::vector<int> ranks_;
  std::vector<bool> kinds_;  // of values with rows: whether they are sparse tensors
  std::vector<int> parent_{-1};
  std::map<std::tuple<int, int, Triple, Triple>, int> known_;
  LocalGraph made_;
};

int64_t floor_div(int64_t a, int64_t b) { return floor_to(a, b) / b; }

// The rows of the operand that rows of the result read, along one axis.
Interval reached(const Local& local, const Interval& out, size_t axis) {
  if (out.empty()) return out;
  const int64_t stride = local.spec.stride[axis], padding = local.spec.padding[axis];
  const int64_t size = local.spec.size[axis], dilation = local.spec.dilation[axis];
  const int64_t first = local.centered && size % 2 == 1 ? -(size / 2) * dilation : 0;
  const int64_t last = first + (size - 1) * dilation;
  if (local.reach == Reach::gather)
    return {out.low * stride + first - padding, (out.high - 1) * stride + last - padding + 1};
  return {-floor_div(-(out.low + padding - last), stride),
          floor_div(out.high - 1 + padding - first, stride) + 1};
}

// One walk from the output to the input along an axis; repeated until nothing grows, because two
// operations may make one stage.
class Walk {
 public:
  Walk(const LocalGraph& graph, size_t axis)
      : graph_(graph),
        axis_(axis),
        value_(graph.stage.size()),
        stage_(graph.ratio.size()),
        enters_(graph.ratio.size(), std::vector<Interval>(graph.ratio.size())) {}

  void run(const Interval& own, const Graph& nodes) {
    value_[static_cast<size_t>(graph_.output)] = own;
    stage_[stage_of(graph_.output)] = own;
    for (bool grew = true; grew;) {
      const auto before = std::make_tuple(value_, stage_, enters_);
      for (size_t i = nodes.nodes.size(); i-- > 0;) visit(graph_.nodes[i], nodes.nodes[i].results);
      grew = before != std::make_tuple(value_, stage_, enters_);
    }
  }

  const Interval& stage(size_t s) const { return stage_[s]; }
  const Interval& enters(size_t from, size_t to) const { return enters_[from][to]; }

 private:
  size_t stage_of(int value) const {
    return static_cast<size_t>(graph_.stage[static_cast<size_t>(value)]);
  }

  void need(int value, const Interval& rows) {
    value_[static_cast<size_t>(value)].include(rows);
    stage_[stage_of(value)].include(rows);
  }

  void visit(const Local& local, const std::vector<int>& results) {
    if (local.reach == Reach::none) return;
    const Interval& out = value_[static_cast<size_t>(results[0])];
    if (out.empty()) return;
    const size_t to = stage_of(results[0]);
    const Interval whole = stage_[to];
    const auto beside = [&](int value, const Interval& rows) {
      need(value, rows);
      if (stage_of(value) != to) stage_[stage_of(value)].include(whole);
    };
    for (const int value : local.beside) beside(value, out);
    if (local.target >= 0) stage_[stage_of(local.target)].include(whole);
    const Interval in = local.reach == Reach::rows ? out : reached(local, out, axis_);
    for (const int value : local.inputs) {
      if (local.same_rows) {
        beside(value, in);
        continue;
      }
      need(value, in);
      Interval& enters = enters_[stage_of(value)][to];
      enters.include(in);
      if (local.target < 0) enters.include(support(local, whole));
      stage_[stage_of(value)].include(enters);
    }
  }

  // The rows that make the coordinates of a stage.
  Interval support(const Local& local, const Interval& out) const {
    const int64_t stride = local.spec.stride[axis_];
    if (local.reach == Reach::gather) return {out.low * stride, out.high * stride};
    return reached(local, out, axis_);
  }

  const LocalGraph& graph_;
  const size_t axis_;
  std::vector<Interval> value_, stage_;
  std::vector<std::vector<Interval>> enters_;
};

}  // namespace

void Interval::include(const Interval& other) {
  if (other.empty()) return;
  *this = empty() ? other : Interval{std::min(low, other.low), std::max(high, other.high)};
}

LocalGraph local_graph(const Loaded& program) { return Reader(program).read(); }

Needs needs_of(const LocalGraph& graph, const Loaded& program, const Box& own) {
  const auto n = static_cast<size_t>(graph.stages());
  Needs needs{std::vector<Box>(n), std::vector<std::vector<Box>>(n, std::vector<Box>(n))};
  for (size_t axis = 0; axis < 3; ++axis) {
    Walk walk(graph, axis);
    walk.run(own[axis], program.graph);
    for (size_t from = 0; from < n; ++from) {
      needs.stage[from][axis] = walk.stage(from);
      for (size_t to = 0; to < n; ++to) needs.enters[from][to][axis] = walk.enters(from, to);
    }
  }
  return needs;
}

int64_t floor_to(int64_t value, int64_t step) {
  return (value / step - (value % step != 0 && value < 0)) * step;
}

Box box_of(const TileBox& tile, const Triple& ratio) {
  Box box;
  for (size_t a = 0; a < 3; ++a) {
    const int64_t low = floor_to(tile.low[a], ratio[a]) / ratio[a];
    const int64_t high = -floor_to(-tile.high[a], ratio[a]) / ratio[a];
    const bool cut = tile.low[a] > -kFar || tile.high[a] < kFar;
    if (cut && (low * ratio[a] != tile.low[a] || high * ratio[a] != tile.high[a]))
      throw Error(ErrorCode::argument,
                  "[run_tile] a corner of the tile is " + triple_text(tile.low) + " .. " +
                      triple_text(tile.high) + ", expected multiples of the output stride " +
                      triple_text(ratio),
                  "run_tile", "own");
    box[a] = {low, high};
  }
  return box;
}

TileBox tile_input(const Loaded& program, const LocalGraph& graph, const TileBox& own) {
  const Box box = needs_of(graph, program, box_of(own, graph.output_ratio())).stage[0];
  TileBox input;
  for (size_t a = 0; a < 3; ++a) {
    // The input box always includes the tile itself, even where the network needs fewer rows.
    input.low[a] = std::min(box[a].low, own.low[a]);
    input.high[a] = std::max(box[a].high, own.high[a]);
  }
  return input;
}

}  // namespace lattice::program
