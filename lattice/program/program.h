/// @file
/// A trained network as one file that runs without Python: docs/programs.md.
///
///     const auto program = lattice::Program::load("net.lattice.safetensors");
///     auto session = program.session();                       // one for each thread
///     const auto out = session.run({{"x", lattice::SparseTensor(coords, feats)}});
///
/// A program is immutable and cheap to copy; threads share it. A session is the state of one
/// thread. All weights are evaluated and arranged on load, so that the first frame costs what the
/// hundredth costs. Results have the same bits as the network in Python on the same machine.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lattice/core/errors.h"
#include "lattice/program/value.h"

namespace lattice {

namespace program {
struct Loaded;
struct Graph;
struct Frame;
}  // namespace program

/// Limits of a session; 0 is no limit. A frame beyond one is an Error with the code `limit` and is
/// never cut.
struct ProgramLimits {
  int64_t max_points = 0;  ///< rows of an input
  int64_t max_rows = 0;    ///< rows of any value
  int64_t max_bytes = 0;   ///< bytes of all values that a frame holds at once
};

/// Where the time of a frame went, in milliseconds, and how large it was.
struct ProgramStats {
  double voxelize = 0;        ///< points to voxels and their features
  double geometry = 0;        ///< coordinates, relations, layouts, neighbors
  double features = 0;        ///< everything else
  double points = 0;          ///< results back onto points
  std::vector<int64_t> rows;  ///< of each set of coordinates, in the order of the graph
  int64_t bytes = 0;          ///< the most that values held at once
};

class Session;

/// A loaded program.
class LATTICE_API Program {
 public:
  /// Reads a file, or a folder with graph.mlir and weights.safetensors that the older package
  /// wrote. Throws Error: the message names the line of the graph and the cure.
  static Program load(const std::string& path);
  /// The same from memory, which is copied.
  static Program load_memory(std::span<const std::byte> bytes);

  /// In the order of the graph.
  const std::vector<ProgramPort>& inputs() const;
  /// In the order of the graph.
  const std::vector<ProgramPort>& outputs() const;
  /// The graph as text, in its canonical form.
  const std::string& text() const;
  /// A text of the header of the file, such as "classes"; empty if there is none.
  const std::string& note(const std::string& key) const;
  /// Whether the file holds an example: inputs with their outputs.
  bool has_example() const;
  /// Inputs and expected outputs of the example.
  std::pair<ProgramValues, ProgramValues> example() const;

  /// Writes graph.mlir and weights.safetensors, version 2 of the older package's format, into a
  /// folder that is made. Throws Error that names the operation that the format cannot say.
  void export_mlir(const std::string& folder) const;

  /// An upper bound of the bytes that the values of a frame hold at once when the inputs have
  /// `rows` rows; weights and the working memory of kernels come on top.
  int64_t bytes_for(int64_t rows) const;

  /// A state for one thread.
  Session session(const ProgramLimits& limits = {}) const;

  /// @cond internal
  explicit Program(std::shared_ptr<const program::Loaded> loaded) : loaded_(std::move(loaded)) {}
  const std::shared_ptr<const program::Loaded>& loaded() const { return loaded_; }
  /// @endcond

 private:
  std::shared_ptr<const program::Loaded> loaded_;
};

/// The geometry of a frame, which Session::prepare builds and Session::run reads.
class LATTICE_API PreparedFrame {
 public:
  /// @cond internal
  explicit PreparedFrame(std::shared_ptr<const program::Frame> frame) : frame_(std::move(frame)) {}
  const std::shared_ptr<const program::Frame>& frame() const { return frame_; }
  /// @endcond

 private:
  std::shared_ptr<const program::Frame> frame_;
};

/// The state of one thread.
class LATTICE_API Session {
 public:
  /// The outputs by name, evaluated. Throws Error for inputs that are missing, unknown or do not
  /// fit, and for limits.
  ProgramValues run(const ProgramValues& inputs);
  /// The same for a frame whose geometry was prepared, also by another session of the program.
  ProgramValues run(const PreparedFrame& frame);
  /// Computes what depends on coordinates alone: on another thread for the next frame, while `run`
  /// computes the features of this one.
  PreparedFrame prepare(const ProgramValues& inputs);

  /// Of the last run.
  const ProgramStats& stats() const;
  /// Names of the graph whose values the next runs keep for `traced`. Throws Error for a name that
  /// is none.
  void trace(const std::vector<std::string>& names);
  /// The values that were asked for, of the last run.
  const ProgramValues& traced() const;

  /// @cond internal
  Session(Program program, const ProgramLimits& limits);
  /// @endcond

 private:
  ProgramValues run_frame(const program::Frame& frame);
  Program program_;
  ProgramLimits limits_;
  ProgramStats stats_;
  std::vector<int> traced_values_;
  ProgramValues traced_;
};

}  // namespace lattice
