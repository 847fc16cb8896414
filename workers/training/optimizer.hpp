// Optimizers as one pass over flat vectors, block by block so that a block stays in the first-level
// cache. Checked step by step against torch::optim (tests/workers/optimizer_test.cpp).
// Shapes:  parameters, gradient, each moment: (P,) flat float32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace syncopate {

enum class DecayScope { weights, all };       // which parameters decay
enum class DecayForm { coupled, decoupled };  // added to the gradient (L2), or subtracted from the parameters

struct WeightDecay {
  double rate = 0;
  DecayScope scope = DecayScope::weights;
  DecayForm form = DecayForm::coupled;
};

// What one step needs beside the vectors.
struct StepContext {
  double learning_rate = 0;
  std::int64_t step = 1;  // 1 for the first step since the moments were zero (bias correction)
  double decay = 0;       // weight-decay rate of this block, 0 for parameters that do not decay
};

// A block of the vectors. `before` and `after` may be the same memory (in place) or different (the
// old state is still in use); so may each moment. A null `moments_before[i]` means all zeros.
struct OptimizerBlock {
  std::size_t size = 0;
  const float* gradient = nullptr;
  const float* before = nullptr;
  float* after = nullptr;
  const float* moments_before[2] = {nullptr, nullptr};
  float* moments_after[2] = {nullptr, nullptr};
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual int moments() const = 0;  // 0, 1 or 2 vectors of state
  virtual void update(const OptimizerBlock& block, const StepContext& context) const = 0;
  virtual const WeightDecay& weight_decay() const = 0;
};

// v = mu v + g;  theta -= lr (v, or g + mu v with Nesterov). As torch::optim::SGD with dampening 0.
struct SgdOptions {
  double momentum = 0;
  bool nesterov = false;
  WeightDecay weight_decay{};
};
// Throws std::invalid_argument unless 0 <= momentum < 1, rate >= 0, and momentum > 0 with Nesterov.
std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options);

// Decoupled weight decay, as torch::optim::AdamW; with the coupled form as torch::optim::Adam.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  WeightDecay weight_decay{.rate = 0.01, .scope = DecayScope::all, .form = DecayForm::decoupled};
};
// Throws std::invalid_argument unless 0 <= beta < 1, epsilon > 0 and rate >= 0.
std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options);

}  // namespace syncopate
