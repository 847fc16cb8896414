// The objective: the function to minimise, which is a model with its data or a noisy quadratic. It computes gradients
// from parameters and micro-batches. It knows neither clocks nor synchronisation.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "workers/base/units.hpp"

namespace syncopate {

// Identifies a micro-batch of a worker's step. Its samples are a pure function of (seed, worker, step, index).
struct MicroBatch {
  Rank worker{};
  Step step{};
  int index = 0;
  auto operator<=>(const MicroBatch&) const = default;
};

// A piece of a flat gradient. It refers to the memory that the backward pass has written, which saves a copy.
struct GradientSegment {
  std::size_t offset = 0;
  std::size_t size = 0;
  const float* data = nullptr;
  std::shared_ptr<const void> owner;  // keeps `data` alive
};

struct PartialGradient {
  // The segments cover [0, P) in ascending order, without gaps, unless layers have been removed (gradient.hpp).
  std::vector<GradientSegment> segments;
  double loss_sum = 0;             // sum of the micro-batches' mean losses
  std::vector<float> buffers_sum;  // sum of the BatchNorm buffers after each micro-batch; (buffers(),)
};

// Separate gradients of several lists of micro-batches at one model, computed in a single forward and backward pass.
class GradientsApart {
 public:
  virtual ~GradientsApart() = default;
  // Returns the gradient of one list. Any thread may call it, even after the parameters have been destroyed.
  virtual PartialGradient of(std::size_t list) const = 0;
  virtual double loss_sum(std::size_t list) const = 0;
  // Adds the gradient that of(list) returns to out (P,), up to rounding, without a temporary vector.
  virtual void add_to(float* out, std::size_t list) const = 0;
};

// Sums over samples of a split; the caller divides by `samples`.
struct EvaluationSums {
  double loss = 0;
  std::int64_t correct = 0;
  std::int64_t samples = 0;  // for language models: number of predicted tokens

  EvaluationSums& operator+=(const EvaluationSums& other) {
    loss += other.loss;
    correct += other.correct;
    samples += other.samples;
    return *this;
  }
};

enum class Split { train, test, validation };

// A tensor of the model: elements [offset, offset + size) of the flat vector.
struct ParameterTensor {
  std::string name;  // name in the model: "convolution1.weight"
  std::size_t offset = 0;
  std::size_t size = 0;
  // Its position in the order in which the model uses its tensors. If all are equal, the order is that of the offsets.
  std::size_t place = 0;
  std::size_t rows = 0;  // size of the first dimension if there are several; 0: not a matrix
  bool is_tied = false;  // whether it is both the token embedding and the model's head
};
// Whether a tensor with this name is an embedding of tokens or of positions.
bool is_embedding(std::string_view tensor);

// All member functions are const and thread-safe. Each thread has its own module and input buffers.
class Objective {
 public:
  virtual ~Objective() = default;

  // P. The flat vector contains first the weights (matrices and filters), then the other parameters (biases,
  // normalisation), so that weight decay applies to one contiguous range.
  virtual std::size_t parameters() const = 0;
  virtual std::size_t weights() const = 0;  // length of the first range, at most P
  // The tensors by ascending offset, without gaps. Each tensor is within one of the two ranges, and `place` ascends
  // within each range. By default there is one tensor per range.
  virtual std::vector<ParameterTensor> tensors() const {
    return {{.name = "weights", .offset = 0, .size = weights()},
            {.name = "others", .offset = weights(), .size = parameters() - weights()}};
  }
  virtual std::size_t buffers() const { return 0; }  // floats of normalisation statistics

  // Returns the initial parameters, (P,), which are the same for all workers. Drawn from the counter-based streams.
  virtual std::vector<float> initial_parameters(std::uint64_t seed) const = 0;
  virtual std::vector<float> initial_buffers() const { return {}; }

  // Announces that the parameters of this thread's next gradient() belong to `owner` and do not change while `owner`
  // exists. An objective on another device then need not copy them again.
  virtual void next_parameters_belong_to(std::shared_ptr<const void> /*owner*/) const {}

  // Returns the sum over the micro-batches of the gradients of their mean losses, at parameters (P,). If the model
  // allows it, they are evaluated as one large batch, so callers must limit their number with chunk_samples().
  virtual PartialGradient gradient(const float* parameters, const float* buffers,
                                   std::span<const MicroBatch> micro_batches) const = 0;

  // Returns the separate gradients of several lists, as compressed sums need them; equal to those of gradient() up to
  // rounding. Throws std::logic_error if this is not supported. has_batched_gradients() says whether it is supported
  // and faster than one call of gradient() per list.
  virtual std::unique_ptr<const GradientsApart> batched_gradients(
      const float* /*parameters*/, const float* /*buffers*/,
      std::span<const std::span<const MicroBatch>> /*lists*/) const {
    throw std::logic_error("this objective has no batched gradients");
  }
  virtual bool has_batched_gradients() const { return false; }

  // The batch size with the least time per sample. It is fixed per model, so that the order of summation does not
  // depend on the machine.
  virtual std::int64_t chunk_samples() const = 0;
  // Whether several micro-batches may be one batch. False if this would change the result (batch normalisation).
  virtual bool fuses_micro_batches() const { return true; }

  virtual std::int64_t samples_per_micro_batch() const = 0;
  // The number of training samples that only this worker has, if data are divided among the workers for the whole run.
  // 0: data are not divided.
  virtual std::int64_t samples_of(Rank /*worker*/) const { return 0; }
  // The number of optimizer steps in which the workers together process the data set once (at least 1); 0: no data set.
  virtual std::int64_t steps_per_epoch() const = 0;

  virtual std::int64_t evaluation_samples(Split split) const = 0;
  // The size of Split::validation; 0: no validation split.
  virtual std::int64_t validation_samples() const { return 0; }
  virtual EvaluationSums evaluate(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                                  std::int64_t end) const = 0;
  // Like evaluate(), for the given samples. By default evaluates one sample at a time.
  virtual EvaluationSums evaluate_samples(const float* parameters, const float* buffers, Split split,
                                          std::span<const std::uint32_t> samples) const;
  // Like evaluate(), for an ensemble, which predicts the mean of its members' probabilities. `buffers` has one pointer
  // per member, null for models without buffers. The default returns the mean of the members' sums.
  virtual EvaluationSums evaluate_ensemble(std::span<const float* const> parameters,
                                           std::span<const float* const> buffers, Split split, std::int64_t begin,
                                           std::int64_t end) const;

  // Returns the gradient of evaluate()'s mean loss on these samples, (P,) in double precision. It uses running
  // statistics, no random draws and no label smoothing. If a direction (P,) is given, returns the product of the
  // Hessian and the direction instead. The default throws std::logic_error.
  virtual std::vector<double> derivative(const float* /*parameters*/, const float* /*buffers*/, Split /*split*/,
                                         std::int64_t /*begin*/, std::int64_t /*end*/,
                                         std::span<const double> /*direction*/) const {
    throw std::logic_error("this objective has no derivatives of its evaluation");
  }

  // Returns the normalisation statistics of the given micro-batches at parameters (P,): their means and their unbiased
  // variances, each averaged over the micro-batches. Shape (buffers(),); empty if the model has none.
  virtual std::vector<float> batch_statistics(const float* /*parameters*/,
                                              std::span<const MicroBatch> /*micro_batches*/) const {
    return {};
  }

  // Whether the objective has an accuracy; false for a quadratic.
  virtual bool has_accuracy() const { return true; }
};

// An objective's need of memory and arithmetic. Known before its data are loaded.
struct ObjectiveMemory {
  std::int64_t data_bytes = 0;  // size of the data set; every sequence counts as the longest one
  // Memory that a thread needs to compute the gradient of a chunk: mostly activations, without parameters and gradient.
  // 0: negligible, or unknown, as for a user's own module.
  std::int64_t pass_bytes = 0;
  // The same for a device with its own memory, but including parameters and gradient; pass_bytes is then 0.
  std::int64_t device_bytes = 0;
  bool is_known = true;      // false: known only after the model is loaded
  std::int64_t buffers = 0;  // floats of normalisation statistics
  // Multiply-adds in a sample's forward pass. A backward pass needs twice as many. 0: negligible.
  double multiply_adds = 0;
  std::int64_t test_samples = 0;  // samples of an evaluation, besides those of the training set

  bool operator==(const ObjectiveMemory&) const = default;
};

// A special value of Averaging::weight, which the worker's collectives replace by the worker's number of training
// samples. All weights are equal if the data are not divided, and in runs without a model.
// Source:  McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data" (FedAvg).
inline constexpr double by_samples = -1;

}  // namespace syncopate
