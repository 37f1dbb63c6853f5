// Inference of a saved MinkUNet without Python, dense and packed: minkunet <folder>
//
// `python examples/write_minkunet.py <folder>` writes the folder: net.safetensors, the same network
// as `mlx-lattice quantize` packed it, and scan.safetensors with coords, feats and the logits that
// Python computed with both. The program compares its logits with these. Exit status 77: no folder.
#include <mlx/mlx.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <regex>
#include <sstream>

#include "lattice/lattice.h"

namespace mx = mlx::core;
using lattice::SparseTensor;

struct Options {
  std::optional<SparseTensor> onto = {}, residual = {};
  bool relu = true;
};

class MinkUNet {
 public:
  explicit MinkUNet(const std::string& path) {
    // The JSON beside the weights says what they are; sizes follow from their shapes.
    std::stringstream text;
    text << std::ifstream(std::filesystem::path(path).replace_extension(".json")).rdbuf();
    for (const char* needed : {"\"version\": *1[^0-9]", "\"model\": *\"MinkUNet\""})
      if (!std::regex_search(text.str(), std::regex(needed)))
        throw std::runtime_error(path + ": its JSON has no " + needed);
    weights_ = lattice::load_weights(path);  // arrays, and packed weights where the file has them
  }

  SparseTensor operator()(SparseTensor x) const {
    std::vector<SparseTensor> skips;
    x = layer("encoder.stem", x);
    for (int i = 0; has("encoder.downs." + std::to_string(i)); ++i) {
      skips.push_back(x);
      x = stage("encoder.stages." + std::to_string(i),
                layer("encoder.downs." + std::to_string(i), x));
    }
    for (int i = 0; has("ups." + std::to_string(i)); ++i) {
      const SparseTensor skip = skips[skips.size() - 1 - static_cast<size_t>(i)];
      const SparseTensor risen = layer("ups." + std::to_string(i), x, {.onto = skip});
      x = stage("decoders." + std::to_string(i), lattice::cat({risen, skip}));
    }
    return lattice::linear(x, weights_.at("head.weight"), array("head.bias"));
  }

 private:
  bool has(const std::string& prefix) const {
    const auto found = weights_.lower_bound(prefix + ".");
    return found != weights_.end() && found->first.starts_with(prefix + ".");
  }

  const mx::array& array(const std::string& name) const {
    return std::get<mx::array>(weights_.at(name));
  }

  static lattice::Triple kernel_size(const lattice::Weight& weight) {
    if (const auto* packed = std::get_if<lattice::QuantizedWeight>(&weight))
      return packed->kernel_size();
    const mx::array& w = std::get<mx::array>(weight);  // (C_out, Kx, Ky, Kz, C_in)
    return {w.shape(1), w.shape(2), w.shape(3)};
  }

  // relu(norm(conv(x)) + residual). An even kernel halves the resolution, or with `onto` doubles
  // it.
  SparseTensor layer(const std::string& name, const SparseTensor& x,
                     const Options& options = {}) const {
    const lattice::Weight& w = weights_.at(name + ".conv.weight");
    const lattice::Triple size = kernel_size(w);
    const bool even = size[0] % 2 == 0;
    lattice::ConvOptions conv;
    conv.spec =
        lattice::KernelSpec(size, even ? size : lattice::Triple{1, 1, 1}, {0, 0, 0}, {1, 1, 1});
    if (options.onto) conv.coordinates = *options.onto;
    const auto run = options.onto ? lattice::conv_transpose3d
                     : even       ? lattice::conv3d
                                  : lattice::subm_conv3d;
    const SparseTensor y = run(x, w, std::nullopt, conv, {});
    const auto norm = [&](const char* what) { return array(name + ".norm." + what); };
    lattice::NormOptions act;
    act.relu = options.relu;
    if (options.residual) act.residual = options.residual->feats();
    return y.with_feats(lattice::batch_norm_act(y.feats(), {norm("weight"), norm("bias")},
                                                norm("running_mean"), norm("running_var"), act)
                            .y);
  }

  SparseTensor stage(const std::string& name, SparseTensor x) const {
    for (int i = 0; has(name + "." + std::to_string(i)); ++i)
      x = block(name + "." + std::to_string(i), x);
    return x;
  }

  SparseTensor block(const std::string& name, const SparseTensor& x) const {
    const bool projects = has(name + ".project");
    const SparseTensor skip = projects ? layer(name + ".project", x, {.relu = false}) : x;
    SparseTensor y = x;
    for (int i = 0; has(name + ".layers." + std::to_string(i)); ++i) {
      const bool last = !has(name + ".layers." + std::to_string(i + 1));
      y = layer(name + ".layers." + std::to_string(i), y,
                {.residual = last ? std::optional(skip) : std::nullopt});
    }
    return y;
  }

  std::map<std::string, lattice::Weight> weights_;
};

// Runs one network and returns the largest difference to the logits of Python.
double run(const std::filesystem::path& folder, const std::string& name) {
  const MinkUNet model((folder / (name + ".safetensors")).string());
  const auto scan = mx::load_safetensors((folder / "scan.safetensors").string()).first;
  const SparseTensor x(scan.at("coords"), scan.at("feats"));

  // Features are lazy: applying the network builds the geometry, evaluating it does the arithmetic.
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto ms = [](auto d) { return std::chrono::duration<double, std::milli>(d).count(); };
  const auto begin = now();
  mx::array logits = model(x).feats();
  const auto plan = lattice::GeometryPlan::record(x, false);
  const auto built = now();
  logits.eval();
  const auto done = now();
  const double worst = double{mx::max(mx::abs(mx::subtract(logits, scan.at(name)))).item<float>()};
  std::cout << name << ": " << std::filesystem::file_size(folder / (name + ".safetensors"))
            << " bytes, " << x.active_count() << " voxels\n"
            << plan.text() << "\ngeometry " << ms(built - begin) << " ms, arithmetic "
            << ms(done - built) << " ms, largest difference to Python " << worst << "\n";
  return worst;
}

int main(int count, char** arguments) {
  const std::filesystem::path folder = count > 1 ? arguments[1] : "net";
  if (!std::filesystem::is_directory(folder)) {
    std::cerr << "no folder " << folder << "; write one with: python examples/write_minkunet.py "
              << folder << "\n";
    return 77;
  }
  mx::set_cache_limit(
      size_t{4} << 30);  // MLX keeps memory between layers instead of asking the system again
  const double dense = run(folder, "net"), packed = run(folder, "packed");
  return dense <= 1e-5 && packed <= 1e-5 ? 0 : 1;
}
