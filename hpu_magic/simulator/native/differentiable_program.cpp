#include "differentiable_program.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace hpu {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;
using Values = std::vector<c10::IValue>;

/// What the forward of one call left for its backward.
struct Saved : torch::CustomClassHolder {
  std::shared_ptr<DifferentiableProgram> program;
  std::vector<SavedVariable> values;
};

constexpr const char* kSaved = "saved";

/// A tensor that shares memory and version with the given one, but not its place in autograd: a
/// result, or a view of it, would keep the node alive that keeps it.
SavedVariable saved(const at::Tensor& value, at::TensorList results) {
  bool tied = value.is_view();
  for (const at::Tensor& result : results) {
    tied = tied || result.is_same(value);
  }
  return {tied ? value.detach() : value, /*is_output=*/false};
}

bool has_strides(const at::Tensor& tensor, at::IntArrayRef strides) {
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) > 1 && tensor.stride(dim) != strides[static_cast<size_t>(dim)]) {
      return false;
    }
  }
  return true;
}

at::Tensor restrided(const at::Tensor& tensor, at::IntArrayRef strides) {
  return has_strides(tensor, strides)
      ? tensor
      : at::empty_strided(tensor.sizes(), strides, tensor.options()).copy_(tensor);
}

/// Hands gradients on, and refuses to differentiate them.
struct Once : torch::autograd::Function<Once> {
  static variable_list forward(
      AutogradContext* /*context*/, at::TensorList gradients, at::TensorList /*causes*/) {
    variable_list handed_on;
    for (const at::Tensor& gradient : gradients) {
      handed_on.push_back(gradient.defined() ? gradient.alias() : gradient);
    }
    return handed_on;
  }

  static variable_list backward(AutogradContext* /*context*/, const variable_list& /*gradients*/) {
    TORCH_CHECK(
        false,
        "A compiled graph can be differentiated once, and a gradient of its gradients was asked "
        "for (create_graph=True). Run this model without torch.compile.");
  }
};

}  // namespace

struct DifferentiableProgram::Call : torch::autograd::Function<Call> {
  static variable_list forward(
      AutogradContext* context, at::TensorList inputs,
      const std::shared_ptr<DifferentiableProgram>& program) {
    Values values = program->forward_->run(Values(inputs.begin(), inputs.end()));
    const std::vector<bool>& has_gradient = program->result_has_gradient_;
    variable_list results;
    variable_list without_gradient;
    for (size_t i = 0; i < has_gradient.size(); ++i) {
      results.push_back(values[i].toTensor());
      if (!has_gradient[i]) {
        without_gradient.push_back(results.back());
      }
    }
    context->mark_non_differentiable(without_gradient);
    auto kept = c10::make_intrusive<Saved>();
    kept->program = program;
    for (size_t i = results.size(); i < values.size(); ++i) {
      kept->values.push_back(saved(values[i].toTensor(), results));
    }
    context->saved_data[kSaved] = c10::IValue::make_capsule(std::move(kept));
    return results;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const auto capsule = context->saved_data[kSaved].toCapsule();
    auto& kept = static_cast<Saved&>(*capsule);
    DifferentiableProgram& program = *kept.program;
    const Program& backward = program.backward();
    Values values;
    for (const SavedVariable& value : kept.values) {
      values.emplace_back(value.unpack());
    }
    variable_list causes;
    if (at::GradMode::is_enabled()) {
      for (const c10::IValue& value : values) {
        causes.push_back(value.toTensor());
      }
      causes.insert(causes.end(), gradients.begin(), gradients.end());
    }
    if (!torch::autograd::get_current_graph_task_keep_graph()) {
      for (SavedVariable& value : kept.values) {
        value.reset_data();
      }
    }
    size_t next = 0;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (program.result_has_gradient_[i]) {
        values.emplace_back(restrided(gradients[i], program.strides_[next++]));
      }
    }
    variable_list found;
    for (const c10::IValue& value : backward.run(std::move(values))) {
      found.push_back(value.isNone() ? at::Tensor() : value.toTensor());
    }
    if (!causes.empty()) {
      found = Once::apply(at::TensorList(found), at::TensorList(causes));
    }
    found.emplace_back();  // for the program itself
    return found;
  }
};

std::vector<at::Tensor> DifferentiableProgram::run(
    const std::shared_ptr<DifferentiableProgram>& self, at::TensorList inputs) {
  return Call::apply(inputs, self);
}

const Program& DifferentiableProgram::backward() {
  const std::lock_guard<std::mutex> one_at_a_time(compiling_);
  if (!backward_) {
    backward_ = compile_backward_();
    compile_backward_ = {};
  }
  return *backward_;
}

}  // namespace hpu
