// A gradient is a promise: which micro-batches, at which model, with which weight. Adding promises
// joins lists; nothing is computed until a model descends along the sum or a value is read. What a
// method drops is therefore never computed.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "workers/training/last_layers.hpp"
#include "workers/training/model_state.hpp"
#include "workers/training/objective.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// A sum that has been fixed (by a collective, or to be evaluated), so that all who hold it share
// one evaluation. Defined by the training engine.
struct GradientSum;

class Gradient {
 public:
  struct Term {
    ModelStatePtr at;  // with micro_batches, or null with `sum`
    std::vector<MicroBatch> micro_batches;
    std::shared_ptr<GradientSum> sum;
    double scale = 1;     // 0: statistics alone
    LastLayers layers{};  // of the micro-batches' gradients; not all: they count for nothing else
  };

  Gradient() = default;

  // The promise of one micro-batch; `at` is null in time-only runs. `compute_time` is what the
  // worker spent on it, booked as discarded if the gradient is dropped.
  Gradient(const ModelStatePtr& at, const MicroBatch& micro_batch, Duration compute_time)
      : micro_batches_(1), compute_time_(compute_time) {
    // Time-only runs count micro-batches and carry nothing: this is their inner loop.
    if (at) terms_.push_back({.at = at, .micro_batches = {micro_batch}, .sum = nullptr, .scale = 1, .layers = {}});
  }

  // The same for `count` micro-batches of a step, numbered from first.index; compute_time of all.
  Gradient(const ModelStatePtr& at, const MicroBatch& first, int count, Duration compute_time);

  // What a deadline has left of one micro-batch (Preempt::layer): it counts as none.
  static Gradient of_layers(const ModelStatePtr& at, const MicroBatch& micro_batch, const LastLayers& layers) {
    Gradient gradient;
    gradient.terms_.push_back({.at = at, .micro_batches = {micro_batch}, .sum = nullptr, .scale = 1, .layers = layers});
    gradient.mark_cut();
    return gradient;
  }

  // A sum that is already shared, such as the result of an all-reduce; wide if the sum is.
  Gradient(std::shared_ptr<GradientSum> sum, std::int64_t micro_batches, Duration compute_time = {});

  // It is summed in double precision from here on, and sent as such, twice as long: for codes whose large weights
  // cancel.
  void use_double_precision() { marks_ |= is_wide; }
  bool wide() const { return (marks_ & is_wide) != 0; }

  // From here on it moves no parameters and counts as no micro-batch: only what its forward passes make of
  // normalisation statistics is left of it.
  void keep_statistics_alone() {
    for (Term& term : terms_) term.scale = 0;
    micro_batches_ = 0;
    compute_time_ = {};
  }

  // Whether it has been summed over the workers, so that its micro-batches are counted already.
  void mark_reduced() { marks_ |= is_reduced; }
  bool reduced() const { return (marks_ & is_reduced) != 0; }

  // Whether something in it is what a deadline has left of a micro-batch.
  bool cut() const { return (marks_ & is_cut) != 0; }
  void mark_cut() { marks_ |= is_cut; }

  Gradient& operator+=(const Gradient& other) {
    count(other);
    if (!other.terms_.empty()) join(std::vector<Term>(other.terms_));
    return *this;
  }
  Gradient& operator+=(Gradient&& other) {
    count(other);
    if (!other.terms_.empty()) join(std::move(other.terms_));
    return *this;
  }
  Gradient& operator*=(double factor) {
    for (Term& term : terms_) term.scale *= factor;
    return *this;
  }
  Gradient& operator/=(double divisor) { return *this *= 1.0 / divisor; }
  friend Gradient operator*(Gradient gradient, double factor) { return gradient *= factor; }
  friend Gradient operator/(Gradient gradient, double divisor) { return gradient /= divisor; }

  // How many micro-batches flowed into it, over all workers.
  std::int64_t micro_batches() const { return micro_batches_; }
  Duration compute_time() const { return compute_time_; }

  const std::vector<Term>& terms() const { return terms_; }

 private:
  static constexpr unsigned is_wide = 1, is_reduced = 2, is_cut = 4;

  void count(const Gradient& other) {
    micro_batches_ += other.micro_batches_;
    compute_time_ = sum_or_longest(compute_time_, other.compute_time_);
    marks_ |= other.marks_;
  }
  // Each worker's clock holds 292 years; the sum over many may be more. The check costs the inner loop no waiting.
  static Duration sum_or_longest(Duration a, Duration b) {
    Duration::rep sum_ns = 0;
    return __builtin_add_overflow(a.count(), b.count(), &sum_ns) ? Duration::max() : Duration{sum_ns};
  }
  void join(std::vector<Term>&& terms);

  std::vector<Term> terms_;
  std::int64_t micro_batches_ = 0;
  Duration compute_time_{};
  unsigned marks_ = 0;  // of this and all that was added; in one number, since adding is the inner loop of all runs
};

}  // namespace syncopate
