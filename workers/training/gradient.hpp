// A Gradient is a promise: a list of micro-batches with their weights and the models at which to evaluate them. Adding
// gradients joins the lists. A gradient is computed when a model takes a step along it or one of its values is read.
// Gradients that a method drops are never computed.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/training/executor.hpp"
#include "workers/training/flat_arithmetic.hpp"
#include "workers/training/objective.hpp"
#include "workers/training/process_group.hpp"

namespace syncopate {

// The layers whose gradients are complete when a deadline cuts a backward pass: elements [weights_from,
// Objective::weights()) and [others_from, P) of the flat vector. The default is all layers.
//
// The pass goes from the last tensor that the model uses to the first. Its time is assumed to be proportional to the
// number of elements (an approximation, see Preempt::layer). The last tensors are at the ends of the two ranges of the
// flat vector, the weights and the other parameters.
struct PartialBackward {
  std::size_t weights_from = 0;
  std::size_t others_from = 0;
  bool are_all() const { return *this == PartialBackward{}; }
  auto operator<=>(const PartialBackward&) const = default;
};

class BackwardOrder {
 public:
  explicit BackwardOrder(const Objective& objective);

  // Returns the layers complete after `share` in [0, 1) of the backward pass's time; nullopt if no tensor is complete.
  std::optional<PartialBackward> done_by(double share) const;

  // The functions below number the tensors in the order of the flat vector, without empty ones.
  std::size_t tensors() const { return flat_.size(); }
  std::size_t end_of(std::size_t tensor) const { return flat_[tensor].offset + flat_[tensor].size; }
  bool is_done(std::size_t tensor, const PartialBackward& done) const {
    const std::size_t begin = flat_[tensor].offset;
    return begin >= (begin < weights_ ? done.weights_from : done.others_from);
  }

 private:
  std::vector<ParameterTensor> flat_;        // in the order of the flat vector
  std::vector<ParameterTensor> last_first_;  // in the order of the backward pass
  std::size_t weights_;
  std::size_t parameters_;
};

// Keeps only `layers` of a gradient. The other elements count as zero and have no segments.
void leave_layers(std::vector<GradientSegment>& segments, const PartialBackward& layers, std::size_t weights);

// A flat vector that a task, its producer, fills. Only tasks that run after the producer read it.
struct Cell {
  FlatVector value;
  std::shared_ptr<Task> producer;  // null: already filled, or not in this process
  ProcessSet at;                   // the processes that have the cell, if several processes divide the work
  // True once an optimizer step from this cell has been submitted. The step may reuse the cell's memory, so look-ups in
  // a Memo no longer return the cell. Only the submitting thread reads this flag.
  bool stepped_from = false;
};
using CellPtr = std::shared_ptr<Cell>;

CellPtr filled_cell(std::span<const float> values);
inline const float* values_of(const CellPtr& cell) { return cell ? cell->value.data() : nullptr; }
inline std::shared_ptr<Task> producer(const CellPtr& cell) { return cell ? cell->producer : nullptr; }

// The age of an optimizer's moment, for its bias correction: with decay beta, the initial zero is still the share
// `left` x beta^`steps` of the moment.
struct MomentAge {
  Step steps{};     // steps since the share of the initial zero was `left`
  double left = 1;  // 1 for a moment that was zero, less for a mean of moments with unequal ages
  // For a weighted average of iterates: the sum of the weights so far, the largest rate so far, and the number of
  // iterates so far (Optimizer::weighed).
  double weights = 0;
  double largest_rate = 0;
  double iterates = 0;
  bool operator==(const MomentAge&) const = default;
};
inline constexpr std::size_t most_moments = 3;
using MomentAges = std::array<MomentAge, most_moments>;

struct Moment {
  CellPtr values;  // (P,); null: all zeros (before the first step, or reset)
  MomentAge age{};
  bool operator==(const Moment&) const = default;
};

// The state of a training: an immutable, shared value whose cells are filled by executor tasks. Operations with equal
// inputs return the same object, so N workers with equal models share one replica. The next step writes its result into
// the cells of this state if nothing else holds them.
struct ModelState {
  std::uint64_t id = 0;  // unique among all states, unlike their addresses
  CellPtr parameters;    // (P,)
  std::array<Moment, most_moments> moments;
  CellPtr buffers;  // null if the model has none
};
using ModelStatePtr = std::shared_ptr<const ModelState>;

// Part `index` of `count` equal parts of a vector, as held by one of several servers.
struct Slice {
  int index = 0;
  int count = 1;
  std::size_t begin(std::size_t size) const { return border(size, index); }
  std::size_t end(std::size_t size) const { return border(size, index + 1); }
  // The slice's bytes on the network, if all parameters have `parameters` bytes. Each parameter is in one slice.
  Bytes bytes_of(Bytes parameters) const {
    const std::size_t size = static_cast<std::size_t>(parameters.value()) / sizeof(float);
    return Bytes{static_cast<Bytes::Rep>(sizeof(float) * (end(size) - begin(size)))};
  }
  auto operator<=>(const Slice&) const = default;

 private:
  std::size_t border(std::size_t size, int before) const {
    return size * static_cast<std::size_t>(before) / static_cast<std::size_t>(count);
  }
};

struct WeightedState {
  double weight = 1;
  ModelStatePtr state{};
};

std::uint64_t new_state_id();
// Returns a copy with a new id.
std::shared_ptr<ModelState> new_state(const ModelState& like);

MomentAges ages_of(const ModelState& state);
// Returns the ages of the mean of moments that have these ages and decays (Optimizer::decays). The mean of equal ages
// is that age. Weights, one per member, are divided by their sum; empty: equal weights.
MomentAges age_of_mean(std::span<const MomentAges> ages, std::span<const double> weights,
                       std::span<const double> decays);

// A sum with fixed terms. Its holders share one evaluation, unless it comes from a collective (gradient_sum.hpp).
struct GradientSum;

class Gradient {
 public:
  struct Term {
    ModelStatePtr at{};  // the model of micro_batches; null with `sum`
    std::vector<MicroBatch> micro_batches{};
    std::shared_ptr<GradientSum> sum{};
    double scale = 1;  // 0: contributes only normalisation statistics
    // The layers that the micro-batches' gradients have. If some are missing, losses and statistics are ignored.
    PartialBackward layers{};
  };

  Gradient() = default;

  // The promise of one micro-batch. `at` is null in time-only runs. `compute_time` is booked as discarded if the
  // gradient is dropped.
  Gradient(const ModelStatePtr& at, const MicroBatch& micro_batch, Duration compute_time)
      : micro_batches_(1), compute_time_(compute_time) {
    // Time-only runs only count micro-batches, because this is their inner loop.
    if (at) terms_.push_back({.at = at, .micro_batches = {micro_batch}});
  }

  // The promise of `count` micro-batches of a step, numbered from first.index; `compute_time` is their total.
  Gradient(const ModelStatePtr& at, const MicroBatch& first, int count, Duration compute_time);

  // The completed layers of a micro-batch that a deadline has cut (Preempt::layer). They do not count as a micro-batch.
  static Gradient of_layers(const ModelStatePtr& at, const MicroBatch& micro_batch, const PartialBackward& layers) {
    Gradient gradient;
    gradient.terms_.push_back({.at = at, .micro_batches = {micro_batch}, .layers = layers});
    gradient.mark_cut();
    return gradient;
  }

  // A sum that is already shared, such as the result of an all-reduce. A sum in double precision makes the
  // gradient wide.
  Gradient(std::shared_ptr<GradientSum> sum, std::int64_t micro_batches, Duration compute_time = {});

  // Makes the gradient wide: from now on it is summed and sent in double precision, at twice the length. For gradient
  // codes whose large weights cancel.
  void use_double_precision() { marks_ |= is_wide; }
  bool wide() const { return (marks_ & is_wide) != 0; }

  // Keeps only the normalisation statistics. The gradient then changes no parameters and contains 0 micro-batches.
  void keep_statistics_alone() {
    for (Term& term : terms_) term.scale = 0;
    micro_batches_ = 0;
    compute_time_ = {};
  }

  // Whether the gradient has been summed over the workers, so that its micro-batches have already been counted.
  void mark_reduced() { marks_ |= is_reduced; }
  bool reduced() const { return (marks_ & is_reduced) != 0; }

  // Whether a deadline has cut one of its micro-batches.
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

  // The number of micro-batches in the gradient, of all workers.
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
  // A Duration can represent 292 years, but the sum over many workers may exceed that.
  static Duration sum_or_longest(Duration a, Duration b) {
    Duration::rep sum_ns = 0;
    return __builtin_add_overflow(a.count(), b.count(), &sum_ns) ? Duration::max() : Duration{sum_ns};
  }
  void join(std::vector<Term>&& terms);

  std::vector<Term> terms_;
  std::int64_t micro_batches_ = 0;
  Duration compute_time_{};
  unsigned marks_ = 0;  // marks of all added gradients; one number, because adding is the inner loop of all runs
};

// Finds the result of an earlier operation with equal inputs, as long as something holds that result.
template <typename Value>
class Memo {
 public:
  // The unique ids of the inputs, with their weights, which must be finite.
  using Key = std::vector<std::pair<std::uint64_t, double>>;

  // Returns null if the result is not known or nothing holds it any more.
  std::shared_ptr<Value> find(const Key& key) const {
    const auto found = known_.find(key);
    return found == known_.end() ? nullptr : found->second.lock();
  }

  void remember(Key key, const std::shared_ptr<Value>& value) {
    // Removes expired entries each time the number of entries has doubled, which costs constant time per entry.
    if (known_.size() >= prune_at_) {
      std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
      prune_at_ = std::max(smallest_, 2 * known_.size());
    }
    known_.insert_or_assign(std::move(key), value);
  }

  std::size_t size() const { return known_.size(); }

 private:
  static constexpr std::size_t smallest_ = 64;
  std::map<Key, std::weak_ptr<Value>> known_;
  std::size_t prune_at_ = smallest_;
};

}  // namespace syncopate
