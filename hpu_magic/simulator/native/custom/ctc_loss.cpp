// Connectionist temporal classification, as defined by torch.nn.CTCLoss, in float32.
#include "custom/define.h"

#include <ATen/core/Reduction.h>

#include <limits>

namespace hpu::custom {
namespace {

/// The arguments of both operators, with a batch dimension and in the dtypes that PyTorch's kernels
/// use.
struct CtcSequences {
  at::Tensor log_probs;  // [time, batch, classes]
  at::Tensor targets;  // [batch, length], or all targets concatenated
  at::Tensor input_lengths;
  at::Tensor target_lengths;
};

void check_lengths(const char* name, const at::Tensor& lengths, int64_t batch, int64_t most) {
  TORCH_CHECK(
      lengths.numel() == batch, "CTCLoss ", name, " must have one element for each of ", batch,
      " sequences, but got ", lengths.numel(), ".");
  TORCH_CHECK(
      batch == 0 ||
          (lengths.min().item<int64_t>() >= 0 && lengths.max().item<int64_t>() <= most),
      "CTCLoss ", name, " must be between 0 and ", most, ", but got ", lengths, ".");
}

/// Checks that the targets are valid class indices. PyTorch's kernel does not check the targets.
void check_targets(const CtcSequences& sequences) {
  const at::Tensor& targets = sequences.targets;
  at::Tensor used = targets;
  if (targets.dim() == 1) {
    const int64_t total = sequences.target_lengths.sum().item<int64_t>();
    TORCH_CHECK(
        total <= targets.numel(), "CTCLoss target_lengths add up to ", total,
        ", but there are only ", targets.numel(), " targets.");
    used = targets.narrow(0, 0, total);
  } else {
    const at::Tensor position = at::arange(targets.size(1), targets.options());
    used = targets.masked_fill(position >= sequences.target_lengths.unsqueeze(1), 0);
  }
  const int64_t classes = sequences.log_probs.size(2);
  TORCH_CHECK(
      used.numel() == 0 ||
          (used.min().item<int64_t>() >= 0 && used.max().item<int64_t>() < classes),
      "CTCLoss targets must be classes from 0 to ", classes - 1, ", but some are not.");
}

CtcSequences ctc_sequences(
    const at::Tensor& log_probs, const at::Tensor& targets, const at::Tensor& input_lengths,
    const at::Tensor& target_lengths, int64_t blank) {
  TORCH_CHECK(
      at::isFloatingType(log_probs.scalar_type()) && (log_probs.dim() == 2 || log_probs.dim() == 3),
      "CTCLoss log_probs must be floating-point numbers of shape [T, N, C] or [T, C], but got ",
      toString(log_probs.scalar_type()), " of ", log_probs.sym_sizes(), ".");
  for (const at::Tensor* whole : {&targets, &input_lengths, &target_lengths}) {
    TORCH_CHECK(
        at::isIntegralType(whole->scalar_type(), /*includeBool=*/false),
        "CTCLoss targets and lengths must be integers, but got ",
        toString(whole->scalar_type()), ".");
  }
  TORCH_CHECK(
      targets.dim() == 1 || targets.dim() == 2,
      "CTCLoss targets must have one or two dimensions, but got ", targets.dim(), ".");
  const at::Tensor batched = log_probs.dim() == 2 ? log_probs.unsqueeze(1) : log_probs;
  TORCH_CHECK(
      blank >= 0 && batched.sym_size(2) > blank, "CTCLoss blank must be one of ",
      batched.sym_size(2), " classes, but got ", blank, ".");
  TORCH_CHECK(
      targets.dim() == 1 || targets.sym_size(0) == batched.sym_size(1),
      "CTCLoss targets must have one row for each of ", batched.sym_size(1),
      " sequences, but got ", targets.sym_size(0), ".");
  CtcSequences sequences{
      batched.to(ScalarType::Float), targets.to(ScalarType::Long),
      input_lengths.to(ScalarType::Long).flatten(), target_lengths.to(ScalarType::Long).flatten()};
  if (!log_probs.is_meta()) {
    const int64_t batch = batched.size(1);
    check_lengths("input_lengths", sequences.input_lengths, batch, batched.size(0));
    check_lengths(
        "target_lengths", sequences.target_lengths, batch,
        targets.dim() == 2 ? targets.size(1) : targets.size(0));
    check_targets(sequences);
  }
  return sequences;
}

void check_reduction(int64_t reduction) {
  TORCH_CHECK(
      reduction >= 0 && reduction < at::Reduction::END,
      "CTCLoss reduction must be 0 (none), 1 (mean) or 2 (sum), but got ", reduction, ".");
}

/// Returns a mask of the positions after the end of each sequence, because PyTorch's kernel does
/// not write to them.
at::Tensor after_end(const CtcSequences& sequences, const at::Tensor& alpha) {
  const auto options = sequences.input_lengths.options();
  const at::Tensor time = at::arange(alpha.size(0), options).reshape({-1, 1, 1});
  const at::Tensor position = at::arange(alpha.size(2), options);
  return at::logical_or(
      time >= sequences.input_lengths.unsqueeze(1),
      position > sequences.target_lengths.unsqueeze(1) * 2);
}

/// Returns the loss, and the logarithms of the forward probabilities as a tensor of shape
/// [time, batch, 2 * length + 1].
TwoTensors ctc_loss_custom(
    const at::Tensor& log_probs, const at::Tensor& targets, const at::Tensor& input_lengths,
    const at::Tensor& target_lengths, int64_t blank, int64_t reduction, bool zero_infinity) {
  const CtcSequences sequences =
      ctc_sequences(log_probs, targets, input_lengths, target_lengths, blank);
  check_reduction(reduction);
  const c10::SymInt batch = sequences.log_probs.sym_size(1);
  std::vector<c10::SymInt> of_alpha{
      sequences.log_probs.sym_size(0), batch, targets.sym_size(-1) * 2 + 1};
  if (log_probs.is_meta()) {
    const auto of_loss = reduction == at::Reduction::None ? std::vector<c10::SymInt>{batch}
                                                          : std::vector<c10::SymInt>{};
    return {
        at::empty_symint(of_loss, log_probs.options()),
        at::empty_symint(of_alpha, log_probs.options())};
  }
  constexpr double kImpossible = -std::numeric_limits<double>::infinity();
  at::Tensor alpha = at::full_symint(of_alpha, kImpossible, sequences.log_probs.options());
  at::Tensor loss = at::zeros({batch.expect_int()}, sequences.log_probs.options());
  if (sequences.log_probs.numel() > 0) {
    const auto [likelihood, forward] = at::_ctc_loss(
        sequences.log_probs, sequences.targets, sequences.input_lengths, sequences.target_lengths,
        blank, zero_infinity);
    alpha.narrow(2, 0, forward.size(2)).copy_(forward.transpose(0, 1));
    alpha.masked_fill_(after_end(sequences, alpha), kImpossible);
    loss = zero_infinity ? likelihood.masked_fill(at::isinf(likelihood), 0.0) : likelihood;
  }
  if (reduction == at::Reduction::Mean) {
    loss = (loss / sequences.target_lengths.clamp_min(1)).mean();
  } else if (reduction == at::Reduction::Sum) {
    loss = loss.sum();
  }
  return {loss.to(log_probs.scalar_type()), alpha.to(log_probs.scalar_type())};
}

/// Recomputes the forward pass instead of using its saved results, which would be identical.
at::Tensor ctc_loss_custom_backward(
    const at::Tensor& grad, const at::Tensor& log_probs, const at::Tensor& targets,
    const at::Tensor& input_lengths, const at::Tensor& target_lengths,
    const at::Tensor& /*neg_log_likelihood*/, const at::Tensor& /*log_alpha*/, int64_t blank,
    int64_t reduction, bool zero_infinity) {
  const CtcSequences sequences =
      ctc_sequences(log_probs, targets, input_lengths, target_lengths, blank);
  check_reduction(reduction);
  const c10::SymInt batch = sequences.log_probs.sym_size(1);
  TORCH_CHECK(
      grad.sym_numel() == (reduction == at::Reduction::None ? batch : c10::SymInt(1)),
      "CTCLoss backward requires the gradient of its loss, but got shape ",
      grad.sym_sizes(), ".");
  if (log_probs.is_meta() || log_probs.numel() == 0) {
    return at::zeros_symint(log_probs.sym_sizes(), log_probs.options());
  }
  at::Tensor of_each = grad.to(ScalarType::Float).flatten().expand({batch.expect_int()});
  if (reduction == at::Reduction::Mean) {
    of_each = of_each / (sequences.target_lengths.clamp_min(1) * batch.expect_int());
  }
  const auto [likelihood, forward] = at::_ctc_loss(
      sequences.log_probs, sequences.targets, sequences.input_lengths, sequences.target_lengths,
      blank, zero_infinity);
  return at::_ctc_loss_backward(
             of_each.contiguous(), sequences.log_probs, sequences.targets,
             sequences.input_lengths, sequences.target_lengths, likelihood, forward, blank,
             zero_infinity)
      .reshape(log_probs.sizes())
      .to(log_probs.scalar_type());
}

const Operators ctc([](Operators& define) {
  const std::string sequences =
      "Tensor log_probs, Tensor targets, Tensor input_lengths, Tensor target_lengths, ";
  const std::string options = "int blank, int reduction, bool zero_infinity) -> ";
  define("ctc_loss_custom(" + sequences + options + "(Tensor, Tensor)", &ctc_loss_custom);
  define(
      "ctc_loss_custom_backward(Tensor grad, " + sequences +
          "Tensor neg_log_likelihood, Tensor log_alpha, " + options + "Tensor",
      &ctc_loss_custom_backward);
});

}  // namespace
}  // namespace hpu::custom
