// Turns the columns of a cloud into the fields of records that are written to a file.
#pragma once

#include <string>
#include <vector>

#include "lattice/core/cloud.h"

namespace lattice::io {

// A field of a file: values of `source`, written as `type`.
struct Out {
  std::string name;
  Column source;
  Number type;
};

// x, y, z, red, green, blue ... Each field has the nearest of the types of the format that holds
// all its values. color becomes 8 bits, as viewers of these formats expect. flat: a column of
// several values becomes name_0, name_1, ... `what` names the format in errors.
std::vector<Out> scatter(const Cloud& cloud, const std::vector<Number>& types, const char* what,
                         bool flat);
// Colors as uint8: floats are 0..1; 16-bit colors lose their low byte if one is above 255. Throws
// for other values.
Column color8(const Column& color);
// One axis or one value of a column.
Column one_value(const Column& column, int64_t value);

// Bytes of one record.
int64_t record_bytes(const std::vector<Out>& fields);
// Appends all values, record after record; `swapped` turns the order of bytes.
void append_records(std::string& out, const std::vector<Out>& fields, bool swapped = false);
// Appends lines, values separated by `separator`.
void append_lines(std::string& out, const std::vector<Out>& fields, const std::string& separator);

}  // namespace lattice::io
