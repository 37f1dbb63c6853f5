// Parses words of file headers and formats words for messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace lattice::io {

// A whole number of a header.
int64_t whole(const std::string& text, const std::string& what, int64_t low = 0,
              int64_t high = (int64_t{1} << 47) - 1);

// Texts of messages: 'text', cut where it is long.
std::string quoted(std::string_view text, size_t most = 60);
std::vector<std::string> words_of(std::string_view line);
std::string lower(std::string_view text);
// Latin-1 as UTF-8: every byte is a character.
std::string utf8(std::string_view latin);
std::string listed(const std::vector<std::string>& words);
[[noreturn]] void refuse(const std::string& text);

}  // namespace lattice::io
