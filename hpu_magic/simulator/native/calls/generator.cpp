#include "calls/generator.h"

#include "memory/memory.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GeneratorImpl.h>

#include <atomic>
#include <cstring>
#include <mutex>
#include <random>

namespace hpu {
namespace {

std::atomic<void (*)()> settle_recorded{nullptr};
thread_local const at::Generator* in_trial = nullptr;

// The state of a CPU generator consists of a seed, two other words, the words of the Mersenne
// twister, and an unused word.
constexpr size_t kOffsetInState = (3 + at::MERSENNE_STATE_N) * sizeof(uint64_t);

/// Returns the Mersenne twister at an offset in a seed's sequence, without generating the preceding
/// numbers.
at::mt19937 engine_at(uint64_t seed, uint64_t offset) {
  at::mt19937 engine(seed);
  if (offset != 0) {
    at::mt19937_data_pod data = engine.data();
    const uint64_t words[] = {seed, seed >> 32, offset, offset >> 32};  // the lower 32 bits of each
    std::seed_seq sequence(std::begin(words), std::end(words));
    sequence.generate(data.state_.begin(), data.state_.end());
    engine.set_data(data);
  }
  return engine;
}

struct GeneratorImpl final : c10::GeneratorImpl {
  explicit GeneratorImpl(at::Generator generator)
      : c10::GeneratorImpl(hpu::device(), c10::DispatchKeySet(c10::DispatchKey::HPU)),
        host(std::move(generator)) {}

  static void settle() {
    if (auto* run = settle_recorded.load()) {
      run();
    }
  }

  void set_current_seed(uint64_t seed) override {
    settle();
    host.set_current_seed(seed);
    offset_ = 0;
  }
  /// After this call, every process draws the same random numbers.
  void set_offset(uint64_t offset) override {
    settle();
    auto* cpu = at::check_generator<at::CPUGeneratorImpl>(host);
    std::lock_guard lock(cpu->mutex_);
    const uint64_t seed = cpu->current_seed();
    cpu->set_current_seed(seed);  // also discards a cached normally distributed number
    cpu->set_engine(engine_at(seed, offset));
    offset_ = offset;
  }
  /// Returns the offset that was last set for this seed, regardless of the numbers drawn since
  /// then.
  uint64_t get_offset() const override {
    return offset_;
  }
  uint64_t current_seed() const override {
    return host.current_seed();
  }
  uint64_t seed() override {
    settle();
    offset_ = 0;
    return host.seed();
  }
  void set_state(const c10::TensorImpl& state) override {
    settle();
    host.unsafeGetGeneratorImpl()->set_state(state);
    std::memcpy(&offset_, static_cast<const char*>(state.data()) + kOffsetInState, sizeof(offset_));
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    settle();
    auto state = host.unsafeGetGeneratorImpl()->get_state();
    auto* bytes = static_cast<char*>(state->mutable_data());
    std::memcpy(bytes + kOffsetInState, &offset_, sizeof(offset_));
    return state;
  }
  GeneratorImpl* clone_impl() const override {
    settle();
    std::lock_guard lock(host.mutex());
    auto* copy = new GeneratorImpl(host.clone());
    copy->offset_ = offset_;
    return copy;
  }

  mutable at::Generator host;

 private:
  uint64_t offset_ = 0;
};

at::Generator copy_of_cpu_default() {
  at::Generator cpu = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(cpu.mutex());
  return cpu.clone();
}

}  // namespace

const at::Generator& default_generator() {
  // The device generator starts in the state of the CPU generator, so both draw the same numbers
  // until one of them is reseeded.
  static const at::Generator& generator =
      *new at::Generator(at::make_generator<GeneratorImpl>(copy_of_cpu_default()));
  return generator;
}

void settle_generators_by(void (*settle)()) {
  settle_recorded.store(settle);
}

at::Generator new_generator() {
  return at::make_generator<GeneratorImpl>(at::detail::createCPUGenerator());
}

DrawsInTrial::DrawsInTrial() : generator_(at::detail::createCPUGenerator()) {
  in_trial = &generator_;
}

DrawsInTrial::~DrawsInTrial() {
  in_trial = nullptr;
}

at::Generator device_generator(const at::Generator& generator) {
  if (generator.defined() && generator.device().is_cpu()) {
    uint32_t drawn = 0;
    {
      auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
      std::lock_guard lock(cpu->mutex_);
      drawn = cpu->random();
    }
    return at::make_generator<GeneratorImpl>(at::detail::createCPUGenerator(drawn));
  }
  const at::Generator& chosen = generator.defined() ? generator : default_generator();
  TORCH_CHECK(
      chosen.device().type() == kDevice,
      "Expected a 'hpu' or 'cpu' device type for generator but found '", chosen.device().type(),
      "'");
  return chosen;
}

at::Generator host_generator(const at::Generator& generator) {
  if (in_trial) {
    return *in_trial;
  }
  return static_cast<GeneratorImpl*>(device_generator(generator).unsafeGetGeneratorImpl())->host;
}

}  // namespace hpu
