#include "lattice/core/geometry_plan.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <limits>
#include <set>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/coding/bytes.h"
#include "lattice/kernels/cpu/geometry/keys.h"
#include "lattice/kernels/cpu/geometry/relation_lists.h"

namespace lattice {
namespace {

constexpr char kMagic[] = {'M', 'L', 'A', 'T', 'P', 'L', 'A', 'N'};
constexpr uint32_t kVersion = 1;
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
constexpr const char* kDecode = "GeometryPlan.decode";
// Limits on the cost of the steps of a stored plan, so that a short file cannot demand hours of
// work. They limit the offsets of a kernel, the pairs of row and offset in all, and the rows that
// transposed kernels make.
constexpr int64_t kMostOffsets = 4096, kMostPairs = int64_t{1} << 34, kMostMade = int64_t{1} << 28;
// The same limits in proportion to the rows that the file really holds: a decoder of five levels
// makes 8^5 rows from one.
constexpr int64_t kFreePairs = int64_t{1} << 24, kPairsPerRow = int64_t{1} << 16;
constexpr int64_t kFreeMade = int64_t{1} << 21, kMadePerRow = int64_t{1} << 15;

bool makes_coordinates(RelationKind kind) {
  return kind == RelationKind::forward || kind == RelationKind::transposed ||
         kind == RelationKind::generative;
}
bool wants_target(RelationKind kind) {
  return kind == RelationKind::target || kind == RelationKind::target_transposed;
}

// Counts the cost of steps; false when it is too much.
struct Cost {
  int64_t rows = 0;  // of the coordinates in the file
  int64_t pairs = 0, made = 0;
  bool add(RelationKind kind, int64_t n_in, const KernelSpec& spec) {
    if (spec.volume() > kMostOffsets) return false;
    pairs += n_in * spec.volume();  // at most 2^43 more, and nothing is added after the first false
    if (kind == RelationKind::transposed || kind == RelationKind::generative)
      made += n_in * spec.volume();
    return pairs <= std::min(kMostPairs, kFreePairs + kPairsPerRow * (rows + made)) &&
           made <= std::min(kMostMade, kFreeMade + kMadePerRow * rows);
  }
};

void put_triple(std::vector<uint8_t>& out, const Triple& t) {
  for (int64_t v : t) cpu::put(out, static_cast<uint64_t>(v));
}
// Values below 2^31, except strides of tensors, which are int64. KernelSpec checks them.
Triple get_triple(cpu::ByteReader& in) {
  Triple t;
  for (int64_t& v : t) v = static_cast<int64_t>(in.number<uint64_t>());
  return t;
}

void put_set(std::vector<uint8_t>& out, const CoordinateSet& set, const Triple& stride) {
  const cpu::CoordSpan span = set.span();
  cpu::put(out, static_cast<uint8_t>(span.is64));
  cpu::put(out, static_cast<uint64_t>(span.rows));
  put_triple(out, stride);
  const size_t bytes = static_cast<size_t>(span.rows) * 4 * (span.is64 ? 8 : 4);
  cpu::put_bytes(out, {static_cast<const uint8_t*>(span.data), bytes});
}

CoordinateMapKey get_set(cpu::ByteReader& in, CoordinateManager& manager) {
  const uint8_t is64 = in.number<uint8_t>();
  const uint64_t rows = in.number<uint64_t>();
  if (is64 > 1 || rows > static_cast<uint64_t>(std::numeric_limits<int32_t>::max()))
    cpu::throw_bad_data(kDecode, "has a wrong header of coordinates");
  const Triple stride = get_triple(in);
  const cpu::Bytes data = in.bytes(rows * 4 * (is64 ? 8 : 4));
  cpu::Buffer<std::byte> copy(static_cast<int64_t>(data.size()));
  if (!data.empty()) std::memcpy(copy.data(), data.data(), data.size());
  const mx::array coords =
      adopt(std::move(copy), {static_cast<int>(rows), 4}, is64 ? mx::int64 : mx::int32);
  return manager.insert_coords(coords, stride, std::nullopt, kDecode);
}

}  // namespace

GeometryPlan GeometryPlan::record(const SparseTensor& x, bool gradients, bool gpu) {
  GeometryPlan plan;
  plan.manager_ = x.coord_manager();
  plan.batch_counts_ = x.batch_counts();
  plan.roots_ = {x.coord_key()};
  std::vector<CachedRelation> left = plan.manager_->relations();
  std::set<CoordinateMapKey> known = {x.coord_key()};
  const auto take = [&](const auto& fits) {
    const auto found = std::find_if(left.begin(), left.end(), fits);
    if (found == left.end()) return false;
    if (found->target && known.insert(*found->target).second) plan.roots_.push_back(*found->target);
    known.insert(*found->relation->out_key());
    plan.steps_.push_back(*found);
    left.erase(found);
    return true;
  };
  const auto reached = [&](const CachedRelation& c) { return known.contains(c.in); };
  const auto ready = [&](const CachedRelation& c) {
    return reached(c) && (!c.target || known.contains(*c.target));
  };
  // A target that nothing makes was given by the user; it is taken only when no step is ready.
  while (take(ready) || take(reached)) {
  }
  plan.prepare(gradients, gpu);
  return plan;
}

// Each view is a task of its own.
void GeometryPlan::prepare(bool gradients, bool gpu) const {
  std::vector<std::function<void()>> tasks;
  for (const CachedRelation& step : steps_) {
    const Relation::Ptr r = step.relation;
    if (gpu) {
      for (auto& view : views_for_gpu(r, gradients)) tasks.push_back(std::move(view));
      continue;
    }
    tasks.emplace_back([r] { r->tiles(); });
    if (gradients) tasks.emplace_back([r] { r->reversed()->tiles(); });
  }
  cpu::parallel_for(static_cast<int64_t>(tasks.size()),
                    [&](int64_t i) { tasks[static_cast<size_t>(i)](); });
}

SparseTensor GeometryPlan::bind(const mx::array& feats) const {
  const int64_t rows = manager_->set(key()).rows();
  if (feats.ndim() != 2 || feats.shape(0) != rows)
    fail("GeometryPlan.bind", "feats must have shape (" + std::to_string(rows) + ", C), got " +
                                  shape_text(feats.shape()));
  return SparseTensor(manager_, key(), feats, batch_counts_);
}

size_t GeometryPlan::nbytes() const {
  size_t bytes = 0;
  for (const CachedRelation& step : steps_) bytes += step.relation->nbytes();
  return bytes;
}

std::string GeometryPlan::text() const {
  int64_t edges = 0;
  for (const CachedRelation& step : steps_) edges += step.relation->edge_count();
  return "GeometryPlan(rows=" + std::to_string(manager_->set(key()).rows()) +
         ", relations=" + std::to_string(steps_.size()) + ", edges=" + std::to_string(edges) +
         ", bytes=" + std::to_string(nbytes()) + ")";
}

std::vector<uint8_t> GeometryPlan::encode() const {
  std::map<CoordinateMapKey, uint32_t> slots;
  std::vector<uint8_t> body;
  cpu::put(body, static_cast<uint32_t>(roots_.size()));
  for (const CoordinateMapKey& key : roots_) {
    slots.emplace(key, static_cast<uint32_t>(slots.size()));
    put_set(body, manager_->set(key), key.stride);
  }
  cpu::put(body, static_cast<uint8_t>(batch_counts_.has_value()));
  if (batch_counts_) {
    cpu::put(body, static_cast<uint32_t>(batch_counts_->size()));
    for (int64_t n : *batch_counts_) cpu::put(body, static_cast<uint64_t>(n));
  }
  cpu::put(body, static_cast<uint32_t>(steps_.size()));
  Cost cost;
  for (const CoordinateMapKey& key : roots_) cost.rows += manager_->set(key).rows();
  for (const auto& [in, target, relation] : steps_) {
    if (is_reached(relation->kind()))
      fail("GeometryPlan.encode",
           "a plan with reached supports cannot be stored; save the coordinates and record the "
           "plan again");
    if (!cost.add(relation->kind(), relation->n_in(), relation->spec()))
      fail("GeometryPlan.encode",
           "the plan is too large to be stored: a reader accepts kernels of at most 4,096 offsets "
           "and relations of at most 2^34 pairs of row and offset; save the coordinates and record "
           "the plan again");
    cpu::put(body, static_cast<uint8_t>(relation->kind()));
    cpu::put(body, slots.at(in));
    cpu::put(body, target ? slots.at(*target) : kNone);
    const KernelSpec& spec = relation->spec();
    for (const Triple& t : {spec.size, spec.stride, spec.padding, spec.dilation})
      put_triple(body, t);
    cpu::put(body, static_cast<uint64_t>(relation->edge_count()));
    if (makes_coordinates(relation->kind()))
      slots.emplace(*relation->out_key(), static_cast<uint32_t>(slots.size()));
  }
  std::vector<uint8_t> out(std::begin(kMagic), std::end(kMagic));
  cpu::put(out, kVersion);
  cpu::put(out, cpu::crc32c(body));
  cpu::put_bytes(out, body);
  return out;
}

namespace {

[[noreturn]] void bad(const std::string& text) { cpu::throw_bad_data(kDecode, text); }

// What stands behind the head, which is checked.
cpu::ByteReader body_of(std::span<const uint8_t> data) {
  cpu::ByteReader in(data, kDecode);
  if (!std::ranges::equal(in.bytes(sizeof kMagic), kMagic)) bad("is no geometry plan");
  if (const uint32_t version = in.number<uint32_t>(); version != kVersion)
    bad("has version " + std::to_string(version) + ", expected " + std::to_string(kVersion));
  const uint32_t crc = in.number<uint32_t>();
  if (cpu::crc32c(in.rest()) != crc) bad("is damaged: the checksum differs");
  return in;
}

}  // namespace

GeometryPlan GeometryPlan::decode(std::span<const uint8_t> data, bool gradients,
                                  const RelationBuilder& build, bool gpu) {
  cpu::ByteReader in = body_of(data);
  GeometryPlan plan;
  plan.manager_ = CoordinateManager::create();
  const uint32_t n_roots = in.number<uint32_t>();
  if (n_roots == 0 || n_roots > in.rest().size())
    bad("has " + std::to_string(n_roots) + " sets of coordinates");
  for (uint32_t i = 0; i < n_roots; ++i) plan.roots_.push_back(get_set(in, *plan.manager_));
  if (const uint8_t counted = in.number<uint8_t>(); counted == 1) {
    const uint32_t n = in.number<uint32_t>();
    if (n > in.rest().size() / 8) bad("ends early in the batch counts");
    BatchCounts counts;
    for (uint32_t i = 0; i < n; ++i) counts.push_back(static_cast<int64_t>(in.number<uint64_t>()));
    if (counts != count_batches(plan.manager_->set(plan.key()), n))
      bad("has batch counts that are not those of its rows");
    plan.batch_counts_ = std::move(counts);
  } else if (counted > 1) {
    bad("has a wrong mark of batch counts");
  }

  std::vector<CoordinateMapKey> slots = plan.roots_;
  const uint32_t n_steps = in.number<uint32_t>();
  Cost cost;
  for (const CoordinateMapKey& key : slots) cost.rows += plan.manager_->set(key).rows();
  for (uint32_t i = 0; i < n_steps; ++i) {
    const std::string step = "step " + std::to_string(i);
    const uint8_t kind_number = in.number<uint8_t>();
    if (kind_number >= static_cast<uint8_t>(RelationKind::reached))
      bad(step + " is of no known kind");
    const auto kind = static_cast<RelationKind>(kind_number);
    const uint32_t from = in.number<uint32_t>(), to = in.number<uint32_t>();
    if (from >= slots.size() || wants_target(kind) != (to != kNone) ||
        (to != kNone && to >= slots.size()))
      bad(step + " names coordinates that do not exist");
    const Triple size = get_triple(in), stride = get_triple(in), padding = get_triple(in),
                 dilation = get_triple(in);
    const KernelSpec spec(size, stride, padding, dilation);
    const uint64_t n_edges = in.number<uint64_t>();
    if (!cost.add(kind, plan.manager_->set(slots[from]).rows(), spec))
      bad(step + " asks for too many edges");
    std::optional<CoordinateMapKey> target;
    if (to != kNone) target = slots[to];
    const Relation::Ptr relation =
        plan.manager_->relation(kind, slots[from], target, spec, kDecode, build);
    if (static_cast<uint64_t>(relation->edge_count()) != n_edges)
      bad(step + " has " + std::to_string(relation->edge_count()) + " edges, expected " +
          std::to_string(n_edges));
    plan.steps_.push_back({slots[from], target, relation});
    if (makes_coordinates(kind)) slots.push_back(*relation->out_key());
  }
  if (!in.rest().empty()) bad("goes on after its end");
  plan.prepare(gradients, gpu);
  return plan;
}

}  // namespace lattice
