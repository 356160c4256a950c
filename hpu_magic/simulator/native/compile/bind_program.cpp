// Python bindings of compiled graphs.

#include "compile/differentiable_program.h"

#include <c10/core/SafePyObject.h>
#include <torch/csrc/PyInterpreter.h>
#include <torch/csrc/jit/python/pybind_utils.h>

namespace py = pybind11;

namespace hpu {
namespace {

bool holds_slot(const py::handle& sequence) {
  for (const py::handle item : sequence) {
    if (py::isinstance<Slot>(item)) {
      return true;
    }
  }
  return false;
}

Item item_of(const py::handle& item, const c10::TypePtr& type) {
  if (py::isinstance<Slot>(item)) {
    return item.cast<Slot>();
  }
  return torch::jit::toIValue(item, type);
}

Operand operand_of(const py::handle& operand, const c10::Argument& declared) {
  if (py::isinstance<Slot>(operand)) {
    return operand.cast<Slot>();
  }
  if ((py::isinstance<py::list>(operand) || py::isinstance<py::tuple>(operand)) &&
      holds_slot(operand)) {
    c10::TypePtr type = declared.type();
    if (const auto optional = type->cast<c10::OptionalType>()) {
      type = optional->getElementType();
    }
    const auto& element = type->expectRef<c10::ListType>().getElementType();
    ItemList list;
    for (const py::handle item : operand) {
      list.push_back(item_of(item, element));
    }
    return list;
  }
  return torch::jit::toIValue(operand, declared.type(), declared.N());
}

using TracedResults = std::vector<
    std::optional<std::tuple<c10::ScalarType, std::vector<int64_t>, std::vector<int64_t>>>>;

/// Adds a call to a program. `arguments` contains operands for all arguments without a default and
/// possibly for others. `orders` contains the required memory order of each result, and
/// `traced_results` its dtype, sizes and strides.
Slot call(
    Program& program, const std::string& name, const std::string& overload,
    const py::dict& arguments, Program::Orders orders, const TracedResults& traced_results) {
  const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(name.c_str(), overload.c_str());
  // A number passed as a tensor argument, as in x + 1, is still treated as a number in type
  // promotion.
  const torch::jit::ToIValueAllowNumbersAsTensors numbers(true);
  std::vector<Operand> operands;
  for (const c10::Argument& declared : op.schema().arguments()) {
    if (arguments.contains(declared.name())) {
      operands.push_back(operand_of(arguments[py::str(declared.name())], declared));
    } else {
      TORCH_CHECK(
          declared.default_value(), name, " needs its argument '", declared.name(), "'.");
      operands.emplace_back(*declared.default_value());
    }
  }
  Program::AllTraced traced;
  for (const auto& result : traced_results) {
    traced.emplace_back();
    if (result) {
      const auto& [dtype, sizes, strides] = *result;
      traced.back() = Traced{dtype, sizes, strides};
    }
  }
  return program.call(op, std::move(operands), std::move(orders), std::move(traced));
}

/// Runs a program on a list of tensors and sizes. Clears the list, so that each input can be freed
/// after its last use.
py::list run(const Program& program, const py::list& inputs) {
  std::vector<c10::IValue> values;
  values.reserve(inputs.size());
  for (const py::handle input : inputs) {
    if (THPVariable_Check(input.ptr())) {
      const at::Tensor& tensor = THPVariable_Unpack(input.ptr());
      refuse_forward_mode(tensor);
      values.emplace_back(tensor);
    } else {  // a number, or the symbolic length of a nested tensor's ragged dimension
      values.emplace_back(input.cast<c10::SymInt>());
    }
  }
  inputs.attr("clear")();
  {
    py::gil_scoped_release no_gil;
    values = program.run(std::move(values));
  }
  py::list results;
  for (c10::IValue& value : values) {
    results.append(torch::jit::toPyObject(std::move(value)));
  }
  return results;
}

/// Wraps a Python function so that threads that do not hold the GIL can call and destroy it.
DifferentiableProgram::Compile without_gil(py::function compile) {
  const auto function =
      std::make_shared<c10::SafePyObject>(compile.release().ptr(), getPyInterpreter());
  return [function]() -> std::shared_ptr<const Program> {
    const py::gil_scoped_acquire gil;
    const auto callable =
        py::reinterpret_borrow<py::function>(function->ptr(getPyInterpreter()));
    return callable().cast<std::shared_ptr<Program>>();
  };
}

void refuse_second_derivatives_of(const py::args& results) {
  for (const py::handle result : results) {
    if (THPVariable_Check(result.ptr())) {
      refuse_second_derivatives(THPVariable_Unpack(result.ptr()));
    }
  }
}

py::tuple differentiable_run(
    const std::shared_ptr<DifferentiableProgram>& program, const py::args& inputs) {
  std::vector<at::Tensor> tensors;
  tensors.reserve(inputs.size());
  for (const py::handle input : inputs) {
    TORCH_CHECK_TYPE(
        THPVariable_Check(input.ptr()), "The inputs of a compiled graph must be tensors, but one is "
        "of type ", Py_TYPE(input.ptr())->tp_name, ".");
    tensors.push_back(THPVariable_Unpack(input.ptr()));
  }
  {
    const py::gil_scoped_release no_gil;
    tensors = DifferentiableProgram::run(program, std::move(tensors));
  }
  py::tuple results(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    results[i] = py::reinterpret_steal<py::object>(THPVariable_Wrap(std::move(tensors[i])));
  }
  return results;
}

}  // namespace

void bind_program(py::module_& module) {
  py::class_<Slot>(module, "Slot").def("__getitem__", [](Slot first, size_t i) {
    return Slot{first.index + i};
  });
  py::class_<Program, std::shared_ptr<Program>>(module, "Program")
      .def(py::init<size_t>(), py::arg("inputs"))
      .def("input", [](const Program&, size_t i) { return Slot{i}; })
      .def("call", &call)
      .def("element", &Program::element)
      .def(
          "arithmetic",
          [](Program& program, char operation, const py::handle& left, const py::handle& right) {
            const auto integer = c10::IntType::get();
            return program.arithmetic(operation, item_of(left, integer), item_of(right, integer));
          })
      .def(
          "finish",
          [](Program& program, const py::list& results) {
            std::vector<Item> items;
            for (const py::handle result : results) {
              items.push_back(
                  result.is_none() ? Item(c10::IValue())
                                   : item_of(result, c10::IntType::get()));
            }
            program.finish(std::move(items));
          })
      .def("run", &run);
  py::class_<DifferentiableProgram, std::shared_ptr<DifferentiableProgram>>(
      module, "DifferentiableProgram")
      .def(
          py::init([](const std::shared_ptr<Program>& forward, py::function compile_backward,
                      std::vector<bool> input_gets_gradient, std::vector<bool> result_has_gradient,
                      const std::vector<std::pair<std::vector<int64_t>, std::vector<int64_t>>>&
                          gradients) {
            std::vector<DifferentiableProgram::Layout> layouts;
            for (const auto& [sizes, strides] : gradients) {
              layouts.push_back({sizes, strides});
            }
            return std::make_shared<DifferentiableProgram>(
                forward, without_gil(std::move(compile_backward)), std::move(input_gets_gradient),
                std::move(result_has_gradient), std::move(layouts));
          }),
          py::arg("forward"), py::arg("compile_backward"), py::arg("input_gets_gradient"),
          py::arg("result_has_gradient"), py::arg("gradients"))
      .def("__call__", &differentiable_run);
  module.def("refuse_second_derivatives", &refuse_second_derivatives_of);
  module.def(
      "differentiable_once", &differentiable_once, py::arg("gradients"), py::arg("upstream"),
      py::arg("refusal"), py::call_guard<py::gil_scoped_release>());
}

}  // namespace hpu
