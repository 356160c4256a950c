// The device's random generator: the CPU's Mersenne twister under the device's name, so that
// its state and its numbers equal the CPU's for the same seed. An offset, which DTensor sets, chooses
// another place in the sequence of that seed, and is part of the state.
#pragma once

#include <ATen/core/Generator.h>

namespace hpu {

const at::Generator& default_generator();
at::Generator new_generator();

/// What must happen before a generator's state is seen or changed: recorded operations draw when
/// they run. Set once, by lazy mode.
void settle_generators_by(void (*settle)());

/// The generator that draws on the device where a program hands over `generator`: the default
/// one's when undefined; for one of the CPU a new one, with a number that it draws for seed.
at::Generator device_generator(const at::Generator& generator);

/// The CPU generator that draws for it in a kernel.
at::Generator host_generator(const at::Generator& generator);

/// While it lives, `host_generator` on this thread gives a generator whose numbers nobody misses.
class DrawsInTrial {
 public:
  DrawsInTrial();
  ~DrawsInTrial();
  DrawsInTrial(const DrawsInTrial&) = delete;
  DrawsInTrial& operator=(const DrawsInTrial&) = delete;

 private:
  at::Generator generator_;
};

}  // namespace hpu
