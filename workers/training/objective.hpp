// The function that is minimised: a model with its data, or a noisy quadratic. An objective knows nothing of workers'
// clocks or of synchronisation; it turns (parameters, micro-batches) into a gradient.
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

// A piece of a flat gradient, kept where the backward pass left it to spare a copy.
struct GradientSegment {
  std::size_t offset = 0;
  std::size_t size = 0;
  const float* data = nullptr;
  std::shared_ptr<const void> owner;  // keeps `data` alive
};

struct PartialGradient {
  // Cover [0, P) in ascending order of offset, without gaps, unless layers have been taken away (gradient.hpp).
  std::vector<GradientSegment> segments;
  double loss_sum = 0;             // sum over micro-batches of the mean loss of each
  std::vector<float> buffers_sum;  // sum over micro-batches of the BatchNorm buffers after each; (buffers(),)
};

// Gradients of several lists of micro-batches at one model, out of one forward and one backward pass over all of them.
class GradientsApart {
 public:
  virtual ~GradientsApart() = default;
  // The gradient of one list. From any thread; parameters may be gone by then.
  virtual PartialGradient of(std::size_t list) const = 0;
  virtual double loss_sum(std::size_t list) const = 0;
  // out (P,) += the same gradient, up to rounding, without a vector for it. By default with one.
  virtual void add_to(float* out, std::size_t list) const;
};

// Sums over samples [begin, end) of a split; the caller divides.
struct EvaluationSums {
  double loss = 0;
  std::int64_t correct = 0;
  std::int64_t samples = 0;  // for a language model: the tokens that it had to predict
};

enum class Split { train, test, validation };

// A tensor of the model: elements [offset, offset + size) of the flat vector.
struct ParameterTensor {
  std::string name;  // as the model calls it: "convolution1.weight"
  std::size_t offset = 0;
  std::size_t size = 0;
  std::size_t place = 0;  // among all, in the order in which the model uses them; equal ones: that of the offsets
  std::size_t rows = 0;   // its first dimension, where it has several; 0: it is no matrix
};

// Thread-safety: all member functions are const and may be called from several threads at once;
// what a thread needs for itself (a module, input buffers) it keeps per thread.
class Objective {
 public:
  virtual ~Objective() = default;

  // P. The flat vector holds first the decayed parameters (weight matrices and filters), then the
  // others (biases, normalisation), so that weight decay applies to one contiguous range.
  virtual std::size_t parameters() const = 0;
  virtual std::size_t weights() const = 0;  // length of the first range, at most P
  // By ascending offset, without gaps, each within a range, where places ascend too. By default one tensor per range.
  virtual std::vector<ParameterTensor> tensors() const {
    return {{.name = "weights", .offset = 0, .size = weights()},
            {.name = "others", .offset = weights(), .size = parameters() - weights()}};
  }
  virtual std::size_t buffers() const { return 0; }  // floats of normalisation statistics

  // (P,) starting point, the same for every worker; drawn from the counter-based streams.
  virtual std::vector<float> initial_parameters(std::uint64_t seed) const = 0;
  virtual std::vector<float> initial_buffers() const { return {}; }

  // Sum over the micro-batches of the gradient of each one's mean loss, at parameters (P,). Where the model allows it,
  // they are evaluated as one large batch, so the caller bounds their number by chunk_samples().
  virtual PartialGradient gradient(const float* parameters, const float* buffers,
                                   std::span<const MicroBatch> micro_batches) const = 0;

  // The gradients of several lists that are needed apart, as for compressed sums; equal to gradient() up to rounding.
  // Only with has_batched_gradients(), where that is faster than list by list; else std::logic_error.
  virtual std::unique_ptr<const GradientsApart> batched_gradients(
      const float* /*parameters*/, const float* /*buffers*/,
      std::span<const std::span<const MicroBatch>> /*lists*/) const {
    throw std::logic_error("this objective has no gradients apart");
  }
  virtual bool has_batched_gradients() const { return false; }

  // Samples evaluated together for the best speed; fixed per model, so that no machine changes the order of summation.
  virtual std::int64_t chunk_samples() const = 0;
  // False where fusing micro-batches would change their meaning (batch normalisation).
  virtual bool fuses_micro_batches() const { return true; }

  virtual std::int64_t samples_per_micro_batch() const = 0;
  // Optimizer steps in which the workers together see the data once (at least 1); 0: no data set.
  virtual std::int64_t steps_per_epoch() const = 0;

  virtual std::int64_t evaluation_samples(Split split) const = 0;
  // The size of Split::validation; 0: nothing was held out.
  virtual std::int64_t validation_samples() const { return 0; }
  virtual EvaluationSums evaluate(const float* parameters, const float* buffers, Split split, std::int64_t begin,
                                  std::int64_t end) const = 0;
  // The same for these samples. By default one after the other.
  virtual EvaluationSums evaluate_samples(const float* parameters, const float* buffers, Split split,
                                          std::span<const std::uint32_t> samples) const;
  // The same for an ensemble: the mean of the members' predicted probabilities. One `buffers` per member, null where
  // there are none. By default the mean of the members' sums.
  virtual EvaluationSums evaluate_ensemble(std::span<const float* const> parameters,
                                           std::span<const float* const> buffers, Split split, std::int64_t begin,
                                           std::int64_t end) const;

  // The gradient of evaluate's mean loss on these samples: with running statistics, without random draws or smoothing.
  // With a direction (P,): the product of the Hessian and the direction. In double precision, (P,). By default
  // std::logic_error.
  virtual std::vector<double> derivative(const float* /*parameters*/, const float* /*buffers*/, Split /*split*/,
                                         std::int64_t /*begin*/, std::int64_t /*end*/,
                                         std::span<const double> /*direction*/) const {
    throw std::logic_error("this objective has no derivatives of its evaluation");
  }

  // Normalisation statistics of the micro-batches themselves, at parameters (P,): the mean over them of each one's mean
  // and (unbiased) variance. (buffers(),); empty where the model has none.
  virtual std::vector<float> batch_statistics(const float* /*parameters*/,
                                              std::span<const MicroBatch> /*micro_batches*/) const {
    return {};
  }

  // False where "accuracy" means nothing (a quadratic).
  virtual bool has_accuracy() const { return true; }
};

// How much memory and arithmetic an objective will need, and how it cuts its work: known before its data are loaded.
struct ObjectiveMemory {
  std::int64_t data_bytes = 0;  // of the data set; sequences as if all were as long as the longest
  // While a thread computes the gradient of a chunk: activations and the like, beside parameters and gradient. 0:
  // negligible, or unknown, as for a module of the user's own.
  std::int64_t pass_bytes = 0;
  bool is_known = true;            // false: it takes a loaded model
  std::int64_t chunk_samples = 1;  // these two: see Objective
  bool fuses_micro_batches = true;
  std::int64_t buffers = 0;  // floats of normalisation statistics
  // Multiplications with an addition in a sample's forward pass; a backward pass takes two each. 0: negligible.
  double multiply_adds = 0;
  std::int64_t test_samples = 0;  // that an evaluation has besides those of the training set

  bool operator==(const ObjectiveMemory&) const = default;
};

class Training;

// A second base of objectives whose training data may be divided among the workers for the whole run.
class DividedData {
 public:
  virtual ~DividedData() = default;
  // Training samples that this worker alone has; 0: the data are not divided.
  virtual std::int64_t samples_of(Rank worker) const = 0;
};

// samples_of, where a data set was divided into these, by rank; empty: it was not.
inline std::int64_t samples_in(std::span<const std::vector<std::uint32_t>> shards, Rank worker) {
  return shards.empty() ? 0 : std::ssize(shards[static_cast<std::size_t>(worker.value)]);
}

// Averaging::weight of a model that counts by its worker's number of training samples, which the worker's collectives
// put in its place. All weights are equal where the data are not divided, and in runs without a model.
// Source:  McMahan et al. 2017, "Communication-Efficient Learning of Deep Networks from Decentralized Data" (FedAvg).
inline constexpr double by_samples = -1;

// The weight that counts, where `weight` may be by_samples.
double model_weight(double weight, const Training& training, Rank worker);

}  // namespace syncopate
