// Files of clouds from C++: round trips, parts, names of columns, and damaged files.
// LATTICE_FUZZ=100000 sets how many damaged files are tried.
#include "lattice/io/cloud_files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "lattice/core/errors.h"
#include "lattice/io/lzf.h"

namespace lattice {
namespace {

namespace fs = std::filesystem;

struct Form {
  const char* name;
  CloudWriteOptions options;
};
const std::vector<Form> kForms = {
    {"a.ply", {}},
    {"b.ply", {"", "binary_big_endian"}},
    {"c.ply", {"", "ascii"}},
    {"a.pcd", {}},
    {"b.pcd", {"", "ascii"}},
    {"c.pcd", {"", "binary_compressed"}},
    {"a.npy", {}},
    {"a.bin", {"kitti"}},
    {"a.pcd.bin", {}},
    {"a.mlat", {"", "", 1.0}},
};

class CloudFiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = fs::temp_directory_path() / ("lattice_files_" + std::string(test->name()) +
                                           std::to_string(std::random_device()()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string place(const std::string& name) const { return (folder_ / name).string(); }
  std::string write(const std::string& name, const std::string& bytes) const {
    std::ofstream(place(name), std::ios::binary) << bytes;
    return place(name);
  }
  static std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  fs::path folder_;
};

// Centers of voxels of 1, so that .mlat gives them back.
std::vector<float> records(int n) {
  std::vector<float> made;
  for (int i = 0; i < n; ++i)
    made.insert(made.end(), {i + 0.5f, i % 7 + 0.5f, i % 3 + 0.5f, i / 4.0f});
  return made;
}

Cloud cloud_of(const std::vector<float>& xyzi) {
  Cloud cloud = Cloud::view(std::span<const float>(xyzi), 4);
  if (!xyzi.empty()) cloud.column("intensity", std::span(xyzi).subspan(3), 4);
  return cloud;
}

double sum(const Column& column) {
  double total = 0;
  for (int64_t r = 0; r < column.rows; ++r)
    for (int64_t j = 0; j < column.width; ++j) total += column.at(r, j) * (1 + j);
  return total;
}

TEST_F(CloudFiles, RoundTripsAndParts) {
  for (const int n : {0, 1, 100})
    for (const Form& form : kForms) {
      const std::vector<float> xyzi = records(n);
      const Cloud cloud = cloud_of(xyzi);
      write_cloud(place(form.name), cloud, form.options);
      CloudReadOptions options;
      options.format = form.options.format;
      const Cloud read = read_cloud(place(form.name), options);
      ASSERT_EQ(read.size(), n) << form.name;
      // Voxels count from the low corner, so that their centers lie half a voxel further.
      const double shift = std::string(form.name) == "a.mlat" ? 0.5 * (1 + 2 + 3) * n : 0;
      EXPECT_EQ(sum(read.points()), sum(cloud.points()) + shift) << form.name;
      if (n) {
        EXPECT_EQ(sum(*read.find("intensity")), sum(*cloud.find("intensity"))) << form.name;
      }
      CloudReader reader(place(form.name), options.format);
      ASSERT_EQ(reader.size(), n);
      double total = 0;
      for (Cloud part = reader.next(33); part.size(); part = reader.next(33))
        total += sum(part.points());
      EXPECT_EQ(total, sum(read.points())) << form.name;
    }
}

TEST_F(CloudFiles, ColumnsAndTypes) {
  const std::vector<double> points = {0.1, 0, 0, 1, 1e6, 1};
  const std::vector<uint8_t> color = {1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> label = {-7, 8};
  const std::vector<double> wide = {0.25, 1.0 / 3};
  Cloud cloud = Cloud::view(std::span<const double>(points));
  cloud.column("color", std::span(color), 3, 3)
      .column("label", std::span(label))
      .column("time", std::span(wide));
  for (const Form& form : kForms) {
    if (std::string(form.name).find("bin") != std::string::npos) {
      EXPECT_THROW(write_cloud(place(form.name), cloud, form.options), Error);
      continue;
    }
    write_cloud(place(form.name), cloud, form.options);
    const Cloud read = read_cloud(place(form.name));
    ASSERT_EQ(read.size(), 2);
    const int64_t first = read.find("label")->at(0, 0) == -7 ? 0 : 1;  // .mlat sorts
    EXPECT_EQ(read.find("label")->type, Number::int32);
    EXPECT_EQ(read.find("color")->at(1 - first, 2), 6) << form.name;
    EXPECT_EQ(read.find("time")->at(1 - first, 0), 1.0 / 3) << form.name;
    if (std::string(form.name) != "a.mlat") {
      EXPECT_EQ(read.points().at(0, 0), 0.1) << form.name;
    }
  }
}

TEST_F(CloudFiles, ProgressAndProblems) {
  const std::vector<float> xyzi = records(100);
  write_cloud(place("a.ply"), cloud_of(xyzi));
  double last = 0;
  CloudReadOptions options;
  options.on_progress = [&](double share) { last = share; };
  read_cloud(place("a.ply"), options);
  EXPECT_EQ(last, 1);
  options.on_progress = [](double) { throw std::runtime_error("stop"); };
  EXPECT_THROW(read_cloud(place("a.ply"), options), std::runtime_error);
  for (const auto& [path, words] :
       {std::pair(place("none.ply"), "No such file"),
        std::pair(folder_.string() + "/a.doc", "format 'doc'"),
        std::pair(write("cut.ply", bytes_of(place("a.ply")).substr(0, 400)), "truncated")})
    try {
      read_cloud(path);
      FAIL() << path;
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find(path), 0) << error.what();
      EXPECT_NE(std::string(error.what()).find(words), std::string::npos) << error.what();
    }
  EXPECT_THROW(write_cloud(place("no/a.ply"), cloud_of(xyzi)), Error);
  EXPECT_THROW(write_cloud(place("a.mlat"), cloud_of(xyzi)), Error);  // no voxel size
  EXPECT_THROW(CloudReader(place("a.ply")).next(0), Error);
}

TEST_F(CloudFiles, Lzf) {
  EXPECT_EQ(io::lzf_decompress(std::string("\x01"
                                           "ab\x80\x01\xe0\x03\x00",
                                           8),
                               20),
            "abababab" + std::string(12, 'b'));  // as liblzf writes it
  std::mt19937 random(1);
  for (const int values : {1, 3, 256})
    for (const int size : {0, 1, 5, 3000, 100000}) {
      std::string data;
      for (int i = 0; i < size; ++i) data += static_cast<char>(random() % values);
      const std::string packed = io::lzf_compress(data);
      EXPECT_EQ(io::lzf_decompress(packed, size), data);
      EXPECT_THROW(io::lzf_decompress(packed, size + 1), std::invalid_argument);
      if (values < 4 && size > 100) {
        EXPECT_LT(packed.size(), 0.6 * data.size());
      }
    }
}

// One to four changes: bits, extreme numbers, words, cuts, repetitions.
void damage(std::string& bytes, std::mt19937& random) {
  static const std::vector<std::string> kWords = {"-1",         "0",      "99999999999999",
                                                  "4294967295", "nan",    "list",
                                                  "uchar",      "double", "\n",
                                                  " ",          "8",      "(",
                                                  "'O'",        "<f8",    "True"};
  const auto below = [&](size_t n) { return n ? random() % n : 0; };
  for (size_t n = 1 + below(4); n > 0 && !bytes.empty(); --n) {
    const size_t at = below(below(3) ? std::min<size_t>(bytes.size(), 300) : bytes.size());
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = "\0\1\x7f\x80\xff\n "[below(7)];
        break;
      case 2:
        bytes.replace(at, below(6), kWords[below(kWords.size())]);
        break;
      case 3:
        bytes.resize(at);
        break;
      case 4:
        bytes.erase(at, 1 + below(40));
        break;
      default:
        bytes.insert(at, bytes.substr(at, 1 + below(40)));
    }
  }
}

TEST_F(CloudFiles, DamagedFilesAreReadOrRefused) {
  const char* given = std::getenv("LATTICE_FUZZ");
  const int64_t count = given ? std::atoll(given) : 2000;
  const std::vector<float> xyzi = records(41);
  std::vector<std::string> whole;
  for (const Form& form : kForms) {
    write_cloud(place(form.name), cloud_of(xyzi), form.options);
    whole.push_back(bytes_of(place(form.name)));
  }
  std::mt19937 random(7);
  int64_t refused = 0;
  for (int64_t i = 0; i < count; ++i) {
    const size_t form = random() % kForms.size();
    std::string bytes = whole[form];
    damage(bytes, random);
    CloudReadOptions options;
    options.format = kForms[form].options.format;
    const std::string path = write(kForms[form].name, bytes);
    try {
      const Cloud cloud = read_cloud(path, options);
      EXPECT_TRUE(std::isfinite(sum(cloud.points())) || cloud.size());  // all values are readable
      EXPECT_LT(cloud.size(), 100000);
    } catch (const Error& error) {
      ++refused;
      EXPECT_EQ(std::string(error.what()).find(path), 0) << error.what();
    }
  }
  EXPECT_GT(refused, count / 4);
}

}  // namespace
}  // namespace lattice
