#include "workers/models/seeded_draws.hpp"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <cassert>
#include <mutex>

#include "workers/random/random.hpp"

namespace syncopate {
namespace {

// LibTorch's dispatcher asks a key that is switched on for a thread before all others. This one has no other use.
constexpr auto key = c10::DispatchKey::TESTING_ONLY_GenericMode;

struct Draws {
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>();
  std::uint64_t seed = 0;
  std::uint64_t drawn = 0;
  bool are_seeded = false;
};

Draws& draws() {
  thread_local Draws of_this_thread;
  return of_this_thread;
}

// Gives an operator that would take LibTorch's generator this thread's.
void draw(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const auto& arguments = op.schema().arguments();
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].name() != "generator") continue;
    c10::IValue& value = (*stack)[stack->size() - arguments.size() + i];
    if (value.isNone()) value = draws().generator;
  }
  ++draws().drawn;
  const c10::impl::ExcludeDispatchKeyGuard as_usual(key);
  op.callBoxed(stack);
}

// All of ATen's that draw in place; the others (dropout, rand, randn_like) call these.
constexpr const char* drawing_operators[] = {"bernoulli_.float", "bernoulli_.Tensor", "uniform_",     "normal_",
                                             "random_",          "random_.from",      "random_.to",   "exponential_",
                                             "geometric_",       "log_normal_",       "cauchy_",      "multinomial",
                                             "poisson",          "binomial",          "bernoulli.out"};

// For the process: tests have these sources beside the library that has them too.
void register_once() {
  static std::once_flag once;
  std::call_once(once, [] {
    // Never unregistered: threads may still draw when the process ends.
    static auto* const others = new torch::Library(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
    others->fallback(torch::CppFunction::makeFallthrough());
    static auto* const drawing = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    for (const char* const name : drawing_operators)
      drawing->impl(name, torch::CppFunction::makeFromBoxedFunction<&draw>());
  });
}

}  // namespace

SeededDraws::SeededDraws(std::optional<std::uint64_t> seed) {
  if (!seed) return;
  register_once();
  assert(!draws().are_seeded);
  are_seeded_ = &draws().are_seeded;
  *are_seeded_ = true;
  draws().seed = *seed;
  repeat();
  c10::impl::tls_set_dispatch_key_included(key, true);
}

SeededDraws::~SeededDraws() {
  if (are_seeded_ == nullptr) return;
  c10::impl::tls_set_dispatch_key_included(key, false);
  *are_seeded_ = false;
}

void SeededDraws::repeat() {
  if (draws().are_seeded) draws().generator.set_current_seed(draws().seed);
}

std::uint64_t SeededDraws::drawn() { return draws().drawn; }

std::uint64_t seed_of_draws(std::uint64_t seed, const MicroBatch& micro_batch) {
  const RandomStream stream{
      .seed = seed, .purpose = Purpose::module_draws, .worker = micro_batch.worker, .step = micro_batch.step};
  const auto bits = stream.block(static_cast<std::uint32_t>(micro_batch.index));
  return (std::uint64_t{bits[0]} << 32) | bits[1];
}

}  // namespace syncopate
