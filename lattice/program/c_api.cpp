// Implements the C interface (lattice_c.h) on top of Program and Session. No function lets an
// exception escape.
#include <mlx/ops.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "lattice/core/arrays.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/lattice_c.h"
#include "lattice/ops/backend.h"
#include "lattice/ops/codec.h"
#include "lattice/program/program.h"
#include "lattice/program/segmenter.h"

using lattice::Error;
using lattice::ErrorCode;
using lattice::ProgramPort;
namespace mx = mlx::core;

namespace {

// The part that all handles have in common.
struct Handle {
  mutable std::string error;
};

// The text must be available even when memory has run out.
thread_local std::string last_error;  // NOLINT: the C interface promises it

struct Port {
  std::string name;
  bool is_output;
  mx::Dtype dtype;
  std::optional<std::vector<int64_t>> shape;
};

constexpr std::pair<int32_t, mx::Dtype> kDtypes[] = {
    {LATTICE_BOOL, mx::bool_},       {LATTICE_UINT8, mx::uint8},     {LATTICE_INT8, mx::int8},
    {LATTICE_UINT16, mx::uint16},    {LATTICE_INT16, mx::int16},     {LATTICE_UINT32, mx::uint32},
    {LATTICE_INT32, mx::int32},      {LATTICE_UINT64, mx::uint64},   {LATTICE_INT64, mx::int64},
    {LATTICE_FLOAT16, mx::float16},  {LATTICE_FLOAT32, mx::float32}, {LATTICE_FLOAT64, mx::float64},
    {LATTICE_BFLOAT16, mx::bfloat16}};

int32_t code_of(mx::Dtype dtype) {
  for (const auto& [code, value] : kDtypes)
    if (value == dtype) return code;
  throw Error(ErrorCode::argument, "[lattice_c] a dtype that C does not name");
}

[[noreturn]] void refuse(const char* function, const std::string& text) {
  throw Error(ErrorCode::argument, "[" + std::string(function) + "] " + text, function);
}

int32_t failed(const Handle* handle, int32_t code, const char* text) noexcept {
  try {
    last_error = text;
    static std::mutex writing;  // threads share a program
    const std::lock_guard<std::mutex> lock(writing);
    if (handle) handle->error = text;
  } catch (...) {
    last_error.clear();  // no memory for the text; the code still tells
  }
  return code;
}

template <typename F>
int32_t guarded(const Handle* handle, const F& f) noexcept {
  try {
    f();
    return LATTICE_OK;
  } catch (const Error& error) {
    return failed(handle, static_cast<int32_t>(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return failed(handle, LATTICE_MEMORY, "the machine has no memory left");
  } catch (const std::logic_error& error) {
    return failed(handle, LATTICE_ARGUMENT, error.what());
  } catch (const std::exception& error) {
    return failed(handle, LATTICE_INTERNAL, error.what());
  } catch (...) {
    return failed(handle, LATTICE_INTERNAL, "an unknown error");
  }
}

// (shape) of a view in memory without gaps, read through its strides.
mx::array copied(const lattice_view& view) {
  constexpr const char* kName = "lattice_session_set";
  const auto known = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                  [&](const auto& d) { return d.first == view.dtype; });
  if (known == std::end(kDtypes)) refuse(kName, "dtype " + std::to_string(view.dtype) + " is none");
  if (view.rank < 1 || view.rank > LATTICE_MAX_RANK)
    refuse(kName, "rank must be in 1..8, found " + std::to_string(view.rank));
  mx::Shape shape;
  int64_t count = 1;
  for (int axis = 0; axis < view.rank; ++axis) {
    const int64_t n = view.shape[axis];
    if (n < 0 || n > INT32_MAX || (n > 0 && count > (int64_t{1} << 40) / n))
      refuse(kName, "shape[" + std::to_string(axis) + "] is " + std::to_string(n));
    count *= n;
    shape.push_back(static_cast<int>(n));
  }
  if (count > 0 && !view.data) refuse(kName, "data is null");
  const mx::Dtype dtype = known->second;
  const auto bytes = static_cast<int64_t>(mx::size_of(dtype));
  lattice::cpu::Buffer<std::byte> memory(std::max<int64_t>(count * bytes, 1));
  const int64_t inner = view.shape[view.rank - 1], step = view.strides[view.rank - 1];
  for (int64_t row = 0; inner > 0 && row < count / inner; ++row) {
    const auto* from = static_cast<const std::byte*>(view.data);
    int64_t rest = row;
    for (int axis = view.rank - 2; axis >= 0; --axis) {
      from += rest % view.shape[axis] * view.strides[axis];
      rest /= view.shape[axis];
    }
    std::byte* to = memory.data() + row * inner * bytes;
    if (step == bytes)
      std::memcpy(to, from, static_cast<size_t>(inner * bytes));
    else
      for (int64_t j = 0; j < inner; ++j)
        std::memcpy(to + j * bytes, from + j * step, static_cast<size_t>(bytes));
  }
  return lattice::new_array(memory.data(), std::move(shape), dtype);
}

}  // namespace

struct lattice_program : Handle {
  lattice_program(lattice::Program loaded, const lattice::ProgramLimits& given)
      : program(std::move(loaded)), limits(given) {
    for (const bool is_output : {false, true})
      for (const ProgramPort& port : is_output ? program.outputs() : program.inputs()) {
        if (port.type.kind != "sparse") {
          ports.push_back({port.name, is_output, port.type.dtype, port.type.shape});
          continue;
        }
        ports.push_back({port.name + ".coords", is_output, mx::int32, {{-1, 4}}});
        ports.push_back({port.name + ".feats", is_output, port.type.dtype, port.type.shape});
      }
  }
  lattice::Program program;
  lattice::ProgramLimits limits;
  std::vector<Port> ports;
};

struct lattice_session : Handle {
  lattice_session(const lattice_program& of)
      : program(of.program), session(of.program.session(of.limits)) {}
  lattice::Program program;
  lattice::Session session;
  std::map<std::string, mx::array> inputs;   // sparse tensors in two parts
  std::map<std::string, mx::array> outputs;  // evaluated, the same
};

namespace {

lattice::ProgramLimits limits_of(const lattice_options* options) {
  if (!options) return {};
  if (options->size < sizeof(lattice_options))
    refuse("lattice_program_load", "options.size is " + std::to_string(options->size) +
                                       ", expected sizeof(lattice_options)");
  if (options->threads < 0 || options->max_points < 0 || options->max_rows < 0 ||
      options->max_bytes < 0)
    refuse("lattice_program_load", "options must be 0 or more");
  if (options->threads > 0) lattice::cpu::set_thread_count(options->threads);
  return {options->max_points, options->max_rows, options->max_bytes};
}

template <typename Load>
int32_t load(const lattice_options* options, lattice_program** out, const Load& load) {
  return guarded(nullptr, [&] {
    if (!out) refuse("lattice_program_load", "out is null");
    *out = nullptr;
    const lattice::ProgramLimits limits = limits_of(options);
    *out = new lattice_program(load(), limits);
  });
}

lattice::ProgramValues values_of(const lattice_session& session) {
  lattice::ProgramValues values;
  const auto part = [&](const std::string& name) -> const mx::array& {
    const auto found = session.inputs.find(name);
    if (found == session.inputs.end())
      refuse("lattice_session_run",
             "input \"" + name + "\" is missing; call lattice_session_set before");
    return found->second;
  };
  for (const ProgramPort& port : session.program.inputs()) {
    if (port.type.kind == "sparse")
      values.emplace(port.name,
                     lattice::SparseTensor(part(port.name + ".coords"), part(port.name + ".feats"),
                                           port.type.stride));
    else
      values.emplace(port.name, part(port.name));
  }
  return values;
}

void keep_outputs(lattice_session& session, const lattice::ProgramValues& values) {
  constexpr const char* kName = "lattice_session_run";
  session.outputs.clear();
  for (const auto& [name, value] : values) {
    if (const auto* tensor = std::get_if<lattice::SparseTensor>(&value)) {
      session.outputs.emplace(name + ".coords", lattice::evaluated(tensor->coords(), kName, name));
      session.outputs.emplace(name + ".feats", lattice::evaluated(tensor->feats(), kName, name));
    } else if (const auto* array = std::get_if<mx::array>(&value)) {
      session.outputs.emplace(name, lattice::evaluated(*array, kName, name));
    }
  }
}

}  // namespace

extern "C" {

uint32_t lattice_abi_version(void) { return LATTICE_ABI_VERSION; }

const char* lattice_library_version(void) {
  static const std::string version(lattice::backend_info().version);
  return version.c_str();
}

int32_t lattice_program_load(const char* path, const lattice_options* options,
                             lattice_program** out) {
  return load(options, out, [&] {
    if (!path) refuse("lattice_program_load", "path is null");
    return lattice::Program::load(path);
  });
}

int32_t lattice_program_load_memory(const void* data, size_t bytes, const lattice_options* options,
                                    lattice_program** out) {
  return load(options, out, [&] {
    if (!data) refuse("lattice_program_load_memory", "data is null");
    return lattice::Program::load_memory({static_cast<const std::byte*>(data), bytes});
  });
}

int32_t lattice_program_describe(const lattice_program* program, lattice_io* list, int32_t* count) {
  return guarded(program, [&] {
    if (!program || !count) refuse("lattice_program_describe", "program or count is null");
    const int32_t room = list ? *count : 0;
    *count = static_cast<int32_t>(program->ports.size());
    for (int32_t i = 0; i < std::min(room, *count); ++i) {
      const Port& port = program->ports[static_cast<size_t>(i)];
      lattice_io made{};
      made.size = sizeof(lattice_io);
      made.name = port.name.c_str();
      made.is_output = port.is_output;
      made.dtype = code_of(port.dtype);
      made.rank = std::min<int32_t>(static_cast<int32_t>(port.shape->size()), LATTICE_MAX_RANK);
      std::copy_n(port.shape->begin(), made.rank, made.shape);
      list[i] = made;
    }
  });
}

int32_t lattice_program_note(const lattice_program* program, const char* key, const char** text) {
  return guarded(program, [&] {
    if (!program || !key || !text) refuse("lattice_program_note", "an argument is null");
    *text = program->program.note(key).c_str();
  });
}

void lattice_program_free(lattice_program* program) { delete program; }

int32_t lattice_session_new(const lattice_program* program, lattice_session** out) {
  return guarded(program, [&] {
    if (!program || !out) refuse("lattice_session_new", "program or out is null");
    *out = nullptr;
    *out = new lattice_session(*program);
  });
}

int32_t lattice_session_set(lattice_session* session, const char* input, const lattice_view* view) {
  return guarded(session, [&] {
    if (!session || !input || !view) refuse("lattice_session_set", "an argument is null");
    if (view->size < sizeof(lattice_view))
      refuse("lattice_session_set",
             "view.size is " + std::to_string(view->size) + ", expected sizeof(lattice_view)");
    const std::string name(input);
    for (const ProgramPort& port : session->program.inputs()) {
      const bool sparse = port.type.kind == "sparse";
      const bool coords = sparse && name == port.name + ".coords";
      if (!coords && name != (sparse ? port.name + ".feats" : port.name)) continue;
      mx::array made = copied(*view);
      const size_t rank = coords ? 2 : port.type.shape.size();
      if (made.ndim() + 1 == rank && port.type.shape.back() == 1)
        made = mx::expand_dims(made, -1, mx::Device::cpu);
      else if (made.ndim() == rank + 1 && made.shape(-1) == 1)
        made = mx::squeeze(made, -1, mx::Device::cpu);
      session->inputs.insert_or_assign(name, made);
      return;
    }
    refuse("lattice_session_set", "the program has no input \"" + name + "\"");
  });
}

int32_t lattice_session_run(lattice_session* session) {
  return guarded(session, [&] {
    if (!session) refuse("lattice_session_run", "session is null");
    keep_outputs(*session, session->session.run(values_of(*session)));
  });
}

int32_t lattice_session_get(lattice_session* session, const char* output, lattice_view* view) {
  return guarded(session, [&] {
    if (!session || !output || !view) refuse("lattice_session_get", "an argument is null");
    const auto found = session->outputs.find(output);
    if (found == session->outputs.end())
      refuse("lattice_session_get", "there is no output \"" + std::string(output) +
                                        "\"; did lattice_session_run succeed?");
    const mx::array& array = found->second;
    if (array.ndim() > LATTICE_MAX_RANK) refuse("lattice_session_get", "the output has 9 axes");
    lattice_view made{};
    made.size = sizeof(lattice_view);
    made.data = array.size() ? array.data<char>() : nullptr;
    made.dtype = code_of(array.dtype());
    made.rank = static_cast<int32_t>(array.ndim());
    auto step = static_cast<int64_t>(array.itemsize());
    for (int axis = made.rank - 1; axis >= 0; --axis) {
      made.shape[axis] = array.shape(axis);
      made.strides[axis] = step;
      step *= array.shape(axis);
    }
    *view = made;
  });
}

void lattice_session_free(lattice_session* session) { delete session; }

const char* lattice_error(const void* handle) {
  return handle ? static_cast<const Handle*>(handle)->error.c_str() : last_error.c_str();
}

const char* lattice_last_error(void) { return last_error.c_str(); }

void lattice_release_memory(void) {
  guarded(nullptr, [] { lattice::release_memory(); });
}

int32_t lattice_encode(const int32_t* coords, int64_t rows, const lattice_codec* codec, void* data,
                       size_t* bytes) {
  return guarded(nullptr, [&] {
    if (!bytes || (!coords && rows > 0)) refuse("lattice_encode", "an argument is null");
    if (rows < 0 || rows > INT32_MAX)
      refuse("lattice_encode", "rows must be in 0..2^31 - 1, found " + std::to_string(rows));
    lattice_codec given{};
    if (codec) std::memcpy(&given, codec, std::min(codec->size, sizeof(given)));
    lattice::VoxelCloud cloud{lattice::new_array(coords, {static_cast<int>(rows), 4}, mx::int32)};
    cloud.voxel_size = given.voxel_size == 0 ? 1 : given.voxel_size;
    std::copy_n(given.origin, 3, cloud.origin.begin());
    lattice::EncodeOptions options;
    if (given.model) options.model = given.model;
    options.fast = given.fast != 0;
    std::copy_n(given.sensor, 3, options.sensor.begin());
    const lattice::ByteString file = lattice::encode_points(cloud, {}, {}, options);
    const size_t room = std::exchange(*bytes, file.size());
    if (room < file.size())
      throw Error(ErrorCode::limit, "[lattice_encode] the file has " + std::to_string(file.size()) +
                                        " bytes, the room in data is " + std::to_string(room));
    if (!data) refuse("lattice_encode", "data is null");
    std::memcpy(data, file.data(), file.size());
  });
}

int32_t lattice_decode(const void* data, size_t bytes, int32_t* coords, int64_t* rows,
                       lattice_codec* codec) {
  return guarded(nullptr, [&] {
    if (!rows || (!data && bytes > 0)) refuse("lattice_decode", "an argument is null");
    const lattice::ByteSpan file{static_cast<const uint8_t*>(data), bytes};
    const int64_t found = lattice::encoded_rows(file), room = std::exchange(*rows, found);
    if (room < found)
      throw Error(ErrorCode::limit, "[lattice_decode] the file has " + std::to_string(found) +
                                        " voxels, the room in coords is " + std::to_string(room));
    if (!coords && found > 0) refuse("lattice_decode", "coords is null");
    const lattice::VoxelCloud cloud = lattice::decode_points(file);
    if (found > 0) std::copy_n(cloud.coords.data<int32_t>(), 4 * found, coords);
    if (!codec) return;
    codec->voxel_size = cloud.voxel_size;
    std::copy_n(cloud.origin.begin(), 3, codec->origin);
  });
}
}
