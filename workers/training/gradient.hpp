// A gradient is a promise: which micro-batches, at which model, with which weight. Adding promises
// joins lists; nothing is computed until a model descends along the sum or a value is read. What a
// method drops is therefore never computed.
#pragma once

#include <algorithm>
#include <array>
#include <compare>
#include <cstddef>
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

// What a backward pass has by the time that something stops it: the gradients of a model's last tensors.
//
// The backward pass goes through the tensors from the last that the model uses to the first, and its time is theirs in
// proportion to their elements (an approximation: see Preempt::layer). In the flat vector, where the weights of all
// layers come before what else they have, the last tensors are the end of either range.
// Elements [weights_from, weights()) and [others_from, P) of a flat vector; by default all.
struct LastLayers {
  std::size_t weights_from = 0;
  std::size_t others_from = 0;
  bool are_all() const { return *this == LastLayers{}; }
  bool have(std::size_t element, std::size_t weights) const {
    return element >= (element < weights ? weights_from : others_from);
  }
  auto operator<=>(const LastLayers&) const = default;
};

class BackwardOrder {
 public:
  explicit BackwardOrder(const Objective& objective);

  // What is done when `share` of the backward pass's time, in [0, 1), is over: a tensor is as soon as all elements up
  // to its first one are. None: no tensor is.
  std::optional<LastLayers> done_by(double share) const;

  // Tensors with elements, in the order of the flat vector: where each ends, and whether it is one of those.
  std::size_t tensors() const { return flat_.size(); }
  std::size_t end_of(std::size_t tensor) const { return flat_[tensor].offset + flat_[tensor].size; }
  bool is_done(std::size_t tensor, const LastLayers& done) const { return done.have(flat_[tensor].offset, weights_); }

 private:
  struct Tensor {
    std::size_t offset;
    std::size_t size;
  };
  std::vector<Tensor> flat_;
  std::vector<Tensor> last_first_;
  std::size_t weights_;
  std::size_t parameters_;
};

// Leaves those layers of a gradient. The others' elements, which have no segments then, are zero.
void leave_layers(std::vector<GradientSegment>& segments, const LastLayers& layers, std::size_t weights);

// The state of a training: parameters, optimizer moments, normalisation buffers. A state is an
// immutable, shared value that may still be on its way (its cells are filled by executor tasks).
// Equal inputs give the same state object, so N workers in consensus share one replica; a cell that
// nobody else holds is overwritten in place by the next step.
// A flat vector that its producer task fills. Only tasks that come after the producer read it.
struct Cell {
  FlatVector value;
  std::shared_ptr<Task> producer;  // null: filled from the start, or not here
  ProcessSet at;                   // where it is, of the processes that divide the work
  // A step from it has been submitted, which may take over its memory: no memo hands it out any more.
  // Only the submitting thread asks.
  bool stepped_from = false;
};
using CellPtr = std::shared_ptr<Cell>;

CellPtr filled_cell(std::span<const float> values);
inline std::shared_ptr<Task> producer(const CellPtr& cell) { return cell ? cell->producer : nullptr; }

// What the bias correction of a moment needs: how much of it is still the zero that it began with. After one more step
// with a decay of beta that is left beta^(steps + 1).
struct MomentAge {
  Step steps{};     // that have gone into it, since
  double left = 1;  // so much was: 1 for a moment that was zero, less for a mean of moments that had unequal ages
  bool operator==(const MomentAge&) const = default;
};
using MomentAges = std::array<MomentAge, 2>;

struct Moment {
  CellPtr values;  // (P,); null: all zeros (before the first step, or reset)
  MomentAge age{};
  bool operator==(const Moment&) const = default;
};

struct ModelState {
  std::uint64_t id = 0;  // no two states ever share one, unlike their addresses
  CellPtr parameters;    // (P,)
  std::array<Moment, 2> moments;
  CellPtr buffers;  // null where the model has none
};
using ModelStatePtr = std::shared_ptr<const ModelState>;

// Part `index` of `count` equal parts of a vector: what one of several servers holds.
struct Slice {
  int index = 0;
  int count = 1;
  std::int64_t begin(std::int64_t size) const { return size * index / count; }
  std::int64_t end(std::int64_t size) const { return size * (index + 1) / count; }
  // On the network, of parameters that take so many bytes as a whole; each is in one slice as a whole.
  Bytes bytes_of(Bytes parameters) const {
    constexpr std::int64_t each = 4;
    return Bytes{each * (end(parameters.value() / each) - begin(parameters.value() / each))};
  }
  auto operator<=>(const Slice&) const = default;
};

// One term of a linear combination of states.
struct WeightedState {
  double weight = 1;
  ModelStatePtr state{};
};

std::uint64_t new_state_id();

MomentAges ages_of(const ModelState& state);
// Of the mean of moments with these ages and decays (Optimizer::decays). Equal ages stay as they are. Weights, one per
// member, are divided by their sum; empty: equal.
MomentAges age_of_mean(std::span<const MomentAges> ages, std::span<const double> weights,
                       std::span<const double> decays);

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

// Finds what equal inputs have given before, for as long as somebody holds it.
template <typename Value>
class Memo {
 public:
  // Ids of the inputs, which no others ever share, with their weights (finite).
  using Key = std::vector<std::pair<std::uint64_t, double>>;

  // Null if nobody holds it any more.
  std::shared_ptr<Value> find(const Key& key) const {
    const auto found = known_.find(key);
    return found == known_.end() ? nullptr : found->second.lock();
  }

  void remember(Key key, const std::shared_ptr<Value>& value) {
    // Forgets what has gone once that may be half of it: a constant cost per value.
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
