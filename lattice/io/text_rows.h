// Reads and writes rows of numbers as text, for the ascii forms of PLY and PCD.
#pragma once

#include <string>
#include <vector>

#include "lattice/io/table.h"

namespace lattice::io {

// The next `rows` lines that are not empty, into packed columns at `to`, one pointer per field.
// `done` rows were read before; it is for the numbers of lines in messages.
void read_text_rows(Lines& lines, const std::vector<Field>& fields, int64_t done, int64_t rows,
                    int64_t total, std::vector<char*> to);
// Appends the shortest decimals that read back as the same number of this type.
void append_number(std::string& out, const Column& column, int64_t row, int64_t value);

}  // namespace lattice::io
