#include "lattice/kernels/cpu/coding/octree_cells.h"

namespace lattice::cpu {

CellTable::CellTable() {
  for (int s = 0; s < kAround; ++s)
    for (unsigned m = 0; m < 256; ++m)
      for (int k = 0; k < 8; ++k) {
        const int x = 2 * (s % 3 - 1) + (k & 1) + 1, y = 2 * (s / 3 % 3 - 1) + (k >> 1 & 1) + 1,
                  z = 2 * (s / 9 - 1) + (k >> 2) + 1;
        if ((m >> k & 1) && x >= 0 && x < 4 && y >= 0 && y < 4 && z >= 0 && z < 4)
          cells[static_cast<size_t>(s)][m] |= uint64_t{1} << (x + 4 * y + 16 * z);
      }
}
const CellTable kCells;

}  // namespace lattice::cpu
