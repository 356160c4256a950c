#include "prices/source.h"

#include "threads/interpreter.h"
#include "threads/locks.h"

#include <pybind11/stl.h>
#include <torch/csrc/autograd/python_variable.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/csrc/utils/tensor_dtypes.h>
#include <torch/csrc/Dtype.h>
#include <torch/csrc/DynamicTypes.h>

namespace py = pybind11;

namespace hpu::prices {
namespace {

// Leaked on purpose, because any thread may call the function until the process ends.
py::function* source = nullptr;
py::function* link_source = nullptr;
auto* first_error = new std::string;

thread_local const std::optional<std::string>* captured_exchange = nullptr;

struct CallerQuestion {};

/// While this object exists, torch.compile does not compile the Python functions that this thread
/// calls. Otherwise, it would compile the source of prices after a graph break.
class WithoutCompiler {
 public:
  WithoutCompiler() : callback_(exchange(py::none())) {}
  ~WithoutCompiler() {
    exchange(callback_);
  }
  WithoutCompiler(const WithoutCompiler&) = delete;
  WithoutCompiler& operator=(const WithoutCompiler&) = delete;

 private:
  static py::object exchange(const py::object& callback) {
    static const auto* function = new py::object(
        py::module_::import("torch._C._dynamo.eval_frame").attr("set_eval_frame"));
    return (*function)(callback);
  }

  py::object callback_;
};

py::object python_dtype(c10::ScalarType type) {
  return py::reinterpret_borrow<py::object>(
      reinterpret_cast<PyObject*>(torch::getTHPDtype(type)));
}

py::tuple tuple_of(const std::vector<int64_t>& numbers) {
  py::tuple result(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    result[i] = numbers[i];
  }
  return result;
}

/// Converts numbers and lists of numbers; all other values become None.
py::object plain(const c10::IValue& value) {
  if (value.isBool()) {
    return py::bool_(value.toBool());
  }
  if (value.isInt()) {
    return py::int_(value.toInt());
  }
  if (value.isDouble()) {
    return py::float_(value.toDouble());
  }
  if (value.isList()) {
    const auto items = value.toListRef();
    py::tuple result(items.size());
    for (size_t i = 0; i < items.size(); ++i) {
      result[i] = plain(items[i]);
    }
    return result;
  }
  return py::none();
}

py::tuple operands(const std::vector<Operand>& all, const std::vector<size_t>& storages) {
  py::tuple result(all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    result[i] = py::make_tuple(
        storages[i], tuple_of(all[i].sizes), python_dtype(all[i].dtype), all[i].elements);
  }
  return result;
}

py::tuple described(const Question::Operation& asked) {
  const Operation& operation = asked.operation;
  py::tuple arguments(operation.arguments.size());
  for (size_t i = 0; i < operation.arguments.size(); ++i) {
    arguments[i] = plain(operation.arguments[i]);
  }
  const c10::OperatorName& name = operation.op.operator_name();
  return py::make_tuple(
      name.name, name.overload_name, operands(operation.reads, asked.reads),
      operands(operation.writes, asked.writes), operation.is_view, arguments,
      operation.host_bytes);
}

/// Returns whether a tensor is a parameter of a module, trained or not.
bool is_parameter(const WeakTensor& weak) {
  const at::Tensor tensor(weak.lock());
  if (!tensor.defined() || !tensor.is_leaf()) {
    return false;
  }
  static const auto* type =
      new py::object(py::module_::import("torch.nn.parameter").attr("Parameter"));
  return py::isinstance(py::reinterpret_steal<py::object>(THPVariable_Wrap(tensor)), *type);
}

clock::Price answer(const Question& question) {
  py::list operations;
  for (const auto& each : question.operations) {
    operations.append(described(each));
  }
  py::list storages;
  for (const auto& each : question.storages) {
    storages.append(py::make_tuple(each.bytes, python_dtype(each.dtype), each.kept, is_parameter(each.base)));
  }
  clock::Price price;
  std::vector<clock::Parts> each;
  std::tie(price.card, price.host, price.compilation, price.parts, each) =
      (*source)(operations, storages, question.graph)
          .cast<std::tuple<double, double, double, clock::Parts, decltype(each)>>();
  if (question.graph) {
    price.operators = std::make_shared<const std::vector<clock::Parts>>(std::move(each));
  }
  return price;
}

clock::LinkPrice answer(const LinkQuestion& question) {
  clock::LinkPrice price;
  const auto exchange = captured_exchange ? *captured_exchange : std::nullopt;
  std::tie(price.links, price.card) =
      (*link_source)(
          question.name, question.bytes, question.tensors, question.ranks, question.stride,
          exchange)
          .cast<std::tuple<double, double>>();
  return price;
}

std::string answer(const CallerQuestion&) {
  return link_source->attr("exchange_of_caller")().cast<std::string>();
}

template <class Question>
auto ask(const Question& question) -> std::optional<decltype(answer(question))> {
  const InterpreterGuard guard;
  if (!guard || !source) {
    return std::nullopt;
  }
  locks::check_may_take_gil();
  const py::gil_scoped_acquire gil;
  try {
    const WithoutCompiler interpreted;
    return answer(question);
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_Exception)) {
      PyErr_SetInterrupt();  // raised again at the next Python instruction
    } else if (first_error->empty()) {
      *first_error = error.what();
    }
  } catch (const py::cast_error& error) {
    if (first_error->empty()) {
      *first_error = error.what();
    }
  }
  return std::nullopt;
}

}  // namespace

std::optional<clock::Price> ask_source(const Question& question) {
  return ask(question);
}

std::optional<std::string> exchange_of_caller() {
  return clock::on() ? ask(CallerQuestion()) : std::nullopt;
}

CalledAgain::CalledAgain(const std::optional<std::string>& exchange)
    : outer_(std::exchange(captured_exchange, &exchange)) {}

CalledAgain::~CalledAgain() {
  captured_exchange = outer_;
}

std::optional<clock::Transfer> launch_transfer(const LinkQuestion& question, bool is_message) {
  if (!clock::on()) {
    return std::nullopt;
  }
  if (const auto price = ask(question)) {
    return clock::transfer(question.name, *price, /*waits_for_links=*/!is_message);
  }
  clock::count_unpriced(question.name);
  return std::nullopt;
}

void bind_source(py::module_& module) {
  module.def("set_price_sources", [](py::function of_work, py::function of_links) {
    delete source;
    delete link_source;
    source = new py::function(std::move(of_work));
    link_source = new py::function(std::move(of_links));
    first_error->clear();
  });
  module.def("price_error", [] { return *first_error; });
}

}  // namespace hpu::prices
