// A compiled graph for training: one node of autograd, whose two ways are programs.
#pragma once

#include "compile/program.h"

#include <atomic>
#include <functional>
#include <memory>

namespace hpu {

/// Runs a forward program and, when gradients arrive, the backward program that belongs to it.
/// Between the two it keeps what the forward program saved, under autograd's rules: a saved
/// tensor that was written since is an error, and it is let go of once it was used for the last
/// time.
class DifferentiableProgram {
 public:
  using Compile = std::function<std::shared_ptr<const Program>()>;

  /// Of one gradient.
  struct Layout {
    std::vector<int64_t> sizes;
    std::vector<int64_t> strides;
  };

  /// `forward` returns the results and then the values that the backward takes before the
  /// gradients of those results that have one, which it wants in `layouts`.
  /// `compile_backward` is called when the backward is needed for the first time.
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

/// Has AOTAutograd's own node raise its error on every path of a second derivative, if the tensor is
/// a result of one.
void refuse_second_derivatives(const at::Tensor& result);

}  // namespace hpu
