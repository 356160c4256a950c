// What the arguments of a collective must be like.
#pragma once

#include "collectives/work.h"

#include <ATen/core/Tensor.h>

#include <chrono>
#include <vector>

namespace hpu::collectives {

/// The one tensor that a collective takes of each rank.
const at::Tensor& only(const std::vector<at::Tensor>& tensors, const char* name);

/// The one list that it takes, with a tensor for each rank.
const std::vector<at::Tensor>& only(
    const std::vector<std::vector<at::Tensor>>& lists, int size, const char* name);

/// Raises unless both have one type and as many elements.
void check_like(const at::Tensor& one, const at::Tensor& other, const char* name);

/// Raises unless `whole` has the elements of all ranks' parts.
void check_parts(const at::Tensor& whole, const at::Tensor& part, int size, const char* name);

/// What all ranks must bring alike.
Subject like(const at::Tensor& tensor, int64_t root = -1);
Subject like(const std::vector<at::Tensor>& tensors);

/// Options of a transport's collective with nothing but a time.
template <class Options>
Options with(std::chrono::milliseconds timeout) {
  Options options;
  options.timeout = timeout;
  return options;
}

}  // namespace hpu::collectives
