#include "lattice/io/input_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "lattice/core/errors.h"
#include "lattice/io/texts.h"

namespace lattice::io {
namespace {

constexpr int64_t kPiece = 1 << 20;
constexpr int64_t kLineLimit = 16 << 20;  // a point has at most kRowLimit bytes of values

}  // namespace

InputFile::InputFile(const std::string& path) : path_(path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error))
    throw Error(ErrorCode::file, path + ": is a folder, expected a file", "read_cloud", "path");
  stream_.open(path, std::ios::binary);
  if (!stream_)
    throw Error(ErrorCode::file, path + ": " + std::strerror(errno), "read_cloud", "path");
  stream_.seekg(0, std::ios::end);
  size_ = std::max<int64_t>(0, stream_.tellg());
}

void InputFile::read(int64_t at, char* to, int64_t bytes) {
  stream_.clear();
  stream_.seekg(at);
  stream_.read(to, bytes);
  if (stream_.gcount() != bytes)
    refuse("found " + std::to_string(stream_.gcount()) + " bytes, expected " +
           std::to_string(bytes) + ": truncated");
}

std::string InputFile::read(int64_t at, int64_t bytes) {
  std::string made(static_cast<size_t>(bytes), '\0');
  read(at, made.data(), bytes);
  return made;
}

std::vector<std::string> InputFile::header_lines(const std::string& last, const char* kind,
                                                 int64_t* end) {
  const std::string head = read(0, std::min(size_, kHeaderLimit + 1));
  std::vector<std::string> lines;
  size_t at = 0;
  while (true) {
    const size_t stop = head.find('\n', at);
    if (stop == std::string::npos || static_cast<int64_t>(stop) >= kHeaderLimit) {
      if (static_cast<int64_t>(head.size()) > kHeaderLimit)
        refuse("header longer than " + std::to_string(kHeaderLimit) + " bytes");
      refuse("header of a " + std::string(kind) + " file without '" + last + "'");
    }
    const std::vector<std::string> words = words_of(std::string_view(head).substr(at, stop - at));
    std::string line;
    for (const std::string& word : words) line += (line.empty() ? "" : " ") + utf8(word);
    lines.push_back(line);
    at = stop + 1;
    if (!words.empty() && words[0] == last) {
      *end = static_cast<int64_t>(at);
      return lines;
    }
  }
}

bool Lines::next(std::string_view* line) {
  while (true) {
    const size_t stop = piece_.find('\n', used_);
    if (stop != std::string::npos) {
      *line = std::string_view(piece_).substr(used_, stop - used_);
      used_ = stop + 1;
      return true;
    }
    const int64_t left = file_.size() - at_;
    if (left <= 0) {  // a last line without its end
      *line = std::string_view(piece_).substr(used_);
      used_ = piece_.size();
      return !line->empty();
    }
    piece_.erase(0, used_);
    used_ = 0;
    if (static_cast<int64_t>(piece_.size()) > kLineLimit)
      refuse("a line longer than " + std::to_string(kLineLimit) + " bytes");
    const int64_t more = std::min(left, kPiece);
    piece_ += file_.read(at_, more);
    at_ += more;
  }
}

}  // namespace lattice::io
