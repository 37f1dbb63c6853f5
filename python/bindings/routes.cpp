// Routes: the table, what was decided, the self test.
#include "lattice/routes/table.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "arguments.h"
#include "bind.h"
#include "lattice/graph/dtype.h"
#include "lattice/routes/decide.h"
#include "lattice/selftest/selftest.h"

using namespace lattice;
using routes::Decision;
using routes::DecisionLog;
using routes::Route;

namespace {

const char* device_name(mx::Device::DeviceType device) {
  return device == mx::Device::gpu ? "gpu" : "cpu";
}

// `with DecisionLog() as log`: the C++ log lives from enter to exit; the decisions stay.
struct PyDecisionLog {
  std::unique_ptr<DecisionLog> open;
  std::vector<Decision> decisions;
  std::vector<Decision> current() const { return open ? open->decisions() : decisions; }
};

void bind_table(nb::module_& m) {
  nb::class_<Route>(m, "Route", "One way to evaluate an operation.")
      .def_ro("operation", &Route::operation)
      .def_prop_ro("device", [](const Route& r) { return device_name(r.device); })
      .def_ro("name", &Route::name)
      .def_ro("predicate", &Route::predicate, "When it fits, in words.")
      .def_ro("row_independent", &Route::row_independent,
              "Whether a row of the result has the same bits whatever rows stand beside it.")
      .def("__repr__", [](const Route& r) {
        return "Route(" + r.operation + ", " + r.name + ": " + r.predicate + ")";
      });
  m.def(
      "routes",
      [] {
        nb::list out;
        for (const Route* r : routes::all()) out.append(nb::cast(r, nb::rv_policy::reference));
        return out;
      },
      nb::sig("def routes() -> list[Route]"),
      "All rows of the route table, in the order in which they are tried.");
  m.def("run_count", &routes::run_count, nb::arg("operation"), nb::arg("route"),
        "How often kernels of this route were run in this process.");
}

void bind_log(nb::module_& m) {
  nb::class_<Decision>(m, "Decision", "What was decided for one operation.")
      .def_prop_ro("operation", [](const Decision& d) { return d.table->operation; })
      .def_prop_ro("route", [](const Decision& d) { return d.chosen->name; })
      .def_ro("forced", &Decision::forced)
      .def_prop_ro(
          "rejected",
          [](const Decision& d) {
            nb::list out;
            for (const auto& [route, why] : d.rejected)
              out.append(nb::make_tuple(route->name, name(why.step), why.text));
            return out;
          },
          nb::sig("def rejected(self) -> list[tuple[str, str, str]]"))
      .def_prop_ro("device", [](const Decision& d) { return device_name(d.chosen->device); })
      .def_prop_ro("dtype", [](const Decision& d) { return graph::dtype_name(d.facts.dtype); })
      .def_prop_ro("n_in", [](const Decision& d) { return d.facts.n_in; })
      .def_prop_ro("n_out", [](const Decision& d) { return d.facts.n_out; })
      .def_prop_ro("edges", [](const Decision& d) { return d.facts.n_edges.value_or(0); })
      .def_prop_ro("flop", [](const Decision& d) { return d.facts.flop; })
      .def_prop_ro("bytes", [](const Decision& d) { return d.facts.bytes; })
      .def_prop_ro("launches", [](const Decision& d) { return d.launches; })
      .def_prop_ro("views", [](const Decision& d) { return d.views; })
      .def_prop_ro("text", &Decision::text)
      .def("__repr__", &Decision::text);

  nb::class_<PyDecisionLog>(m, "DecisionLog",
                            "Keeps the decisions of this thread inside a with block.")
      .def(nb::init<>())
      .def(
          "__enter__",
          [](nb::handle self) {
            auto& log = nb::cast<PyDecisionLog&>(self);
            if (log.open)
              throw std::invalid_argument("[DecisionLog] found a log that is open already");
            log.open = std::make_unique<DecisionLog>();
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> DecisionLog"))
      .def(
          "__exit__",
          [](PyDecisionLog& log, nb::object, nb::object, nb::object) {
            if (!log.open)
              throw std::invalid_argument("[DecisionLog] found a log that is not open");
            log.decisions = log.open->decisions();
            log.open.reset();
          },
          nb::arg("type").none(), nb::arg("value").none(), nb::arg("traceback").none())
      .def_prop_ro("decisions", [](const PyDecisionLog& log) { return log.current(); });
}

void bind_selftest(nb::module_& m) {
  nb::class_<SelftestRow>(m, "SelftestRow", "One case of one route.")
      .def_ro("operation", &SelftestRow::operation)
      .def_ro("route", &SelftestRow::route)
      .def_ro("device", &SelftestRow::device)
      .def_ro("label", &SelftestRow::label)
      .def_ro("error", &SelftestRow::error,
              "Largest error in units of the tolerance; at most 1 is right.")
      .def_ro("tf32", &SelftestRow::tf32, "Whether the tolerance is that of TF32 products.")
      .def_ro("failure", &SelftestRow::failure)
      .def_ro("unsupported", &SelftestRow::unsupported,
              "Whether the device refused the kernel, which is not the same as a wrong result.")
      .def_ro("bits", &SelftestRow::bits, "A hash of the result: the same for the same bits.")
      .def_ro("seconds", &SelftestRow::seconds,
              "Building, compiling if it is the first of its kind, and evaluating.")
      .def_prop_ro("ok", &SelftestRow::ok);
  m.def(
      "selftest_rows",
      [](const std::string& device, const std::string& prefix, int every, nb::handle told) {
        using Tell = std::function<void(double)>;
        const Tell tell = Argument<Tell>::from(told, At{"selftest", "on_progress"});
        return unlocked([&] { return selftest(device, prefix, every, tell); });
      },
      nb::arg("device") = "", nb::arg("prefix") = "", nb::arg("every") = 1,
      nb::arg("on_progress") = nb::none());
}

}  // namespace

void bind_routes(nb::module_& m) {
  bind_table(m);
  bind_log(m);
  bind_selftest(m);
}
