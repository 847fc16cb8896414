// The evaluation of a sum of gradient promises, shared by all who consume it.
#pragma once

#include <algorithm>
#include <compare>
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
// order. Every value has places, the processes where it is computed and kept. They are decided at submission, by
// earlier submissions alone, so that all processes know them. Elsewhere it has no memory.
//
// - Workers are dealt to processes in equal blocks by rank. What a worker asks for alone (its own steps, its mixture of
//   others' models) is computed at its process. What servers ask for, and results of collectives, are computed wherever
//   the inputs are, without communication, or where they are needed.
// - Micro-batches of one process's workers are evaluated there. Those of several, at a model that is everywhere, are
//   cut into the same chunks as for one process and divided evenly. A sum with parts at several processes is exchanged
//   once: each gives the sum of its parts, and all add these up in the order of the processes. So are averages of
//   models.
// - A value that is needed where it is not is sent there, and kept by both.
//
// Whatever is everywhere has the same bits: all compute it from equal bits by equal instructions, or it is sent.
// Compared with one process, sums are grouped differently, and so rounded differently.
//
// All members but `self` and `processes` are for the submitting thread.
class DividedWork {
 public:
  // The arguments outlive it, up to leave().
  DividedWork(ProcessGroup& group, Executor& executor, int workers);

  int processes() const { return group_.size(); }
  int self() const { return group_.self(); }
  bool is_here(ProcessSet places) const { return places.has(self()); }
  int process_of(Rank worker) const;
  // Where the values that this participant asks for belong: a worker's process; for a server, everywhere.
  ProcessSet place_of(Rank rank) const {
    return rank.value < workers_ ? place_of_samples(rank) : ProcessSet::everywhere();
  }
  ProcessSet place_of_samples(Rank worker) const { return normalised(ProcessSet::only(process_of(worker))); }

  // For whom work is submitted now.
  ProcessSet asker() const { return asker_; }
  ProcessSet exchange_asker(ProcessSet places) { return std::exchange(asker_, places); }  // returns the one before

  // Each of `from` gives a payload to all of `to`. A process in `from` runs `give` after the prerequisites; one in `to`
  // runs `take` with all payloads, in the order of the processes. Returns a task that ends after `take`, or null.
  std::shared_ptr<Task> exchange(ProcessSet from, ProcessSet to, std::span<const std::shared_ptr<Task>> prerequisites,
                                 std::function<Payload()> give, std::function<void(std::vector<Payload>)> take);
  // The same with numbers, which all take.
  using Numbers = std::vector<double>;
  std::shared_ptr<Task> exchange_numbers(ProcessSet from, std::span<const std::shared_ptr<Task>> prerequisites,
                                         std::function<Numbers()> give,
                                         std::function<void(const std::vector<Numbers>&)> take);
  // The same, with `give` at once on this thread; returns what all give.
  std::vector<Numbers> exchanged_numbers(ProcessSet from, const std::function<Numbers()>& give);

  // Once all tasks have ended: returns when the group holds nothing more that they have given.
  void settle() { group_.settle(); }

  // From then on the cell is at all of `places` too.
  void bring(const CellPtr& cell, ProcessSet places);

  // Which of `count` equal parts are this process's where all of `places` divide them.
  std::vector<bool> dealt(std::size_t count, ProcessSet places) const;

  // All of the processes is everywhere.
  ProcessSet normalised(ProcessSet places) const { return places.covers(all()) ? ProcessSet::everywhere() : places; }
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

// A vector as a payload that owns it, and the floats in such a payload.
Payload payload_of(FlatVector values);
inline const float* floats(const Payload& payload) { return static_cast<const float*>(payload.data); }

class KeptOfPass;

struct GradientSum {
  // A chunk: micro-batches that are evaluated together, as one large batch. Chunks are cut from the
  // sorted list by fixed rules, so the order of summation depends on nothing else.
  struct Chunk {
    ModelStatePtr at{};  // until its evaluation is submitted
    std::vector<MicroBatch> micro_batches{};
    double scale = 1;
    PartialBackward layers{};               // not all: neither losses nor buffers count
    std::shared_ptr<GradientSum> nested{};  // instead of micro-batches: another sum, times scale
    PartialGradient result{};
    // From a pass that several sums share, made into values when these are first asked for. Null: `result` has all.
    std::shared_ptr<const KeptOfPass> kept{};
    int evaluator = 0;  // of micro-batches once submitted: the process, where several divide the work

    const std::vector<GradientSegment>& segments() const;  // from any thread, once the pass is over
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
  std::vector<MicroBatch> carried;           // known to be in chunks that are values alone
  std::vector<Factor> factors;               // one after another up to P; empty: all are 1
  std::vector<std::shared_ptr<Task>> tasks;  // one per chunk once submitted
  bool submitted = false;
  // Where all chunks are, once submitted: where it can be read. None: each process has some.
  ProcessSet at;
  std::shared_ptr<GradientSum> whole;  // the same as values that are everywhere, once they are needed
  bool is_reported = false;            // Training::Options::on_kept has been called
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

// Appends the micro-batches in a sum, as far as this process knows them, without those that are there for statistics.
void append_micro_batches(const GradientSum& sum, std::vector<MicroBatch>& out);
void append_micro_batches(const Gradient& gradient, std::vector<MicroBatch>& out);

// At the model that the chunk has been taken from; null: it is nested, or given as values.
void evaluate_chunk(GradientSum::Chunk& chunk, const ModelStatePtr& at, const Objective& objective);

// Leaves the last layers of an evaluated sum, as a deadline does.
void cut_sum(GradientSum& sum, const PartialBackward& layers, const Objective& objective);

// Submits the evaluation of all chunks, once; of those that are another process's, nothing.
void submit_chunks(const std::shared_ptr<GradientSum>& sum, const std::shared_ptr<const Objective>& objective,
                   Executor& executor, DividedWork* divided = nullptr);

// out[i] = scale x the sum's element begin + i; all chunks must be evaluated. A wide sum is rounded once, at the end.
void write_block(const GradientSum& sum, double scale, std::size_t begin, std::span<float> out);

// L2 norm of scale x the sum's elements [begin, end), as write_block writes them.
double norm_of(const GradientSum& sum, double scale, std::size_t begin, std::size_t end);

// Factor that limits a gradient of this norm to `most`, as torch.nn.utils.clip_grad_norm_ with its guard against zero.
inline double clipping_factor(double norm, double most) { return std::min(1.0, most / (norm + 1e-6)); }

// Where these elements stand in memory already; null: nowhere, or in pieces.
const float* block_in_memory(const GradientSum& sum, double scale, std::size_t begin, std::size_t size);

// Whether scale x the sum is one chunk that a pass has kept. Only then: out (P,) += the sum, without making its values.
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

// Submits the sum, and returns a sum that can be read at all of `places`: itself, or its values, exchanged once. These
// have the same bits on all processes, but differ by rounding from the sum itself.
std::shared_ptr<GradientSum> sum_at(const std::shared_ptr<GradientSum>& sum, ProcessSet places,
                                    const std::shared_ptr<const Objective>& objective, Executor& executor,
                                    DividedWork* divided);

// Elements of the flat vector that an optimizer treats alike.
struct ParameterRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool excluded = false;  // from weight decay
};

// By ascending place, without gaps; none is empty. For a layer-wise optimizer each is a tensor.
std::vector<ParameterRange> ranges_of(const Objective& objective, const Optimizer& optimizer);

// Whether a tensor's name contains one of these.
bool is_named(std::string_view tensor, const std::vector<std::string>& parts);

// Sums that are needed apart, evaluated together: those whose gradients are taken at one model share a forward and a
// backward pass (Objective::batched_gradients); each one's own part is computed when it is asked for. Returns lists of
// sums that share a pass, each sum in one list, in an order in which they may be submitted. They depend on models and
// micro-batches alone, never on the order of the sums: the same set gives the same bits.
std::vector<std::vector<std::size_t>> passes_of(std::span<const std::shared_ptr<GradientSum>> sums,
                                                const Objective& objective);

// Submits the evaluation of the sums of one pass, or of a single one as submit_chunks does. `submitted` is called with
// the index of each sum as soon as all its tasks are submitted.
void submit_pass(std::span<const std::shared_ptr<GradientSum>> sums, const std::shared_ptr<const Objective>& objective,
                 Executor& executor, const std::function<void(std::size_t)>& submitted);

// Wide gradients are sums whose large weights cancel, as those that decode a gradient code. Returns the terms with
// micro-batches, each of these once per model, with the sum of its weights, whatever the terms' order. Micro-batches
// that cancel are never computed; those whose weights differ by rounding alone are evaluated together.
std::vector<Gradient::Term> merge_weights(std::span<const Gradient::Term> terms);

}  // namespace syncopate
