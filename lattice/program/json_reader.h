// Reads the part of JSON that the header of a safetensors file uses: objects, arrays of integers,
// strings.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lattice::program {

// Reads from the front; every function throws Error that names the byte where it stopped.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}
  // Whether the sign comes next, which is then skipped, with the white space around it.
  bool take(char sign);
  void expect(char sign);
  // The same for `null`.
  bool take_null();
  std::string text();
  int64_t integer();
  std::vector<int64_t> integers();
  // Checks that only white space is left.
  void end();
  [[noreturn]] void fail(const std::string& what) const;

 private:
  void space();
  uint32_t hex4();
  void put_utf8(std::string& out, uint32_t code) const;
  std::string_view text_;
  size_t at_ = 0;
};

// As JSON, in quotes; what is not ASCII stays as it is.
std::string json_text(std::string_view text);

}  // namespace lattice::program
