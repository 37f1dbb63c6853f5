// label <program> <scan.bin>: one label per line for float32 records x y z intensity.
#include <iostream>
#include <vector>

#include "lattice/io/cloud_files.h"
#include "lattice/program/segmenter.h"

int main(int count, char** arguments) {
  if (count != 3) {
    std::cerr << "label <program> <scan.bin>\n";
    return 64;
  }
  try {
    const auto net = lattice::Segmenter::load(arguments[1], {.threads = 2});
    const auto cloud = lattice::read_cloud(arguments[2], {.format = "kitti"});
    std::vector<int32_t> labels;
    net.label(cloud, labels);
    for (const int32_t label : labels) std::cout << label << "\n";
  } catch (const lattice::Error& error) {
    std::cerr << "error " << static_cast<int>(error.code()) << ": " << error.what() << "\n";
    return static_cast<int>(error.code());
  }
}
