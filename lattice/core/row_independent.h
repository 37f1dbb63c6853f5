// A switch for tiled runs, which need kernels that compute each row independently of the rows
// around it.
#pragma once

#include "lattice/api.h"

namespace lattice {

// While such an object lives, this thread takes only routes whose result for a row does not depend
// on which other rows the tensor holds. Then a part of a cloud gives the same bits as the whole
// cloud.
class LATTICE_API RowIndependent {
 public:
  RowIndependent();
  ~RowIndependent();
  RowIndependent(const RowIndependent&) = delete;
  static bool is_asked();
};

}  // namespace lattice
