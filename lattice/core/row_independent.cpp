#include "lattice/core/row_independent.h"

namespace lattice {

namespace {
thread_local int open_scopes = 0;
}  // namespace

RowIndependent::RowIndependent() { ++open_scopes; }
RowIndependent::~RowIndependent() { --open_scopes; }
bool RowIndependent::is_asked() { return open_scopes > 0; }

}  // namespace lattice
