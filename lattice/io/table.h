// A file as a table: what its header says about its rows, and the cloud that is made of these rows.
//
// Functions of lattice/io throw std::invalid_argument without the path; read_cloud and write_cloud
// put it in front.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lattice/core/cloud.h"
#include "lattice/io/input_file.h"
#include "lattice/io/texts.h"

namespace lattice::io {

// One column of a file. Value j of row r stands at byte at + r * row_bytes + j * value_bytes.
struct Field {
  std::string name;
  Number type = Number::float32;
  int64_t width = 1;
  int64_t at = 0;
  int64_t row_bytes = 0;
  int64_t value_bytes = 0;
  bool swapped = false;  // the other byte order than this machine's
};

// Columns that were read become a cloud: names of files become ours.
using Finish = std::function<Cloud(std::vector<NamedColumn>)>;

// What a header says. `rows` was compared with the bytes that exist.
struct Table {
  std::vector<Field> fields;
  int64_t rows = 0;
  int64_t begin = 0;                                 // the byte of the file where the rows begin
  bool text = false;                                 // one line per row
  int64_t skip_lines = 0;                            // of text, before the rows
  std::shared_ptr<const std::string> unpacked = {};  // the rows, where they are not in the file
  Finish finish;
};

Table read_ply_header(InputFile& file);
Table read_pcd_header(InputFile& file);
Table read_npy_header(InputFile& file);
// Rows of `width` float32: 4 of KITTI, 5 of nuScenes.
Table read_scan_header(InputFile& file, int64_t width);

// Gives the fields of a record their places, one behind the other; returns the bytes of a record.
int64_t lay_out(std::vector<Field>& fields);
// Compares a count of the header with the bytes that exist.
void check_fits(int64_t count, int64_t row_bytes, int64_t left, const char* what);
void check_fits_text(int64_t count, const std::vector<Field>& fields, int64_t left);
// New memory for rows of one column.
Column new_column(Number type, int64_t rows, int64_t width, char** values);
// Rows of a field from bytes in which they begin, to `to`, packed. Other byte orders are turned.
void copy_field(const Field& field, const char* from, int64_t rows, char* to);

// The cloud of {name in the file: column}; x, y and z are required. `what` names them in an error.
LATTICE_API Cloud gather(std::vector<NamedColumn> fields, const std::string& what);

}  // namespace lattice::io
