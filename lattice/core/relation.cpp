#include "lattice/core/relation.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/kernels/cpu/features/conv.h"
#include "lattice/kernels/cpu/geometry/edges.h"
#include "lattice/kernels/cpu/geometry/reached.h"
#include "lattice/kernels/cpu/geometry/relations.h"

namespace lattice {
namespace {

// A value made on first use.
template <typename T>
struct Lazy {
  std::once_flag once;
  std::optional<T> value;
  std::atomic<bool> ready{false};
  template <typename F>
  const T& get(const F& make) {
    std::call_once(once, [&] {
      value.emplace(make());
      ready.store(true, std::memory_order_release);
    });
    return *value;
  }
  const T* peek() const { return ready.load(std::memory_order_acquire) ? &*value : nullptr; }
};

constexpr const char* kName = "KernelRelation";

}  // namespace

struct Relation::Views {
  Lazy<cpu::RelationLists> lists;
  Lazy<cpu::TileBounds> tiles;
  Lazy<Edges> edges;
  std::optional<mx::array> row_offsets;  // made with the edges, by output row
  Lazy<EdgeGroups> output_csr, input_csr, kernel_csr;
  Lazy<OffsetEdges> offset_edges;
  Lazy<ImplicitGemm> implicit_gemm;
  Lazy<SortedImplicitGemm> sorted_implicit_gemm;
  Lazy<TileLists> tile_lists;
  Lazy<EdgeParts> edge_tiles, edge_parts;
  Lazy<std::vector<SegmentPieces>> output_pieces;
  Lazy<bool> one_edge;
  std::mutex reversed_mutex;
  Ptr reversed;                        // owned by the relation that was built
  std::weak_ptr<const Relation> from;  // the relation that owns this reversed one
};

Relation::Relation() : views_(std::make_unique<Views>()) {}
Relation::~Relation() = default;

const char* kind_name(RelationKind kind) {
  static constexpr const char* kNames[] = {
      "forward",           "target",  "submanifold",        "transposed", "generative",
      "target_transposed", "reached", "reached_transposed", "custom"};
  return kNames[static_cast<int>(kind)];
}

bool scatters(RelationKind kind) {
  return kind == RelationKind::transposed || kind == RelationKind::generative ||
         kind == RelationKind::target_transposed || kind == RelationKind::reached_transposed;
}

bool is_reached(RelationKind kind) {
  return kind == RelationKind::reached || kind == RelationKind::reached_transposed;
}

bool offsets_start_at_zero(RelationKind kind) {
  return scatters(kind) || kind == RelationKind::reached;
}

Relation::Fresh Relation::from_lists(cpu::RelationLists lists) {
  Fresh r(new Relation);
  r->n_in_ = lists.n_in;
  r->n_out_ = lists.n_out;
  r->n_k_ = lists.n_k();
  r->n_edges_ = lists.n_edges;
  r->views_->lists.get([&] { return std::move(lists); });
  return r;
}

Relation::Fresh Relation::from_lists(RelationKind kind, const KernelSpec& spec,
                                     cpu::RelationLists lists, CoordinateSet out_coords) {
  Fresh r = from_lists(std::move(lists));
  r->kind_ = kind;
  r->spec_ = spec;
  r->out_coords_ = std::move(out_coords);
  return r;
}

Relation::Fresh Relation::from_edges(const mx::array& in_rows, const mx::array& out_rows,
                                     const mx::array& kernel_ids, int64_t n_in, int64_t n_out,
                                     int64_t n_kernels) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  // A relation may have as many offsets as edges: one matrix for each edge.
  const int64_t most_k =
      std::min(kMost, std::max(kMaxKernelVolume, 16 * static_cast<int64_t>(in_rows.size())));
  if (n_in < 0 || n_out < 0 || n_kernels < 1 || n_in > kMost || n_out > kMost || n_kernels > most_k)
    fail(kName, "n_in and n_out must be in 0..2^31-1 and n_kernels in 1.." +
                    std::to_string(most_k) + ", got " + std::to_string(n_in) + ", " +
                    std::to_string(n_out) + " and " + std::to_string(n_kernels));
  if (in_rows.size() != out_rows.size() || in_rows.size() != kernel_ids.size())
    fail(kName, "in_rows, out_rows and kernel_ids must have equal lengths, got " +
                    std::to_string(in_rows.size()) + ", " + std::to_string(out_rows.size()) +
                    " and " + std::to_string(kernel_ids.size()));
  Fresh r(new Relation);
  r->n_in_ = n_in;
  r->n_out_ = n_out;
  r->n_k_ = n_kernels;
  r->n_edges_ = static_cast<int64_t>(in_rows.size());
  Edges edges{checked_rows(in_rows, n_in, kName, "in_rows"),
              checked_rows(out_rows, n_out, kName, "out_rows"),
              checked_rows(kernel_ids, n_kernels, kName, "kernel_ids")};
  r->views_->edges.get([&] { return std::move(edges); });
  r->given_edges_ = true;
  return r;
}

Relation::Fresh Relation::from_map(RelationKind kind, const KernelSpec& spec, int64_t n_in,
                                   ImplicitGemm map, CoordinateSet out_coords) {
  const int64_t n_out = out_coords.rows(), n_k = spec.volume(), n = n_out * n_k;
  const int32_t* rows = n ? map.out_in_map.data<int32_t>() : nullptr;
  const int64_t n_edges = std::count_if(rows, rows + n, [](int32_t row) { return row >= 0; });
  cpu::Buffer<int32_t> in(n_edges), out(n_edges), ids(n_edges);
  for (int64_t i = 0, e = 0; i < n; ++i)
    if (rows[i] >= 0) {
      in[e] = rows[i];
      out[e] = static_cast<int32_t>(i / n_k);
      ids[e++] = static_cast<int32_t>(i % n_k);
    }
  Fresh r = from_lists(
      kind, spec, cpu::lists_of_edges(in.data(), out.data(), ids.data(), n_edges, n_in, n_out, n_k),
      std::move(out_coords));
  r->views_->implicit_gemm.get([&] { return std::move(map); });
  return r;
}

Relation::Ptr Relation::identity(int64_t n) {
  cpu::RelationLists lists;
  lists.n_in = lists.n_out = lists.n_edges = n;
  lists.lists = {{nullptr, nullptr, n}};
  const Fresh r = from_lists(std::move(lists));
  r->is_identity_ = true;
  return r;
}

const CoordinateSet& Relation::out_coords() const {
  if (!out_coords_)
    fail(kName,
         "out_coords: this relation has no output coordinates (made from edges or "
         "reversed)");
  return *out_coords_;
}

std::vector<Triple> Relation::offsets() const {
  if (kind_ == RelationKind::custom) return {};
  return kernel_offsets(spec_.size, spec_.dilation, !offsets_start_at_zero(kind_));
}

const cpu::RelationLists& Relation::lists() const {
  return views_->lists.get([&] {
    const Edges& e = *views_->edges.peek();
    return cpu::lists_of_edges(e.in_rows.data<int32_t>(), e.out_rows.data<int32_t>(),
                               e.kernel_ids.data<int32_t>(), n_edges_, n_in_, n_out_, n_k_);
  });
}

const cpu::TileBounds& Relation::tiles() const {
  return views_->tiles.get([&] { return cpu::tile_bounds(lists(), cpu::conv_tile(lists())); });
}

Relation::Ptr Relation::reversed() const {
  if (const Ptr original = views_->from.lock()) return original;
  std::lock_guard lock(views_->reversed_mutex);
  if (!views_->reversed) {
    Fresh r(new Relation);
    r->kind_ = kind_;
    r->spec_ = spec_;
    r->n_in_ = n_out_;
    r->n_out_ = n_in_;
    r->n_k_ = n_k_;
    r->n_edges_ = n_edges_;
    r->is_reversed_ = !is_reversed_;
    r->is_identity_ = is_identity_;
    if (given_edges_) {  // lists are made when they are needed: with a matrix for each edge they
                         // are not
      r->given_edges_ = true;
      r->views_->edges.get([&] { return swapped(edges(), n_in_, n_out_, n_k_); });
    } else {
      r->views_->lists.get([&] { return cpu::reversed(lists()); });
    }
    r->views_->from = weak_from_this();
    views_->reversed = std::move(r);
  }
  return views_->reversed;
}

const Edges& Relation::edges() const {
  return views_->edges.get([&] {
    EdgesByOutput made = make_edges(lists());
    views_->row_offsets = std::move(made.row_offsets);
    return std::move(made.edges);
  });
}

const EdgeGroups& Relation::output_csr() const {
  return views_->output_csr.get([&] {
    const Edges& sorted = edges();
    return given_edges_ ? group_edges(sorted.out_rows, n_out_)
                        : groups_in_order(*views_->row_offsets, n_edges_);
  });
}

const EdgeGroups& Relation::input_csr() const {
  return views_->input_csr.get([&] { return group_edges(edges().in_rows, n_in_); });
}

const EdgeGroups& Relation::kernel_csr() const {
  return views_->kernel_csr.get([&] { return group_edges(edges().kernel_ids, n_k_); });
}

const OffsetEdges& Relation::offset_edges() const {
  return views_->offset_edges.get([&]() -> OffsetEdges {
    if (const Ptr original = views_->from.lock()) {
      const OffsetEdges& e = original->offset_edges();
      return {e.row_offsets, e.out_rows, e.in_rows};
    }
    return make_offset_edges(lists());
  });
}

const ImplicitGemm& Relation::implicit_gemm() const {
  return views_->implicit_gemm.get([&] { return make_implicit_gemm(lists()); });
}

const SortedImplicitGemm& Relation::sorted_implicit_gemm() const {
  if (n_k_ > 32)
    fail(kName, "sorted_implicit_gemm needs at most 32 offsets, got " + std::to_string(n_k_));
  return views_->sorted_implicit_gemm.get([&] { return make_sorted_implicit_gemm(lists()); });
}

const TileLists& Relation::tile_lists() const {
  return views_->tile_lists.get([&] { return make_tile_lists(lists()); });
}

const EdgeParts& Relation::edge_tiles() const {
  return views_->edge_tiles.get(
      [&] { return make_edge_parts(offset_edges().row_offsets, kTileEdges); });
}

const EdgeParts& Relation::edge_parts() const {
  return views_->edge_parts.get([&] {
    if (!is_identity_) return make_edge_parts(offset_edges().row_offsets, kPartEdges);
    const int32_t all[] = {0, static_cast<int32_t>(n_edges_)};
    return make_edge_parts(new_array(all, {2}, mx::int32), kPartEdges);
  });
}

const std::vector<SegmentPieces>& Relation::output_pieces() const {
  return views_->output_pieces.get([&] { return cut_segments(output_csr().row_offsets); });
}

bool Relation::has_one_edge_per_output() const {
  if (n_edges_ != n_out_) return false;
  return views_->one_edge.get([&] { return cpu::has_one_edge_per_output(lists()); });
}

cpu::Coverage Relation::coverage() const { return cpu::coverage(lists()); }

size_t Relation::nbytes() const {
  const Views& v = *views_;
  size_t total = sizeof(*this) + sizeof(Views);
  const auto add = [&](const auto&... views) {
    ((total += views.peek() ? bytes_of(*views.peek()) : 0), ...);
  };
  const auto add_views = [&](const Views& of) {
    add(of.edges, of.output_csr, of.input_csr, of.kernel_csr, of.implicit_gemm,
        of.sorted_implicit_gemm, of.tile_lists, of.edge_tiles, of.edge_parts, of.output_pieces);
  };
  add_views(v);
  add(v.offset_edges);  // the reversed relation shares them
  if (const auto* x = v.lists.peek()) total += x->nbytes();
  if (const auto* x = v.tiles.peek()) total += x->bounds.nbytes();
  // The reversed relation shares the lists when they are monotone.
  std::lock_guard lock(views_->reversed_mutex);
  if (v.reversed) {
    const Views& other = *v.reversed->views_;
    add_views(other);
    if (const auto* x = other.tiles.peek()) total += x->bounds.nbytes();
    if (const auto* x = other.lists.peek(); x && v.lists.peek() && !v.lists.peek()->monotone)
      total += x->nbytes();
  }
  return total;
}

std::string Relation::text() const {
  return std::string("KernelRelation(kind=") + (is_reversed_ ? "reversed " : "") +
         kind_name(kind_) + ", n_in=" + std::to_string(n_in_) +
         ", n_out=" + std::to_string(n_out_) + ", n_kernels=" + std::to_string(n_k_) +
         ", edges=" + std::to_string(n_edges_) + ")";
}

namespace {

constexpr int64_t kMaskBits = 32;  // of a mask that rows are sorted by

// Makes the views that a product on this relation reads.
void make_product_views(const Relation& r) {
  const bool map = r.kind() != RelationKind::custom && r.lists().out_once;
  if (r.has_one_edge_per_output()) {
    r.offset_edges(), r.edge_tiles();
  } else if (map && r.n_kernels() <= kMaskBits) {
    r.sorted_implicit_gemm();
  } else if (map) {
    r.implicit_gemm();
  } else {
    r.tile_lists();
  }
}

}  // namespace

std::vector<std::function<void()>> views_for_gpu(const Relation::Ptr& relation, bool gradients) {
  std::vector<std::function<void()>> views = {[relation] { make_product_views(*relation); }};
  if (!gradients) return views;
  views.emplace_back([relation] { relation->edge_parts(); });
  // A reversed submanifold relation is its own mirror image.
  if (relation->kind() == RelationKind::submanifold || relation->n_kernels() > kMaskBits)
    views.emplace_back([relation] { relation->reversed(); });
  else
    views.emplace_back([relation] { make_product_views(*relation->reversed()); });
  return views;
}

// relate(): checks the arguments of each kind and calls its kernel.

namespace {

CoordinateSet made_set(cpu::MadeCoords&& made, mx::Dtype dtype, std::string_view operation) {
  return CoordinateSet(adopt(std::move(made.data), {static_cast<int>(made.rows), 4}, dtype),
                       operation);
}

void require(bool ok, std::string_view operation, const std::string& message) {
  if (!ok) fail(operation, message);
}

// Bounds of the output; an error if no cell is left.
Bounds checked_reach(const Bounds& in, const cpu::Kernel& kernel, RelationKind kind,
                     std::string_view operation) {
  const Bounds out = cpu::reached_bounds(in, kernel, scatters(kind));
  for (size_t a = 0; a < 3; ++a)
    require(out.low[a] < out.high[a], operation,
            "bounds " + bounds_text(in) + " leave no output cell on axis " + std::to_string(a) +
                " for kernel_size " + triple_text(kernel.size) + ", stride " +
                triple_text(kernel.stride) + " and padding " + triple_text(kernel.padding) +
                "; use larger bounds, a smaller kernel or more padding");
  return out;
}

Relation::Fresh build(RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                      const std::optional<CoordinateSet>& target, std::string_view operation) {
  // Two rows with one coordinate both contribute to what they reach, as in spconv.
  const bool may_repeat = is_reached(kind) && !target;
  const auto& index = may_repeat ? in.index() : in.unique_index(operation);
  const cpu::Kernel kernel = spec.kernel(!offsets_start_at_zero(kind));
  const auto finish = [&](cpu::RelationLists lists, const CoordinateSet& out) {
    return Relation::from_lists(kind, spec, std::move(lists), out);
  };
  cpu::MadeCoords made;
  if (is_reached(kind) && !target) {
    std::optional<Bounds> inside;
    if (spec.bounds) inside = checked_reach(*spec.bounds, kernel, kind, operation);
    cpu::RelationLists lists =
        cpu::relate_reached(in.span(), index, kernel, scatters(kind), inside, spec.order, &made);
    return finish(std::move(lists), made_set(std::move(made), in.dtype(), operation));
  }
  switch (kind) {
    case RelationKind::reached:
    case RelationKind::target:
      return finish(cpu::relate_gather(index, target->index(), kernel), *target);
    case RelationKind::target_transposed:
      return finish(cpu::relate_scatter(index, target->index(), kernel), *target);
    case RelationKind::transposed:
    case RelationKind::generative: {
      cpu::RelationLists lists = cpu::relate_generated(in.span(), index, kernel, &made);
      return finish(std::move(lists), made_set(std::move(made), in.dtype(), operation));
    }
    default:
      break;
  }
  if (spec.stride == Triple{1, 1, 1} && spec.padding == Triple{0, 0, 0})
    return finish(cpu::relate_same(index, kernel), in);
  cpu::RelationLists lists = cpu::relate_downscaled(in.span(), index, kernel, &made);
  return finish(std::move(lists), made_set(std::move(made), in.dtype(), operation));
}

}  // namespace

void check_relate(RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                  const std::optional<CoordinateSet>& target, std::string_view operation) {
  const bool wants_target = kind == RelationKind::target || kind == RelationKind::target_transposed;
  require(wants_target == target.has_value() || kind == RelationKind::reached, operation,
          wants_target ? "target coordinates are missing"
                       : "target coordinates are only for the target kinds");
  require(kind != RelationKind::custom, operation, "a custom relation is made from edges");
  if (target) check_same_dtype(in, *target, operation, "coords and target");
  if (kind == RelationKind::submanifold)
    require(spec.is_centered_submanifold(), operation,
            "a submanifold relation needs an odd kernel_size, stride 1 and padding 0, got " +
                spec.text());
  if (kind == RelationKind::generative)
    require(spec.padding == Triple{0, 0, 0} && spec.dilation == Triple{1, 1, 1}, operation,
            "a generative relation has padding 0 and dilation 1, got " + spec.text());
}

Relation::Fresh relate_checked(RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                               const std::optional<CoordinateSet>& target,
                               std::string_view operation) {
  return named(operation, [&] { return build(kind, in, spec, target, operation); });
}

Relation::Fresh relate(RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                       const std::optional<CoordinateSet>& target, std::string_view operation) {
  check_relate(kind, in, spec, target, operation);
  return relate_checked(kind, in, spec, target, operation);
}

}  // namespace lattice
