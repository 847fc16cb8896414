// The function to minimise: a model with its data, or a noisy quadratic. An objective turns (parameters, micro-batches)
// into a gradient. It knows neither workers' clocks nor synchronisation.
#pragma once

#include <compare>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "workers/base/units.hpp"

namespace syncopate {

// The index-th micro-batch of a worker's step. Its samples are a pure function of (seed, worker, step, index).
struct MicroBatch {
  Rank worker{};
  Step step{};
  int index = 0;
  auto operator<=>(const MicroBatch&) const = default;
};

// A piece of a flat gradient, left where the backward pass wrote it, which saves a copy.
struct GradientSegment {
  std::size_t offset = 0;
  std::size_t size = 0;
  const float* data = nullptr;
  std::shared_ptr<const void> owner;  // keeps `data` alive
};

struct PartialGradient {
  // They cover [0, P) in ascending order of offset, without gaps, unless layers have been removed (gradient.hpp).
  std::vector<GradientSegment> segments;
  double loss_sum = 0;             // sum over micro-batches of the mean loss of each
  std::vector<float> buffers_sum;  // sum over micro-batches of the BatchNorm buffers after each; (buffers(),)
};

// Gradients of several lists of micro-batches at one model, from one forward and one backward pass over all of them.
class GradientsApart {
 public:
  virtual ~GradientsApart() = default;
  // The gradient of one list. Any thread may call it; the parameters may be gone by then.
  virtual PartialGradient of(std::size_t list) const = 0;
  virtual double loss_sum(std::size_t list) const = 0;
  // out (P,) += the same gradient, up to rounding, without creating a vector for it. The default implementation creates
  // one.
  virtual void add_to(float* out, std::size_t list) const;
};

// Sums over samples [begin, end) of a split; the caller divides.
struct EvaluationSums {
  double loss = 0;
  std::int64_t correct = 0;
  std::int64_t samples = 0;  // for a language model: the tokens it had to predict
};

enum class Split { train, test, validation };

// A tensor of the model: elements [offset, offset + size) of the flat vector.
struct ParameterTensor {
  std::string name;  // the model's own name for it: "convolution1.weight"
  std::size_t offset = 0;
  std::size_t size = 0;
  // Its index in the order in which the model uses tensors; if all are equal: the order of the offsets.
  std::size_t place = 0;
  std::size_t rows = 0;  // its first dimension, if it has several; 0: not a matrix
};

// Thread-safety: all member functions are const and may be called from several threads at once. Each thread keeps its
// own module and input buffers.
class Objective {
 public:
  virtual ~Objective() = default;

  // P. The flat vector first holds the decayed parameters (weight matrices and filters), then the others (biases,
  // normalisation), so that weight decay applies to one contiguous range.
  virtual std::size_t parameters() const = 0;
  virtual std::size_t weights() const = 0;  // length of the first range, at most P
  // By ascending offset, without gaps. Each tensor lies within one range, and `place` ascends within a range too. By
  // default one tensor per range.
  virtual std::vector<ParameterTensor> tensors() const {
    return {{.name = "weights", .offset = 0, .size = weights()},
            {.name = "others", .offset = weights(), .size = parameters() - weights()}};
  }
  virtual std::size_t buffers() const { return 0; }  // floats of normalisation statistics

  // (P,) starting point, the same for every worker; drawn from the counter-based streams.
  virtual std::vector<float> initial_parameters(std::uint64_t seed) const = 0;
  virtual std::vector<float> initial_buffers() const { return {}; }

  // Sum over the micro-batches of the gradient of each one's mean loss, at parameters (P,). If the model allows it,
  // they are evaluated as one large batch, so callers limit their number by chunk_samples().
  virtual PartialGradient gradient(const float* parameters, const float* buffers,
                                   std::span<const MicroBatch> micro_batches) const = 0;

  // The separate gradients of several lists, as compressed sums need them; equal to gradient() up to rounding. Call it
  // only with has_batched_gradients(), which says that it is faster than list by list; else std::logic_error.
  virtual std::unique_ptr<const GradientsApart> batched_gradients(
      const float* /*parameters*/, const float* /*buffers*/,
      std::span<const std::span<const MicroBatch>> /*lists*/) const {
    throw std::logic_error("this objective has no gradients apart");
  }
  virtual bool has_batched_gradients() const { return false; }

  // The number of samples that are fastest to evaluate together. Fixed per model, so that no machine changes the order
  // of summation.
  virtual std::int64_t chunk_samples() const = 0;
  // False if fusing micro-batches would change their meaning (batch normalisation).
  virtual bool fuses_micro_batches() const { return true; }

  virtual std::int64_t samples_per_micro_batch() const = 0;
  // Optimizer steps in which the workers together see the data once (at least 1); 0: no data set.
  virtual std::int64_t steps_per_epoch() const = 0;

  virtual std::int64_t evaluation_samples(Split split) const = 0;
  // The size of Split::validation; 0: no validation split.
  virtual std::int64_t validation_samples() const { return 0; }
  virtual EvaluationSums evaluate(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                                  std::int64_t end) const = 0;
  // The same for the given samples; by default one after the other.
  virtual EvaluationSums evaluate_samples(const float* parameters, const float* buffers, Split split,
                                          std::span<const std::uint32_t> samples) const;
  // The same for an ensemble: the mean of the members' predicted probabilities. One `buffers` per member, null for
  // models without any. By default the mean of the members' sums.
  virtual EvaluationSums evaluate_ensemble(std::span<const float* const> parameters,
                                           std::span<const float* const> buffers, Split split, std::int64_t begin,
                                           std::int64_t end) const;

  // The gradient of evaluate's mean loss on these samples, (P,) in double precision: with running statistics, without
  // random draws or smoothing. Given a direction (P,), the product of the Hessian and the direction instead. The
  // default throws std::logic_error.
  virtual std::vector<double> derivative(const float* /*parameters*/, const float* /*buffers*/, Split /*split*/,
                                         std::int64_t /*begin*/, std::int64_t /*end*/,
                                         std::span<const double> /*direction*/) const {
    throw std::logic_error("this objective has no derivatives of its evaluation");
  }

  // Normalisation statistics of the given micro-batches at parameters (P,): the average of each one's mean and
  // (unbiased) variance. Shape (buffers(),); empty if the model has none.
  virtual std::vector<float> batch_statistics(const float* /*parameters*/,
                                              std::span<const MicroBatch> /*micro_batches*/) const {
    return {};
  }

  // False if "accuracy" has no meaning (a quadratic).
  virtual bool has_accuracy() const { return true; }
};

// An objective's memory and arithmetic, and how it divides work; known before its data are loaded.
struct ObjectiveMemory {
  std::int64_t data_bytes = 0;  // size of the data set; all sequences count as long as the longest
  // Memory while a thread computes the gradient of a chunk: activations and so on, without parameters and gradient. 0:
  // negligible, or unknown, as for a user's own module.
  std::int64_t pass_bytes = 0;
  bool is_known = true;            // false: only a loaded model can tell
  std::int64_t chunk_samples = 1;  // these two: see Objective
  bool fuses_micro_batches = true;
  std::int64_t buffers = 0;  // floats of normalisation statistics
  // Multiply-adds in a sample's forward pass; a backward pass takes twice as many. 0: negligible.
  double multiply_adds = 0;
  std::int64_t test_samples = 0;  // samples of an evaluation beyond those of the training set

  bool operator==(const ObjectiveMemory&) const = default;
};

class Training;

// A second base class of objectives whose training data may be divided among the workers for the whole run.
class DividedData {
 public:
  virtual ~DividedData() = default;
  // The number of training samples that only this worker has; 0: the data are not divided.
  virtual std::int64_t samples_of(Rank worker) const = 0;
};

// samples_of for a data set divided into these shards, by rank; empty: not divided.
inline std::int64_t samples_in(std::span<const std::vector<std::uint32_t>> shards, Rank worker) {
  return shards.empty() ? 0 : std::ssize(shards[static_cast<std::size_t>(worker.value)]);
}

// A value of Averaging::weight: the model counts by its worker's number of training samples, which the worker's
// collectives put in its place. All weights are equal if the data are not divided, and in runs without a model.
// Source:  McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data" (FedAvg).
inline constexpr double by_samples = -1;

// The effective weight: replaces by_samples by the worker's number of samples.
double model_weight(double weight, const Training& training, Rank worker);

}  // namespace syncopate
