#include "compile/differentiable_program.h"

#include "threads/locks.h"

#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/graph_task.h>
#include <torch/csrc/autograd/saved_variable.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <mutex>

namespace hpu {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

/// The values that the forward pass of one call saves for its backward pass.
struct Saved : torch::CustomClassHolder {
  std::shared_ptr<DifferentiableProgram> program;
  std::vector<SavedVariable> values;
  std::vector<at::TensorOptions> results;
};

constexpr const char* kSaved = "saved";

/// Saves a value for the backward pass. If the value is a result or a view, only its memory and
/// version are saved. Saving the tensor itself would keep its node alive.
SavedVariable saved(const at::Tensor& value, at::TensorList results) {
  bool tied = value.is_view();
  for (const at::Tensor& result : results) {
    tied = tied || result.is_same(value);
  }
  return {tied ? value.detach() : value, /*is_output=*/false};
}

/// Makes a result independent of its base in the program, because callers may write to the result.
/// These writes still increment the version of saved tensors.
at::Tensor without_base(const at::Tensor& result) {
  if (!result.is_view()) {
    return result;
  }
  at::Tensor tensor = at::_unsafe_view(result, result.sizes());
  namespace autograd = torch::autograd::impl;
  autograd::set_version_counter(tensor, autograd::version_counter(result));
  return tensor;
}

bool has_strides(const at::Tensor& tensor, at::IntArrayRef strides) {
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) > 1 && tensor.stride(dim) != strides[static_cast<size_t>(dim)]) {
      return false;
    }
  }
  return true;
}

/// Returns the gradient of a result, with the strides that the backward program expects. Returns
/// zeros if the result was not used.
at::Tensor laid_out(
    const at::Tensor& gradient, const DifferentiableProgram::Layout& layout,
    const at::TensorOptions& options) {
  if (!gradient.defined()) {
    return at::empty_strided(layout.sizes, layout.strides, options).zero_();
  }
  return has_strides(gradient, layout.strides)
      ? gradient
      : at::empty_strided(gradient.sizes(), layout.strides, gradient.options()).copy_(gradient);
}

constexpr const char* kRefusal = "refusal";
constexpr const char* kCompiled =
    "A compiled graph supports only first derivatives, but create_graph=True and a second backward "
    "pass require second derivatives; run this model without torch.compile.";

/// Returns aliases of gradients. Differentiating the aliases raises an error.
struct Once : torch::autograd::Function<Once> {
  static variable_list forward(
      AutogradContext* context, at::TensorList gradients, at::TensorList /*causes*/,
      const std::string& refusal) {
    context->saved_data[kRefusal] = refusal;
    variable_list aliases;
    for (const at::Tensor& gradient : gradients) {
      aliases.push_back(gradient.alias());
    }
    return aliases;
  }

  static variable_list backward(AutogradContext* context, const variable_list& /*gradients*/) {
    TORCH_CHECK(false, context->saved_data[kRefusal].toStringRef());
  }
};

/// Makes it an error to differentiate the gradients again. Connects the gradients to the next nodes
/// of the node that computed them, and to the incoming gradients, because autograd skips nodes that
/// are not on a path to the requested gradients.
void refuse_twice(
    variable_list& gradients, const Node& node, const variable_list& upstream,
    const std::string& refusal) {
  variable_list causes;
  for (const Edge& edge : node.next_edges()) {
    if (edge.is_valid()) {
      causes.push_back(at::empty({0}));
      torch::autograd::impl::set_gradient_edge(causes.back(), edge);
    }
  }
  variable_list defined;
  for (const at::Tensor& gradient : gradients) {
    if (gradient.defined()) {
      defined.push_back(gradient);
    }
  }
  for (const at::Tensor& gradient : upstream) {
    if (gradient.defined() && gradient.requires_grad()) {
      causes.push_back(gradient);
    }
  }
  defined = Once::apply(at::TensorList(defined), at::TensorList(causes), refusal);
  auto next = defined.begin();
  for (at::Tensor& gradient : gradients) {
    if (gradient.defined()) {
      gradient = *next++;
    }
  }
}

/// Makes it an error to differentiate the gradients of AOTAutograd's node. By itself, AOTAutograd
/// raises an error only if the second derivative needs a tensor that the node saved. The incoming
/// gradients are not changed, because AOTAutograd cannot change the strides of a gradient that
/// requires a gradient.
struct RefusalAfter : torch::autograd::FunctionPostHook {
  explicit RefusalAfter(const Node& node) : node(node) {}

  variable_list operator()(const variable_list& outputs, const variable_list& inputs) override {
    variable_list refusing = outputs;
    if (at::GradMode::is_enabled()) {
      refuse_twice(refusing, node, inputs, kCompiled);
    }
    return refusing;
  }

  const Node& node;  // the node owns this hook
};

/// Adds the hook to the AOTAutograd nodes that computed a tensor, even through views and copies of
/// their results.
void refuse_after(Node* node, int steps) {
  if (!node) {
    return;
  }
  if (node->name() == "CompiledFunctionBackward") {
    const auto& hooks = node->post_hooks();
    if (std::none_of(hooks.begin(), hooks.end(), [](const auto& hook) {
          return dynamic_cast<const RefusalAfter*>(hook.get());
        })) {
      node->add_post_hook(std::make_unique<RefusalAfter>(*node));
    }
  } else if (steps > 0) {
    for (const Edge& edge : node->next_edges()) {
      refuse_after(edge.function.get(), steps - 1);
    }
  }
}

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
      const at::Tensor& result = values[i].toTensor();
      results.push_back(has_gradient[i] ? without_base(result) : result);
      if (!has_gradient[i]) {
        without_gradient.push_back(results.back());
      }
    }
    context->mark_non_differentiable(without_gradient);
    context->set_materialize_grads(false);
    auto kept = c10::make_intrusive<Saved>();
    kept->program = program;
    for (const at::Tensor& result : results) {
      kept->results.push_back(result.options());
    }
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
    if (!torch::autograd::get_current_graph_task_keep_graph()) {
      for (SavedVariable& value : kept.values) {
        value.reset_data();
      }
    }
    size_t next = 0;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (program.result_has_gradient_[i]) {
        values.emplace_back(laid_out(gradients[i], program.layouts_[next++], kept.results[i]));
      }
    }
    variable_list computed;
    for (const c10::IValue& value : backward.run(std::move(values))) {
      computed.push_back(value.isNone() ? at::Tensor() : value.toTensor());
    }
    if (at::GradMode::is_enabled()) {
      refuse_twice(computed, *torch::autograd::get_current_node(), gradients, kCompiled);
    }
    computed.emplace_back();  // the gradient of the argument `program`
    return computed;
  }
};

std::vector<at::Tensor> DifferentiableProgram::run(
    const std::shared_ptr<DifferentiableProgram>& self, variable_list inputs) {
  TORCH_CHECK(
      inputs.size() == self->input_gets_gradient_.size(), "The compiled graph needs ",
      self->input_gets_gradient_.size(), " inputs, but got ", inputs.size(), ".");
  refuse_forward_mode(inputs);
  for (size_t i = 0; i < inputs.size(); ++i) {
    // If the backward pass does not compute a gradient for an input, the input's gradient must stay
    // undefined, rather than become zero.
    if (!self->input_gets_gradient_[i] && inputs[i].requires_grad()) {
      inputs[i] = inputs[i].detach();
    }
  }
  return Call::apply(at::TensorList(inputs), self);
}

void refuse_second_derivatives(const at::Tensor& result) {
  constexpr int kSteps = 3;
  refuse_after(result.grad_fn().get(), kSteps);
}

std::vector<at::Tensor> differentiable_once(
    std::vector<at::Tensor> gradients, const std::vector<at::Tensor>& upstream,
    const std::string& refusal) {
  const auto node = torch::autograd::get_current_node();
  if (node && at::GradMode::is_enabled()) {
    refuse_twice(gradients, *node, upstream, refusal);
  }
  return gradients;
}

const Program& DifferentiableProgram::backward() {
  if (compiled_.load(std::memory_order_acquire)) {
    return *backward_;
  }
  const std::lock_guard one_at_a_time(locks::compilation);
  if (!backward_) {
    backward_ = compile_backward_();
    TORCH_CHECK(backward_, "The backward pass of a compiled graph could not be compiled.");
    compile_backward_ = {};
    compiled_.store(true, std::memory_order_release);
  }
  return *backward_;
}

}  // namespace hpu
