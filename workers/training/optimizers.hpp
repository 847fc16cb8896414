// Optimizers as one pass over flat vectors, block by block so that a block stays in the first-level
// cache. Checked step by step against torch::optim (tests/workers/optimizer_test.cpp).
// Shapes:  parameters, gradient, each moment: (P,) flat float32.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "workers/training/model_state.hpp"

namespace syncopate {

enum class DecayScope { weights, all };       // which parameters decay
enum class DecayForm { coupled, decoupled };  // added to the gradient (L2), or subtracted from the parameters

struct WeightDecay {
  double rate = 0;
  DecayScope scope = DecayScope::weights;
  DecayForm form = DecayForm::coupled;
  std::vector<std::string> exclude{};  // nor do tensors whose names contain one of these
};

// Which tensors a layer-wise optimizer scales by a trust ratio: those that decay may concern, or all.
enum class TrustScope { decayed, all };

// What a momentum sums up. Both are one thing while the learning rate stays; after a change of it the second
// still takes the old steps at the old rate.
enum class MomentumOf {
  gradients,  // as PyTorch's:                v = mu v + g;     theta -= lr v
  updates,    // as TensorFlow's and MLPerf's: v = mu v + lr g;  theta -= v
};

// What a pass of a layer-wise step measures of a tensor: sums that its optimizer defines, most of them of squares.
using TensorSums = std::array<double, 3>;
using PassSums = std::array<TensorSums, 2>;  // by pass

// What one step needs beside the vectors.
struct StepContext {
  double learning_rate = 0;
  MomentAges ages = {MomentAge{.steps = 1}, MomentAge{.steps = 1}};  // of each moment, with this step
  double decay = 0;  // weight-decay rate of this block, 0 for parameters that do not decay
  // The second moment stays as it is, where `beta1_of_frozen` says that it can; where it is 0, the first becomes 0.
  bool keeps_second = false;
  // Layer-wise: decay does not concern this block's tensor, at whatever rate; and what the passes so far have
  // measured of the tensor, and of all tensors together.
  bool excluded = false;
  const PassSums* tensor = nullptr;
  const PassSums* model = nullptr;
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
  float* kept = nullptr;  // layer-wise: the gradient's memory, which lasts until the step's end
};

// A layer-wise block is no longer than this.
inline constexpr std::size_t longest_block = 2048;

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual int moments() const = 0;  // 0, 1 or 2 vectors of state
  // What a step keeps of each of these: momentum, or beta1 and beta2.
  virtual std::vector<double> decays() const = 0;
  virtual void update(const OptimizerBlock& block, const StepContext& context) const = 0;
  virtual const WeightDecay& weight_decay() const = 0;
  // Of an optimizer whose second moment may stay as it is while the first goes on, the first one's decay; none: it
  // cannot. The first moment then makes the step, without bias correction or a decay in the gradient. A parameter whose
  // second moment is exactly 0 takes no step but its decay.
  virtual std::optional<double> beta1_of_frozen() const { return std::nullopt; }

  // A layer-wise optimizer needs norms of whole tensors: it takes so many passes (at most 2) over the vectors before
  // `update`. No block then straddles two tensors.
  virtual int passes() const { return 0; }
  // This block's share of what the pass measures. It may write the moments, and over the gradient (`kept`): the next
  // pass and `update` find there what it leaves.
  virtual TensorSums measure(int pass, const OptimizerBlock& block, const StepContext& context) const;
};

// Where to read a moment: a null one is written as zeros first.
const float* read_moment(const OptimizerBlock& block, std::size_t moment);

// How much of a moment with this decay is what it began with; the rest, 1 less that, is what gradients have made of it.
double left_of_start(double beta, const MomentAge& age);

// v = mu v + g;  theta -= lr (v, or g + mu v with Nesterov). As torch::optim::SGD with dampening 0; with a
// momentum of updates as tf.keras.optimizers.SGD.
struct SgdOptions {
  double momentum = 0;
  MomentumOf momentum_of = MomentumOf::gradients;
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
  bool corrects_bias = true;  // moments are divided by 1 - beta^step
  WeightDecay weight_decay{.rate = 0.01, .scope = DecayScope::all, .form = DecayForm::decoupled};
};
// Throws std::invalid_argument unless 0 <= beta < 1, epsilon > 0 and rate >= 0.
std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options);

// For the factories: each throws std::invalid_argument that names the option and what was found.
void require_share(double value, const char* name);          // in [0, 1)
void require_positive(double value, const char* name);       // above 0 and finite
void require_at_least_zero(double value, const char* name);  // and finite

}  // namespace syncopate
