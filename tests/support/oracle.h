// Relations and convolutions written for clarity: std::map look-ups, 128-bit coordinates, float64
// sums. Tests compare the library with this; nothing here shares code with it.
//
//   edge (i, o, k):   y[o] += x[i] W[k],   dx[i] += W[k] gy[o],   dW[k] += x[i] gy[o]
//
// s stride, p padding, o_k kernel offset, equal batch at both ends:
//   forward, target, submanifold                in = out * s + o_k - p,  centered offsets
//   transposed, generative, target_transposed   out = in * s + o_k - p,  offsets from zero
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace lattice::support {

using Coordinate = std::array<int64_t, 4>;  // batch, x, y, z
using Triple = std::array<int64_t, 3>;

struct Spec {
  Triple size{3, 3, 3};
  Triple stride{1, 1, 1};
  Triple padding{0, 0, 0};
  Triple dilation{1, 1, 1};
  int64_t volume() const { return size[0] * size[1] * size[2]; }
};

enum class Kind { forward, target, submanifold, transposed, generative, target_transposed };
inline constexpr std::array kKinds{Kind::forward,    Kind::target,     Kind::submanifold,
                                   Kind::transposed, Kind::generative, Kind::target_transposed};
const char* name(Kind kind);

struct Edge {
  int64_t in = 0, out = 0, k = 0;
  auto operator<=>(const Edge&) const = default;
};

// A produced coordinate that does not fit the coordinate dtype: the first one in production order.
struct Overflow {
  int axis = 0;  // 1 x, 2 y, 3 z
  std::string value;
};

struct RelationOracle {
  std::vector<Coordinate> out;
  std::vector<Edge> edges;
  std::optional<Overflow> overflow;  // then out and edges are empty
};

// Offset k = (ix * Ky + iy) * Kz + iz. Centered: an odd size is centered on 0, an even one is 0 ..
// size - 1; indexed: always 0 .. size - 1. Then times dilation.
std::vector<Triple> kernel_offsets(const Triple& size, const Triple& dilation, bool centered);

// `in` is free of duplicates. `target` is read by the two target kinds only. is64: produced
// coordinates must fit int64, else int32. A probe outside the range simply finds nothing.
RelationOracle relate(Kind kind, const std::vector<Coordinate>& in, const Spec& spec, bool is64,
                      const std::vector<Coordinate>& target = {});

// Shapes of a convolution: x (n_in, c_in), w (n_k, c_in / groups, c_out), y (n_out, c_out), all
// row-major.
struct ConvShape {
  int64_t n_in = 0, n_out = 0, n_k = 0, c_in = 0, c_out = 0, groups = 1;
};
using Values = std::vector<double>;

Values conv(const ConvShape& s, std::span<const Edge> edges, const Values& x, const Values& w);
// The gradient of <gy, conv(x, w)> in x.
Values conv_input_grad(const ConvShape& s, std::span<const Edge> edges, const Values& gy,
                       const Values& w);
// The gradient of <gy, conv(x, w)> in w.
Values outer(const ConvShape& s, std::span<const Edge> edges, const Values& x, const Values& gy);

double dot(const Values& a, const Values& b);
// |<gy, Lx> - <L* gy, x>| relative to the sum of the magnitudes of all terms; 0 when both are
// empty.
double adjoint_error(const Values& gy, const Values& lx, const Values& adjoint_gy, const Values& x);
// Largest |a - b| relative to the largest |b|; infinity when sizes differ or a value is not finite.
double relative_error(const Values& a, const Values& b);

}  // namespace lattice::support
