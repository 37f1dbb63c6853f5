// Oracle cases of distance: one distance at a time in float64.
#include <algorithm>
#include <cmath>

#include "lattice/routes/distance.h"
#include "lattice/selftest/cases.h"

namespace lattice {

void add_distance_cases(std::vector<OracleCase>& cases) {
  struct Sizes {
    int n, m, c;
  };
  Random random{13};
  for (const Distance mode : {Distance::euclidean, Distance::squared, Distance::cosine})
    for (const Sizes& z :
         {Sizes{0, 3, 2}, {3, 0, 2}, {2, 3, 0}, {1, 1, 1}, {7, 5, 3}, {65, 130, 3}, {9, 33, 20}}) {
      const Values a = random_values(random, {z.n, z.c}, mx::float32),
                   b = random_values(random, {z.m, z.c}, mx::float32);
      OracleCase test;
      test.call = distance_call(a.array, b.array, mode, {});
      for (int64_t i = 0; i < z.n; ++i)
        for (int64_t j = 0; j < z.m; ++j) {
          test.magnitude.push_back(0);
          test.expected.push_back(exact_distance(a.exact.data() + i * z.c, b.exact.data() + j * z.c,
                                                 z.c, mode, &test.magnitude.back()));
        }
      test.label = std::string(name(mode)) + " " + std::to_string(z.n) + " x " +
                   std::to_string(z.m) + " of " + std::to_string(z.c) + " channels";
      cases.push_back(std::move(test));
    }
}

}  // namespace lattice
