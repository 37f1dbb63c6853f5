// A tiled run asks for kernels whose rows do not depend on the rows beside them.
#pragma once

#include "lattice/api.h"

namespace lattice {

// While one lives, the routes of this thread compute each row of a result from the rows that it
// depends on alone, whatever else the tensor holds. Then a part of a cloud gives the bits of the
// whole.
class LATTICE_API RowIndependent {
 public:
  RowIndependent();
  ~RowIndependent();
  RowIndependent(const RowIndependent&) = delete;
  static bool is_asked();
};

}  // namespace lattice
