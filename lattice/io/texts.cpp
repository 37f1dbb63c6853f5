#include "lattice/io/texts.h"

#include <charconv>
#include <stdexcept>

namespace lattice::io {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

}  // namespace

void refuse(const std::string& text) { throw std::invalid_argument(text); }

std::string quoted(std::string_view text, size_t most) {
  std::string made(1, '\'');
  made += text.substr(0, text.size() > most ? most - 3 : text.size());
  if (text.size() > most) made += "...";
  return made += '\'';
}

std::vector<std::string> words_of(std::string_view line) {
  std::vector<std::string> words;
  for (size_t at = 0; at < line.size();) {
    while (at < line.size() && is_space(line[at])) ++at;
    const size_t begin = at;
    while (at < line.size() && !is_space(line[at])) ++at;
    if (at > begin) words.emplace_back(line.substr(begin, at - begin));
  }
  return words;
}

std::string lower(std::string_view text) {
  std::string made(text);
  for (char& c : made)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return made;
}

std::string utf8(std::string_view latin) {
  std::string made;
  for (const char c : latin) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) made += static_cast<char>(0xc0 | byte >> 6);
    made += byte >= 0x80 ? static_cast<char>(0x80 | (byte & 0x3f)) : c;
  }
  return made;
}

std::string listed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

int64_t whole(const std::string& text, const std::string& what, int64_t low, int64_t high) {
  int64_t value = low - 1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < low || value > high)
    refuse(what + ": found " + quoted(text) + ", expected an integer in " + std::to_string(low) +
           ".." + std::to_string(high));
  return value;
}

}  // namespace lattice::io
