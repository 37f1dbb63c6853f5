// PLY: text and both binary orders. The element `vertex` becomes points, others are skipped.
#include <algorithm>
#include <map>

#include "lattice/io/table.h"

namespace lattice::io {
namespace {

const std::map<std::string, Number, std::less<>> kTypes = {
    {"char", Number::int8},      {"uchar", Number::uint8},    {"short", Number::int16},
    {"ushort", Number::uint16},  {"int", Number::int32},      {"uint", Number::uint32},
    {"float", Number::float32},  {"double", Number::float64}, {"int8", Number::int8},
    {"uint8", Number::uint8},    {"int16", Number::int16},    {"uint16", Number::uint16},
    {"int32", Number::int32},    {"uint32", Number::uint32},  {"float32", Number::float32},
    {"float64", Number::float64}};
constexpr const char* kForms[] = {"ascii", "binary_little_endian", "binary_big_endian"};

struct Element {
  std::string name;
  int64_t count = 0;
  std::vector<Field> properties;
  std::string list;  // the first property that is a list
};

void add_property(const std::vector<std::string>& words, const std::string& line,
                  std::vector<Element>& elements) {
  const bool is_list = words.size() == 5 && words[1] == "list";
  const bool known = is_list ? kTypes.count(words[2]) && kTypes.count(words[3])
                             : words.size() == 3 && kTypes.count(words[1]);
  if (!known || elements.empty()) refuse("header line " + quoted(line));
  Element& element = elements.back();
  if (is_list) {
    if (element.list.empty()) element.list = words[4];
    return;
  }
  for (const Field& field : element.properties)
    if (field.name == words[2])
      refuse("property " + quoted(words[2]) + " twice in element " + quoted(element.name));
  element.properties.push_back({words[2], kTypes.find(words[1])->second});
}

// The form and the elements that a header names.
std::pair<std::string, std::vector<Element>> elements_of(const std::vector<std::string>& lines) {
  if (lines[0] != "ply") refuse("first line: found " + quoted(lines[0], 42) + ", expected 'ply'");
  std::string form;
  std::vector<Element> elements;
  for (size_t i = 1; i + 1 < lines.size(); ++i) {
    const std::vector<std::string> words = words_of(lines[i]);
    if (words.empty() || words[0] == "comment" || words[0] == "obj_info") continue;
    if (words[0] == "format" && words.size() == 3 && words[2] == "1.0" && form.empty() &&
        std::find(std::begin(kForms), std::end(kForms), words[1]) != std::end(kForms)) {
      form = words[1];
    } else if (words[0] == "element" && words.size() == 3) {
      for (const Element& element : elements)
        if (element.name == words[1]) refuse("element " + quoted(words[1]) + " twice");
      const int64_t count = whole(words[2], "count of element " + quoted(words[1]));
      elements.push_back({words[1], count, {}, {}});
    } else if (words[0] == "property") {
      add_property(words, lines[i], elements);
    } else {
      refuse("header line " + quoted(lines[i]));
    }
  }
  if (form.empty())
    refuse("no format line, expected one of ascii, binary_little_endian, binary_big_endian");
  return {form, elements};
}

}  // namespace

Table read_ply_header(InputFile& file) {
  Table table;
  auto [form, elements] = elements_of(file.header_lines("end_header", "PLY", &table.begin));
  table.text = form == "ascii";
  for (Element& element : elements) {
    const bool points = element.name == "vertex";
    const int64_t left = file.size() - table.begin;
    if (!element.list.empty() && (points || element.count))
      refuse("list property " + quoted(element.list) + " in element " + quoted(element.name) +
             ", expected single values up to the vertices");
    const int64_t bytes = lay_out(element.properties);
    if (!points) {
      if (table.text) {
        if (element.count > left - table.skip_lines)
          refuse(std::to_string(element.count) + " lines cannot stand in " + std::to_string(left) +
                 " bytes");
        table.skip_lines += element.count;
      } else {
        check_fits(element.count, bytes, left, "rows");
        table.begin += element.count * bytes;
      }
      continue;
    }
    if (element.properties.empty()) refuse("element vertex without properties");
    if (table.text)
      check_fits_text(element.count, element.properties, left);
    else
      check_fits(element.count, bytes, left, "vertices");
    for (Field& field : element.properties) field.swapped = form == kForms[2];
    table.fields = std::move(element.properties);
    table.rows = element.count;
    table.finish = [](std::vector<NamedColumn> c) { return gather(std::move(c), "vertices"); };
    return table;
  }
  std::vector<std::string> names;
  for (const Element& element : elements) names.push_back(element.name);
  refuse("the header has no `element vertex`, which holds the points; found the elements " +
         (names.empty() ? "none" : listed(names)));
}

}  // namespace lattice::io
