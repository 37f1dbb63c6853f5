// One step of AdamW (Loshchilov and Hutter 2019) in one pass over memory, element by element,
// float32:
//
//   g  = factor g,
//   m' = b1 m + (1 - b1) g,   v' = b2 v + (1 - b2) g^2
//   p' = decay p - rate m' / (correction sqrt(v') + eps)
//
// Outputs may not overlap inputs. Each element has the same bits whatever the number of threads.
#pragma once

#include <cstdint>

namespace lattice::cpu {

struct AdamW {
  const float *p, *g, *m, *v;
  float *p_out, *m_out, *v_out;
  float decay, rate, correction, eps;
  float factor;   // of g
  double b1, b2;  // 1 - b is formed in double
};
void adamw(int64_t n, const AdamW& call);

}  // namespace lattice::cpu
