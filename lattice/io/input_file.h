// Reads a file at any position, or line by line.
#pragma once

#include <cstdint>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

namespace lattice::io {

inline constexpr int64_t kHeaderLimit = 1 << 16;  // bytes of a text header; real ones have hundreds
inline constexpr int64_t kRowLimit = 1 << 16;     // bytes of one point

class InputFile {
 public:
  // Throws lattice::Error if there is no such file.
  explicit InputFile(const std::string& path);
  int64_t size() const { return size_; }
  // All of the bytes, or an error that says "truncated": the file may shrink while it is read.
  void read(int64_t at, char* to, int64_t bytes);
  std::string read(int64_t at, int64_t bytes);
  // Lines of a text header up to and including the one that begins with the word `last`, without
  // white space around them. `end` gets the byte behind it.
  std::vector<std::string> header_lines(const std::string& last, const char* kind, int64_t* end);

 private:
  std::string path_;
  std::ifstream stream_;
  int64_t size_ = 0;
};

// Lines of a file, read piece by piece.
class Lines {
 public:
  Lines(InputFile& file, int64_t begin) : file_(file), at_(begin) {}
  // The next line without its end; false at the end of the file. Valid until the next call.
  bool next(std::string_view* line);
  // The byte of the file behind the last line.
  int64_t position() const { return at_ - static_cast<int64_t>(piece_.size() - used_); }

 private:
  InputFile& file_;
  int64_t at_;  // where the next piece begins
  std::string piece_;
  size_t used_ = 0;
};

}  // namespace lattice::io
