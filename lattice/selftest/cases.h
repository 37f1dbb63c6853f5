// Cases with known answers for every operation in the route table. selftest() and the tests of
// routes run them.
//
// The answer is computed edge by edge in float64 from the relation's public edges, which no fast
// kernel reads.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lattice/core/relation.h"
#include "lattice/kernels/cpu/base/splitmix64.h"
#include "lattice/routes/decide.h"

namespace lattice {

// A question of any family together with the table that answers it.
class Question {
 public:
  virtual ~Question() = default;
  virtual const routes::AnyTable& table() const = 0;
  // Why a row of the table does not fit: its conditions, or also the backend of its code.
  virtual routes::Rejection refusal_by_conditions(const routes::Route& row) const = 0;
  virtual routes::Rejection refusal(const routes::Route& row) const = 0;
  // The parts of an answer that are compared, from a given row or from the row that is chosen.
  virtual graph::Arrays run(const routes::Route& row, mx::StreamOrDevice s) const = 0;
  virtual graph::Arrays run(mx::StreamOrDevice s) const = 0;
  virtual routes::Decision decide(mx::StreamOrDevice s) const = 0;
  virtual bool is_tf32(const routes::Route& row) const = 0;
  virtual bool has_probe_case(const routes::Route& row) const = 0;
};

template <class Asked, class Made>
class QuestionOf final : public Question {
 public:
  using Row = routes::Row<Asked, Made>;
  QuestionOf(const routes::Table<Asked, Made>& table, Asked asked)
      : asked(std::move(asked)), table_(table) {}
  const routes::AnyTable& table() const override { return table_; }
  routes::Rejection refusal_by_conditions(const routes::Route& row) const override {
    return typed(row).refusal_by_conditions(asked);
  }
  routes::Rejection refusal(const routes::Route& row) const override {
    return typed(row).refusal(asked);
  }
  graph::Arrays run(const routes::Route& row, mx::StreamOrDevice s) const override {
    const Asked here = on(s);
    return compared(here, typed(row).run(here, row));
  }
  graph::Arrays run(mx::StreamOrDevice s) const override {
    const Asked here = on(s);
    return compared(here, routes::run(table_, here));
  }
  routes::Decision decide(mx::StreamOrDevice s) const override {
    return routes::decide(table_, on(s));
  }
  bool is_tf32(const routes::Route& row) const override {
    return routes::is_tf32(typed(row), asked);
  }
  bool has_probe_case(const routes::Route& row) const override {
    if constexpr (routes::Probed<Asked>) return probe_case(typed(row), asked).has_value();
    return false;
  }

  const Asked asked;

 private:
  static const Row& typed(const routes::Route& row) { return static_cast<const Row&>(row); }
  Asked on(mx::StreamOrDevice s) const {
    Asked here = asked;
    here.stream = s;
    return here;
  }
  const routes::Table<Asked, Made>& table_;
};

// A case and its answer.
struct Answer {
  std::string label = {};              // "submanifold 5 -> 7 float16"
  mx::Dtype dtype = mx::float32;       // of the result
  std::vector<double> expected = {};   // of the results, one after the other, row-major
  std::vector<double> magnitude = {};  // sum of |terms|, to bound the float32 rounding of a sum
};

// An operation that has one way per device and no table.
struct PlainCase : Answer {
  std::string operation = {};
  std::function<mx::array(mx::StreamOrDevice)> run = {};
};

struct OracleCase : Answer {
  std::shared_ptr<const Question> question = {};
  const std::string& operation() const { return question->table().operation; }
  const std::vector<const routes::Route*>& routes() const { return question->table().routes; }
  // What is asked, if it is of this family; else null.
  template <class Asked, class Made>
  const Asked* asked(const routes::Table<Asked, Made>& table) const {
    return &question->table() == &table
               ? &static_cast<const QuestionOf<Asked, Made>&>(*question).asked
               : nullptr;
  }
};

template <class Asked, class Made>
std::shared_ptr<const Question> question(const routes::Table<Asked, Made>& table, Asked asked) {
  return std::make_shared<const QuestionOf<Asked, Made>>(table, std::move(asked));
}

// All relation kinds, float32, float16 and bfloat16, odd channel counts, groups, bias, empty sets.
// The same on every machine.
std::vector<OracleCase> oracle_cases();
std::vector<PlainCase> plain_cases();

// The same numbers everywhere.
struct Random {
  uint64_t state;
  uint64_t next() { return cpu::splitmix64(state); }
  int64_t below(int64_t n) { return static_cast<int64_t>(next() % static_cast<uint64_t>(n)); }
  float real() { return static_cast<float>(next() >> 40) * 0x1p-23f - 1.0f; }
};

// Values and the array of a dtype that holds exactly these values.
struct Values {
  mx::array array;
  std::vector<double> exact;
};
Values random_values(Random& random, mx::Shape shape, mx::Dtype dtype);
// n distinct rows in two batches, x, y, z in [-extent, extent).
CoordinateSet random_coords(Random& random, int64_t n, int64_t extent);
// A relation of that kind on n random rows; custom: edges in any order, some of them twice.
Relation::Ptr make_relation(Random& random, RelationKind kind, int64_t n);

// Largest |result - expected| / tolerance over all elements, where tolerance = half a unit in the
// last place of one final rounding + part * magnitude. At most 1 is right. Evaluates the results.
// kTf32Part: operands lose up to 2^-10 each before they are multiplied.
inline constexpr double kFloat32Part = 0x1p-20, kTf32Part = 0x1p-9;
double oracle_error(const Answer& test, const graph::Arrays& results, double part = kFloat32Part);

// The cases of one file each; oracle_cases() and plain_cases() are all of them.
void add_conv_cases(std::vector<OracleCase>& cases);
void add_pool_cases(std::vector<OracleCase>& cases);
void add_map_rows_cases(std::vector<OracleCase>& cases);
void add_per_edge_cases(std::vector<OracleCase>& cases);
void add_geometry_cases(std::vector<OracleCase>& cases);
void add_integer_cases(std::vector<OracleCase>& cases);
void add_distance_cases(std::vector<OracleCase>& cases);
void add_attention_cases(std::vector<OracleCase>& cases);
void add_norm_cases(std::vector<OracleCase>& cases);
void add_features_cases(std::vector<PlainCase>& cases);
void add_distance_gradient_cases(std::vector<PlainCase>& cases);
void add_neighbor_attention_cases(std::vector<PlainCase>& cases);

}  // namespace lattice
