// label <program> <scan.bin>: one label per line for float32 records x y z intensity.
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <vector>

#include "lattice/program/segmenter.h"

std::vector<float> read_floats(const char* path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) throw std::runtime_error(std::string("cannot read ") + path);
  std::vector<float> values(static_cast<size_t>(file.tellg()) / sizeof(float));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(values.data()),
            static_cast<std::streamsize>(values.size() * sizeof(float)));
  return values;
}

int main(int count, char** arguments) {
  if (count != 3) {
    std::cerr << "label <program> <scan.bin>\n";
    return 64;
  }
  try {
    const auto net = lattice::Segmenter::load(arguments[1], {.threads = 2});
    const std::vector<float> xyzi = read_floats(arguments[2]);
    auto cloud = lattice::Cloud::view(std::span(xyzi), 4);  // stride 4, no copy
    cloud.column("intensity", std::span(xyzi).subspan(3), 4);
    std::vector<int32_t> labels;
    net.label(cloud, labels);
    for (const int32_t label : labels) std::cout << label << "\n";
  } catch (const lattice::Error& error) {
    std::cerr << "error " << static_cast<int>(error.code()) << ": " << error.what() << "\n";
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 66;
  }
}
