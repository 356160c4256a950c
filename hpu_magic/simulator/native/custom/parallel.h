// Loops that run on PyTorch's threads.
#pragma once

#include <ATen/Functions.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

namespace hpu::custom {

/// Calls `work(i)` for each i in [0, count) on PyTorch's threads. at::parallel_for is parallel only
/// in code that is compiled with PyTorch's OpenMP.
template <class Work>
void each_below(int64_t count, const Work& work) {
  const at::Tensor numbers = at::arange(count, at::TensorOptions().dtype(at::kLong));
  auto iterator = at::TensorIteratorConfig().add_const_input(numbers).build();
  iterator.for_each(
      [&](char** data, const int64_t* strides, int64_t size) {
        const at::AutoDispatchBelowADInplaceOrView below_autograd;  // not yet set on other threads
        for (int64_t i = 0; i < size; ++i) {
          work(*reinterpret_cast<const int64_t*>(data[0] + i * strides[0]));
        }
      },
      /*grain_size=*/1);
}

/// Calls `work(begin, end)` for the ranges that divide `count` elements into blocks of `size`.
template <class Work>
void each_range(int64_t count, int64_t size, const Work& work) {
  if (count <= size) {
    return work(int64_t{0}, count);
  }
  each_below((count + size - 1) / size, [&](int64_t number) {
    work(number * size, std::min(count, (number + 1) * size));
  });
}

}  // namespace hpu::custom
