// Programs: networks as one file. Arguments only.
#include "lattice/program/program.h"

#include <nanobind/stl/map.h>

#include "arguments.h"
#include "bind.h"
#include "lattice/program/loaded.h"

using namespace lattice;
using namespace nb::literals;

namespace {

ProgramValues values_of(const nb::dict& inputs) {
  ProgramValues values;
  for (const auto& [key, value] : inputs) {
    const std::string name = nb::cast<std::string>(nb::str(key));
    if (const auto* tensor = instance<SparseTensor>(value))
      values.emplace(name, *tensor);
    else
      values.emplace(name, array(value, {"Program", name.c_str()}));
  }
  return values;
}

nb::dict dict_of(const ProgramValues& values) {
  nb::dict made;
  for (const auto& [name, value] : values) {
    if (const auto* tensor = std::get_if<SparseTensor>(&value))
      made[name.c_str()] = nb::cast(*tensor);
    else if (const auto* dense = std::get_if<mx::array>(&value))
      made[name.c_str()] = nb::cast(*dense);
  }
  return made;
}

nb::list ports(const std::vector<ProgramPort>& all) {
  nb::list made;
  for (const ProgramPort& port : all)
    made.append(nb::make_tuple(port.name, program::type_text(port.type), port.type.lengths_of));
  return made;
}

nb::dict stats_of(const ProgramStats& s) {
  nb::dict made;
  made["voxelize"] = s.voxelize;
  made["geometry"] = s.geometry;
  made["features"] = s.features;
  made["points"] = s.points;
  made["rows"] = nb::cast(s.rows);
  made["bytes"] = s.bytes;
  return made;
}

const char* type_name(program::AttributeType type) {
  constexpr const char* kNames[] = {"flag", "integer", "number", "text", "integers", "numbers"};
  return kNames[static_cast<int>(type)];
}

// What the recorder of an export reads: (name, version, operands, attributes, number of results).
nb::list operation_table() {
  nb::list rows;
  for (const program::Operation& row : program::operations()) {
    nb::list operands, attributes;
    for (const program::Operand& operand : row.operands)
      operands.append(nb::make_tuple(operand.name, operand.kind, static_cast<int>(operand.form)));
    for (const program::Attribute& attribute : row.attributes)
      attributes.append(nb::make_tuple(attribute.name, type_name(attribute.type),
                                       attribute.optional, attribute.length));
    nb::list results;
    for (const char* kind : row.results) results.append(kind);
    rows.append(nb::make_tuple(row.name, row.version, operands, attributes, results));
  }
  return rows;
}

// (name, dtype, numbers, bytes) of each tensor.
nb::list tensor_table(const program::Loaded& loaded) {
  nb::list rows;
  for (const auto& [name, weight] : loaded.tensors) {
    if (const auto* dense = std::get_if<mx::array>(&weight))
      rows.append(nb::make_tuple(name, std::string(program::name_of(dense->dtype())), dense->size(),
                                 dense->nbytes()));
    else if (const auto* packed = std::get_if<QuantizedWeight>(&weight))
      rows.append(nb::make_tuple(name, "int" + std::to_string(packed->bits()),
                                 packed->out_channels() * packed->in_channels() * packed->n_k(),
                                 packed->nbytes()));
  }
  return rows;
}

nb::bytes program_bytes(const std::string& graph, const std::map<std::string, mx::array>& tensors,
                        const std::map<std::string, std::string>& notes) {
  const std::string bytes = unlocked(
      [&] { return program::write_tensors(program::program_file(graph, tensors, notes)); });
  return nb::bytes(bytes.data(), bytes.size());
}

void bind_session(nb::module_& m) {
  const nb::class_<PreparedFrame> frame(m, "PreparedFrame",
                                        "The geometry of a frame; see Session.prepare.");
  nb::class_<Session>(m, "Session", "The state in which one thread runs a program.")
      .def(
          "run",
          [](Session& self, const nb::dict& inputs) {
            const ProgramValues values = values_of(inputs);
            return dict_of(unlocked([&] { return self.run(values); }));
          },
          "inputs"_a, "Outputs by name, evaluated.")
      .def(
          "run",
          [](Session& self, const PreparedFrame& frame) {
            return dict_of(unlocked([&] { return self.run(frame); }));
          },
          "frame"_a, "The same for a frame whose geometry was prepared.")
      .def(
          "prepare",
          [](Session& self, const nb::dict& inputs) {
            const ProgramValues values = values_of(inputs);
            return unlocked([&] { return self.prepare(values); });
          },
          "inputs"_a,
          "The geometry of a frame: on another thread, while `run` computes the frame before.")
      .def_prop_ro(
          "stats", [](const Session& self) { return stats_of(self.stats()); },
          "Of the last run: milliseconds of voxelize, geometry, features and points; rows of each\n"
          "set of coordinates; the bytes that values held at once.")
      .def("trace", &Session::trace, "names"_a, "Values of the graph that the next runs keep.")
      .def_prop_ro(
          "traced", [](const Session& self) { return dict_of(self.traced()); },
          "The values that `trace` asked for, of the last run.");
}

}  // namespace

void bind_program(nb::module_& m) {
  bind_session(m);
  nb::class_<Program> c(m, "LoadedProgram", "A program as C++ has it; see mlx_lattice.Program.");
  def_static(
      c, "load", [](const std::string& path) { return Program::load(path); }, "path"_a, Unlocked());
  c.def_static(
       "load_memory",
       [](const nb::bytes& bytes) {
         const std::span given(reinterpret_cast<const std::byte*>(bytes.c_str()), bytes.size());
         return unlocked([&] { return Program::load_memory(given); });
       },
       "data"_a, "The program of the bytes of a file.")
      .def_prop_ro(
          "inputs", [](const Program& p) { return ports(p.inputs()); }, "(name, type, lengths of).")
      .def_prop_ro(
          "outputs", [](const Program& p) { return ports(p.outputs()); },
          "(name, type, lengths of).")
      .def_prop_ro("text", &Program::text, "The graph.")
      .def(
          "export_mlir",
          [](const Program& p, const std::string& folder) {
            unlocked([&] { p.export_mlir(folder); });
          },
          "folder"_a, "Writes an artifact of the older package, version 2.")
      .def("bytes_for", &Program::bytes_for, "rows"_a,
           "An upper bound of the bytes of all values of a frame of so many rows.")
      .def_prop_ro(
          "tensors", [](const Program& p) { return tensor_table(*p.loaded()); },
          "(name, dtype, numbers, bytes) of each tensor.")
      .def("note", &Program::note, "key"_a, "A text of the header.")
      .def_prop_ro("has_example", &Program::has_example, "Whether the file holds an example.")
      .def_prop_ro(
          "example",
          [](const Program& p) {
            const auto [inputs, outputs] = p.example();
            return nb::make_tuple(dict_of(inputs), dict_of(outputs));
          },
          "(inputs, outputs) of the example.")
      .def(
          "session",
          [](const Program& p, int64_t max_points, int64_t max_rows, int64_t max_bytes) {
            return p.session({max_points, max_rows, max_bytes});
          },
          "max_points"_a = 0, "max_rows"_a = 0, "max_bytes"_a = 0, "A state for one thread.");
  m.def("program_operations", &operation_table, "The operations of programs.");
  m.def("program_bytes", &program_bytes, "graph"_a, "tensors"_a, "notes"_a,
        "The bytes of a program file.");
  m.def(
      "array_id", [](const mx::array& a) { return a.id(); }, "array"_a,
      "A number that two Python objects of one array share.");
}
