// A compiled graph for training: an autograd node whose forward and backward passes are programs.
#pragma once

#include "compile/program.h"

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace hpu {

/// Runs a forward program and, when autograd passes gradients, a backward program. Saves values of
/// the forward program like autograd: modifying a saved tensor in place is an error, and saved
/// tensors are freed after their last use.
class DifferentiableProgram {
 public:
  using Compile = std::function<std::shared_ptr<const Program>()>;

  /// The sizes and strides of a gradient.
  struct Layout {
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
  };

  /// `forward` returns the results, followed by the first inputs of the backward program. The other
  /// inputs of the backward program are the gradients of the differentiable results, which have the
  /// given `layouts`. `compile_backward` is called when the backward program is first needed.
  DifferentiableProgram(
      std::shared_ptr<const Program> forward, Compile compile_backward,
      std::vector<bool> input_gets_gradient, std::vector<bool> result_has_gradient,
      std::vector<Layout> layouts)
      : forward_(std::move(forward)), compile_backward_(std::move(compile_backward)),
        input_gets_gradient_(std::move(input_gets_gradient)),
        result_has_gradient_(std::move(result_has_gradient)), layouts_(std::move(layouts)) {}

  static std::vector<at::Tensor> run(
      const std::shared_ptr<DifferentiableProgram>& self, std::vector<at::Tensor> inputs);

 private:
  struct Call;

  const Program& backward();

  std::shared_ptr<const Program> forward_;
  std::shared_ptr<const Program> backward_;
  Compile compile_backward_;
  std::atomic<bool> compiled_{false};
  std::vector<bool> input_gets_gradient_;
  std::vector<bool> result_has_gradient_;
  std::vector<Layout> layouts_;
};

/// If a tensor was computed by an AOTAutograd node, makes it an error to compute its second
/// derivatives.
void refuse_second_derivatives(const at::Tensor& result);

/// Returns the gradients that autograd's current node computed from the gradients `upstream`.
/// Differentiating them raises an error with the message `refusal`. Undefined gradients stay
/// undefined.
std::vector<at::Tensor> differentiable_once(
    std::vector<at::Tensor> gradients, const std::vector<at::Tensor>& upstream,
    const std::string& refusal);

}  // namespace hpu
