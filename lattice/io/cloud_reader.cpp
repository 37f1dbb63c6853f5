// Reads files of points, part by part or at once.
#include <algorithm>
#include <filesystem>
#include <new>
#include <optional>

#include "lattice/core/errors.h"
#include "lattice/io/cloud_files.h"
#include "lattice/io/formats.h"
#include "lattice/io/table.h"
#include "lattice/io/text_rows.h"

namespace lattice {

using namespace io;

namespace {

constexpr int64_t kPieceBytes = 8 << 20;  // of records, read at once
constexpr int64_t kTextPiece = 1 << 16;   // lines between two words about the progress

// Turns every exception into an Error that begins with the path.
template <typename F>
auto naming(const std::string& path, const std::string& format, const F& f) {
  const std::string kind = title_of(format);
  const auto raise = [&](ErrorCode code, const std::string& text) {
    throw Error(code, path + ": " + text, "read_cloud", "path");
  };
  try {
    return f();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    raise(ErrorCode::memory, kind + " file does not fit into memory");
  } catch (const std::length_error&) {
    raise(ErrorCode::memory, kind + " file does not fit into memory");
  } catch (const std::invalid_argument& error) {
    std::string text = error.what();  // bytes of a file are not always a text
    for (char& c : text)
      if (c < 0) c = '?';
    raise(ErrorCode::file, "not a valid " + kind + " file: " + text);
  }
  throw Error(ErrorCode::internal, path + ": unknown", "read_cloud");  // not reached
}

Table header_of(InputFile& file, const std::string& format) {
  if (format == "ply") return read_ply_header(file);
  if (format == "pcd") return read_pcd_header(file);
  if (format == "npy") return read_npy_header(file);
  return read_scan_header(file, format == "kitti" ? 4 : 5);
}

// Rows [begin, begin + rows) of a cloud, as views.
Cloud slice(const Cloud& cloud, int64_t begin, int64_t rows) {
  const auto part = [&](Column column) {
    column.data = static_cast<const std::byte*>(column.data) + begin * column.row_bytes;
    column.rows = rows;
    return column;
  };
  Cloud made(part(cloud.points()));
  for (const auto& [name, column] : cloud.columns()) made.column(name, part(column));
  return made;
}

}  // namespace

struct CloudReader::State {
  std::string path, format;
  std::optional<InputFile> file;
  Table table;
  std::optional<Lines> lines;
  Cloud whole;  // of a format that is decoded at once
  int64_t size = 0, done = 0;

  // The packed columns of the next rows.
  std::vector<NamedColumn> columns(int64_t rows, const std::function<void(double)>& on_progress) {
    std::vector<NamedColumn> made;
    std::vector<char*> to;
    for (const Field& field : table.fields) {
      to.push_back(nullptr);
      made.emplace_back(field.name, new_column(field.type, rows, field.width, &to.back()));
    }
    const int64_t row_bytes = table.fields[0].row_bytes;
    const int64_t piece = table.text       ? kTextPiece
                          : table.unpacked ? rows
                                           : std::max<int64_t>(1, kPieceBytes / row_bytes);
    for (int64_t first = 0; first < rows; first += piece) {
      const int64_t count = std::min(piece, rows - first);
      read_rows(first, count, to);
      if (on_progress) on_progress(static_cast<double>(first + count) / static_cast<double>(rows));
    }
    return made;
  }

  void read_rows(int64_t first, int64_t count, std::vector<char*>& to) {
    if (table.text) {
      read_text_rows(*lines, table.fields, done + first, count, size, to);
    } else if (!table.unpacked) {
      const int64_t row_bytes = table.fields[0].row_bytes;
      const std::string bytes =
          file->read(table.begin + (done + first) * row_bytes, count * row_bytes);
      for (size_t i = 0; i < to.size(); ++i)
        copy_field(table.fields[i], bytes.data(), count, to[i]);
    } else {
      for (size_t i = 0; i < to.size(); ++i)
        copy_field(table.fields[i],
                   table.unpacked->data() + (done + first) * table.fields[i].row_bytes, count,
                   to[i]);
    }
    for (size_t i = 0; i < to.size(); ++i)
      to[i] += count * table.fields[i].width * number_bytes(table.fields[i].type);
  }

  Cloud next(int64_t rows, const std::function<void(double)>& on_progress) {
    return naming(path, format, [&] {
      Cloud made =
          format == "mlat" ? slice(whole, done, rows) : table.finish(columns(rows, on_progress));
      done += rows;
      return made;
    });
  }
};

namespace {

void open_rows(InputFile& file, Table& table, std::optional<Lines>& lines) {
  if (!table.text) return;
  lines.emplace(file, table.begin);
  std::string_view line;
  for (int64_t i = 0; i < table.skip_lines; ++i)
    if (!lines->next(&line)) break;
}

}  // namespace

CloudReader::CloudReader(const std::string& path, const std::string& format)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.path = path;
  s.format = format_of(path, format);
  naming(path, s.format, [&] {
    if (s.format == "mlat") {
      s.whole = read_mlat(path, {});
      s.size = s.whole.size();
      return;
    }
    s.file.emplace(path);
    s.table = header_of(*s.file, s.format);
    s.size = s.table.rows;
    open_rows(*s.file, s.table, s.lines);
  });
}

CloudReader::CloudReader(CloudReader&&) noexcept = default;
CloudReader& CloudReader::operator=(CloudReader&&) noexcept = default;
CloudReader::~CloudReader() = default;

int64_t CloudReader::size() const { return state_->size; }

Cloud CloudReader::next(int64_t points, const std::function<void(double)>& on_progress) {
  if (points < 1)
    throw Error(ErrorCode::argument,
                "[CloudReader::next] points must be 1 or more, found " + std::to_string(points),
                "CloudReader::next", "points");
  return state_->next(std::min(points, state_->size - state_->done), on_progress);
}

Cloud read_cloud(const std::string& path, const CloudReadOptions& options) {
  const std::string format = format_of(path, options.format);
  if (format == "mlat")
    return naming(path, format, [&] { return read_mlat(path, options.on_progress); });
  CloudReader reader(path, format);
  return reader.next(std::max<int64_t>(reader.size(), 1), options.on_progress);
}

}  // namespace lattice
