// detect <program> <scan.bin>: one box per line for float32 records x y z intensity: the label, the
// score, x y z dx dy dz and the heading.
#include <cstdio>
#include <fstream>
#include <iostream>
#include <span>
#include <vector>

#include "lattice/program/detector.h"

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
    std::cerr << "detect <program> <scan.bin>\n";
    return 64;
  }
  try {
    const auto net = lattice::Detector::load(arguments[1], {.threads = 2});
    const std::vector<float> xyzi = read_floats(arguments[2]);
    auto cloud = lattice::Cloud::view(std::span(xyzi), 4);  // stride 4, no copy
    cloud.column("intensity", std::span(xyzi).subspan(3), 4);
    const lattice::Detections found = net.detect(cloud);
    for (const lattice::Box& box : found.boxes) {
      std::printf("%d %.9g", box.label, box.score);
      for (const float v : box.center) std::printf(" %.9g", v);
      for (const float v : box.size) std::printf(" %.9g", v);
      std::printf(" %.9g\n", box.heading);
    }
    std::cerr << found.boxes.size() << " boxes, " << found.outside << " points outside\n";
  } catch (const lattice::Error& error) {
    std::cerr << "error " << static_cast<int>(error.code()) << ": " << error.what() << "\n";
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 66;
  }
}
