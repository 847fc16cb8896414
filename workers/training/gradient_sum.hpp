// The evaluation of a sum of gradient promises, shared by all who consume it.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/training/executor.hpp"
#include "workers/training/gradient.hpp"
#include "workers/training/objective.hpp"
#include "workers/training/optimizers.hpp"
#include "workers/training/process_group.hpp"

namespace syncopate {

// A simulation that several processes divide: who computes what, and what goes from one to the other.
//
// All processes go through the same programs, on the same virtual time, and so submit the same arithmetic in the same
// order. Every value has places, the processes where it is computed and kept; they are decided when it is submitted, by
// what has been submitted before alone, so that all processes know them. Elsewhere it has no memory.
//
// - Workers are dealt to processes in equal blocks by rank. What a worker asks for alone (its own steps, its mixture of
//   others' models) is computed at its process; what servers ask for, or comes of a collective, everywhere where its
//   inputs are, without a word between the processes, or where they are needed.
// - Micro-batches of one process's workers are evaluated there; those of several, at a model that is everywhere, in the
//   chunks of one process, divided evenly. A sum that needs parts of several processes is exchanged once: each gives
//   the sum of its parts, and all add these up in the order of the processes. So do averages of models.
// - A value that is needed where it is not is sent there, and kept by both.
//
// Whatever is everywhere is the same to the bit: it is computed by all from equal bits, by equal instructions, or sent.
// What differs from one process is the grouping of sums, thus rounding.
//
// All members but `self` and `processes` are for the submitting thread.
class DividedWork {
 public:
  // What is given outlives it, up to leave().
  DividedWork(ProcessGroup& group, Executor& executor, int workers);

  int processes() const { return group_.size(); }
  int self() const { return group_.self(); }
  bool is_here(ProcessSet places) const { return places.has(self()); }
  int process_of(Rank worker) const;
  // Where what this participant asks for belongs: a worker's process; with a server, everywhere.
  ProcessSet place_of(Rank rank) const;

  // For whom is submitted what is submitted now.
  ProcessSet asker() const { return asker_; }
  ProcessSet exchange_asker(ProcessSet places) { return std::exchange(asker_, places); }  // returns the one before

  // What each of `from` gives goes to all of `to`. `give` is run where this process is among the ones, after the
  // prerequisites, and `take` where it is among the others, with what all give, in the order of the processes. The task
  // that is returned ends after `take` (null: nothing is taken here).
  using Give = std::function<Payload()>;
  using Take = std::function<void(std::vector<Payload>)>;
  std::shared_ptr<Task> exchange(ProcessSet from, ProcessSet to, std::span<const std::shared_ptr<Task>> prerequisites,
                                 Give give, Take take);
  // The same of numbers, which all take.
  using Numbers = std::vector<double>;
  std::shared_ptr<Task> exchange_numbers(ProcessSet from, std::span<const std::shared_ptr<Task>> prerequisites,
                                         std::function<Numbers()> give,
                                         std::function<void(const std::vector<Numbers>&)> take);
  // The same, with `give` at once on this thread; returns what all give.
  std::vector<Numbers> exchanged_numbers(ProcessSet from, const std::function<Numbers()>& give);

  // Once all tasks have ended: returns when nothing of what they have given is held by the group any more.
  void settle() { group_.settle(); }

  // From then on the cell is at all of `places` too.
  void bring(const CellPtr& cell, ProcessSet places);

  // Which of `count` equal parts are this process's, of all that `places` divide among them.
  std::vector<bool> dealt(std::size_t count, ProcessSet places) const;

  // All of the processes is everywhere.
  ProcessSet normalised(ProcessSet places) const;
  ProcessSet all() const { return ProcessSet::first(processes()); }

  // Nothing that has been exchanged reaches the executor from then on: before this is destroyed.
  void leave() { group_.forget(); }

 private:
  ProcessGroup& group_;
  Executor& executor_;
  int workers_;
  ProcessSet asker_;
  std::uint64_t exchanges_ = 0;
};

// What a pass that several sums shared has kept of a chunk, until somebody asks for its values.
class KeptOfPass {
 public:
  virtual ~KeptOfPass() = default;
  // Made when they are first asked for, from any thread, once the pass is over. Without the loss.
  virtual const std::vector<GradientSegment>& values() const = 0;
  // out (P,) += the same, up to rounding, without making them.
  virtual void add_to(float* out) const = 0;
};

struct GradientSum {
  // A chunk: micro-batches that are evaluated together, as one large batch. Chunks are cut from the
  // sorted list by fixed rules, so the order of summation depends on nothing else.
  struct Chunk {
    ModelStatePtr at;  // until its evaluation is submitted
    std::vector<MicroBatch> micro_batches;
    double scale = 1;
    LastLayers layers{};                  // not all: neither losses nor buffers count
    std::shared_ptr<GradientSum> nested;  // instead of micro-batches: another sum, times scale
    PartialGradient result{};
    std::shared_ptr<const KeptOfPass> kept{};  // null: `result` has all values
    int evaluator = 0;  // of micro-batches once submitted: the process, where several divide the work

    const std::vector<GradientSegment>& segments() const { return kept ? kept->values() : result.segments; }
  };

  // Elements up to `end` are times `factor`.
  struct Factor {
    std::size_t end;
    double factor;
  };

  // Which optimizer step this sum was used for, so that equal inputs give the same state.
  struct Use {
    std::uint64_t from;  // ModelState::id
    double scale;
    double learning_rate;
    Slice slice;
    bool keeps_second;
    bool clips;
    auto operator<=>(const Use&) const = default;
  };

  std::vector<Chunk> chunks;
  std::vector<MicroBatch> carried;           // what is known to be in chunks that are values alone
  std::vector<Factor> factors;               // one after another up to P; empty: all are 1
  std::vector<std::shared_ptr<Task>> tasks;  // one per chunk once submitted
  bool submitted = false;
  // Where all chunks are, once submitted: where it can be read. None: each process has some.
  ProcessSet at;
  std::shared_ptr<GradientSum> whole;  // the same as values that are everywhere, once they are needed
  bool is_told = false;                // to whoever wants to know which micro-batches are kept
  bool wide = false;                   // is added up in double precision
  std::int64_t micro_batches = 0;      // in the sum of the normalisation buffers
  // Strong references on purpose: while somebody may still look a state up here, its memory must not
  // be taken over by the next step. Looked up, never iterated.
  std::map<Use, ModelStatePtr> uses;
};

// Sorts and cuts the gradient's terms. A gradient that is already one shared sum (a wide one, if it is wide)
// is returned as it is; `scale` receives its factor (1 otherwise). Where work is divided, micro-batches of several
// processes' workers are cut into a multiple of as many pieces.
std::shared_ptr<GradientSum> fix_sum(const Gradient& gradient, const Objective& objective, double& scale,
                                     const DividedWork* divided = nullptr);

// Appends what has flowed into a sum, as far as this process knows: not what is there for statistics alone.
void append_micro_batches(const GradientSum& sum, std::vector<MicroBatch>& out);
void append_micro_batches(const Gradient& gradient, std::vector<MicroBatch>& out);

// Chunks needed for `samples`: one for small batches, else an even number of equal ones of at most
// `chunk_samples`, so that two cores finish together.
std::int64_t number_of_chunks(std::int64_t samples, std::int64_t chunk_samples);

// At the model that the chunk has been taken from; null: it is nested, or given as values.
void evaluate_chunk(GradientSum::Chunk& chunk, const ModelStatePtr& at, const Objective& objective);

// Leaves of an evaluated sum what a deadline leaves of its micro-batches.
void cut_sum(GradientSum& sum, const LastLayers& layers, const Objective& objective);

// Submits the evaluation of all chunks, once; of those that are another process's, nothing.
void submit_chunks(const std::shared_ptr<GradientSum>& sum, const std::shared_ptr<const Objective>& objective,
                   Executor& executor, DividedWork* divided = nullptr);

// out[i] = scale x the sum's elements [begin, begin + out.size()); all chunks must be evaluated. A wide sum
// is rounded once, at the end.
void write_block(const GradientSum& sum, double scale, std::size_t begin, std::span<float> out);

// L2 norm of scale x the sum's elements [begin, end), as far as write_block writes them.
double norm_of(const GradientSum& sum, double scale, std::size_t begin, std::size_t end);

// What a gradient of this norm is multiplied by, so that its norm is `most` at most: as torch.nn.utils.clip_grad_norm_,
// with the same guard against division by zero.
double clipping_factor(double norm, double most);

// Where these elements stand in memory already; null: nowhere, or in pieces.
const float* block_in_memory(const GradientSum& sum, double scale, std::size_t begin, std::size_t size);

// Whether scale x the sum is what a pass has kept of one chunk; only then, out (P,) += the sum.
bool is_kept_of_pass(const GradientSum& sum, double scale);
void add_kept_of_pass(const GradientSum& sum, float* out);

// The same in double precision: high[i] + low[i]. Both of equal size.
void write_wide_block(const GradientSum& sum, double scale, std::size_t begin, std::span<float> high,
                      std::span<float> low);

// Over all chunks that were evaluated here.
struct LossSum {
  double loss = 0;
  std::int64_t micro_batches = 0;
};
LossSum loss_of(const GradientSum& sum);

// Adds the normalisation buffers after each micro-batch to `total`, if the model has any.
void add_buffers(const GradientSum& sum, std::span<float> total);

// Sums of gradients whose micro-batches several processes evaluate: which of them does, and how all come to the sum.
// Says of each chunk who evaluates it, and where the sum is then. A chunk is evaluated where its model is; at a model
// that is everywhere by the process of its workers, if all of the sum are one process's, and else by all in turn.
// Sums in it are submitted, and brought everywhere where each process has a part.
void place_chunks(GradientSum& sum, const std::shared_ptr<const Objective>& objective, Executor& executor,
                  DividedWork& divided);

// Submits the sum, and returns what can be read at all of `places`: itself, or its values, exchanged once. They are
// the same to the bit on all processes, but differ by rounding from what is read of the sum itself.
std::shared_ptr<GradientSum> sum_at(const std::shared_ptr<GradientSum>& sum, ProcessSet places,
                                    const std::shared_ptr<const Objective>& objective, Executor& executor,
                                    DividedWork* divided);

// What a nested chunk is read from: its sum, or where a process has but a part of it, its values.
const GradientSum& values_of(const GradientSum::Chunk& nested);

// Which elements of the flat vector an optimizer treats alike.
struct Stretch {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool excluded = false;  // weight decay does not concern it
};

// By ascending place, without gaps; none is empty. Of a layer-wise optimizer each is a tensor.
std::vector<Stretch> stretches_of(const Objective& objective, const Optimizer& optimizer);

// Whether a tensor's name contains one of these.
bool is_named(std::string_view tensor, const std::vector<std::string>& parts);

// Sums that are needed apart, evaluated together: those whose gradients are taken at one model share a forward and a
// backward pass (Objective::gradients_apart). What is particular to each is computed by who asks for it, when it does.
// Which of the sums are evaluated in one pass, each in one of the lists, which have an order in which they may be
// submitted. By models and micro-batches alone, never by the order of the sums: the same set gives the same bits.
std::vector<std::vector<std::size_t>> passes_of(std::span<const std::shared_ptr<GradientSum>> sums,
                                                const Objective& objective);

// Submits the evaluation of the sums of one pass; of a single one as submit_chunks does. `submitted` is called with the
// place of each sum as soon as all its tasks are.
void submit_pass(std::span<const std::shared_ptr<GradientSum>> sums, const std::shared_ptr<const Objective>& objective,
                 Executor& executor, const std::function<void(std::size_t)>& submitted);

// Wide gradients: sums whose large weights cancel, as those that decode a gradient code.
// The terms with micro-batches, each of these once per model, with the sum of its weights: what cancels is
// never computed, and weights that differ by rounding alone are made one, so that micro-batches are
// evaluated together. The result does not depend on the order of the terms.
std::vector<Gradient::Term> merge_weights(std::span<const Gradient::Term> terms);

// Micro-batches whose normalisation buffers are in the sum: the merged ones, and those of sums among `terms`.
std::int64_t count_buffers(std::span<const Gradient::Term> terms, std::span<const Gradient::Term> merged);

}  // namespace syncopate
