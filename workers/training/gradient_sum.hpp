// The evaluation of a sum of gradient promises, shared by all its consumers.
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

// A simulation divided among several processes: which process computes which values, and which values are sent.
//
// All processes run the same programs in the same virtual time, and so submit the same arithmetic in the same order.
// Every value has places: the processes where it is computed and stored. They are decided at submission and depend only
// on earlier submissions, so that all processes know them. Other processes have no memory for it.
//
// - Workers are assigned to processes in equal blocks by rank. Values that only one worker asks for (its own steps, its
//   mixture of other models) are computed at its process. Values that servers ask for, and results of collectives, are
//   computed without communication wherever the inputs are, or where they are needed.
// - Micro-batches of one process's workers are evaluated there. Those of several processes, at a model that is
//   everywhere, are cut into the same chunks as for one process and divided evenly. A sum with parts at several
//   processes is exchanged once: each process sends the sum of its parts, and all add these up in the order of the
//   processes. Averages of models work in the same way.
// - A value that is needed elsewhere is sent there, and both processes keep it.
//
// Values that are everywhere have the same bits: all processes compute them from equal bits by equal instructions, or
// receive them. Compared with a run in one process, sums are grouped, and so rounded, differently.
//
// Only the submitting thread may call the members, except `self` and `processes`.
class DividedWork {
 public:
  // The arguments must outlive it, up to leave().
  DividedWork(ProcessGroup& group, Executor& executor, int workers);

  int processes() const { return group_.size(); }
  int self() const { return group_.self(); }
  bool is_here(ProcessSet places) const { return places.has(self()); }
  int process_of(Rank worker) const;
  // Where the values that this participant asks for are computed: a worker's process; for a server, everywhere.
  ProcessSet place_of(Rank rank) const {
    return rank.value < workers_ ? place_of_samples(rank) : ProcessSet::everywhere();
  }
  ProcessSet place_of_samples(Rank worker) const { return normalised(ProcessSet::only(process_of(worker))); }

  // The processes of the participant for which work is submitted now.
  ProcessSet asker() const { return asker_; }
  ProcessSet exchange_asker(ProcessSet places) { return std::exchange(asker_, places); }  // returns the previous one

  // Each process in `from` sends a payload to all of `to`. A process in `from` runs `give` after the prerequisites; one
  // in `to` runs `take` with all payloads, in the order of the processes. Returns a task that ends after `take`, or
  // null.
  std::shared_ptr<Task> exchange(ProcessSet from, ProcessSet to, std::span<const std::shared_ptr<Task>> prerequisites,
                                 std::function<Payload()> give, std::function<void(std::vector<Payload>)> take);
  // The same with numbers, which all processes receive.
  using Numbers = std::vector<double>;
  std::shared_ptr<Task> exchange_numbers(ProcessSet from, std::span<const std::shared_ptr<Task>> prerequisites,
                                         std::function<Numbers()> give,
                                         std::function<void(const std::vector<Numbers>&)> take);
  // The same, but runs `give` at once on this thread. Returns the numbers of all processes in `from`.
  std::vector<Numbers> exchanged_numbers(ProcessSet from, const std::function<Numbers()>& give);

  // Call it once all tasks have ended: returns when the group holds no payload from them any more.
  void settle() { group_.settle(); }

  // Sends the cell to all of `places` that do not have it.
  void bring(const CellPtr& cell, ProcessSet places);

  // Which of `count` equal parts this process computes if all of `places` divide them.
  std::vector<bool> dealt(std::size_t count, ProcessSet places) const;

  // Replaces the set of all processes by `everywhere`.
  ProcessSet normalised(ProcessSet places) const { return places.covers(all()) ? ProcessSet::everywhere() : places; }
  ProcessSet all() const { return ProcessSet::first(processes()); }

  // Call it before destruction: from then on no exchanged value reaches the executor.
  void leave() { group_.forget(); }

 private:
  ProcessGroup& group_;
  Executor& executor_;
  int workers_;
  ProcessSet asker_;
  std::uint64_t exchanges_ = 0;
};

// A vector as a payload that owns it; the floats in such a payload.
Payload payload_of(FlatVector values);
inline const float* floats(const Payload& payload) { return static_cast<const float*>(payload.data); }

class KeptOfPass;

struct GradientSum {
  // A chunk: micro-batches that are evaluated together, as one large batch. Chunks are cut from the sorted list by
  // fixed rules, so the order of summation depends on nothing else.
  struct Chunk {
    ModelStatePtr at{};  // null once its evaluation is submitted
    std::vector<MicroBatch> micro_batches{};
    double scale = 1;
    PartialBackward layers{};               // if some are missing, neither losses nor buffers count
    std::shared_ptr<GradientSum> nested{};  // instead of micro-batches: another sum, to be multiplied by scale
    PartialGradient result{};
    // The result of a pass that several sums share; its values are computed when first asked for. Null: `result` has
    // all.
    std::shared_ptr<const KeptOfPass> kept{};
    int evaluator = 0;  // once submitted: the process that evaluates the micro-batches, if several divide the work

    const std::vector<GradientSegment>& segments() const;  // from any thread, once the pass is over
  };

  // Multiplies elements up to `end` by `factor`.
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
  std::vector<MicroBatch> carried;           // micro-batches known to be in chunks that are values alone
  std::vector<Factor> factors;               // consecutive, up to P; empty: all are 1
  std::vector<std::shared_ptr<Task>> tasks;  // one per chunk once submitted
  bool submitted = false;
  // The processes that have all chunks, once submitted, and can read the sum. None: each process has some.
  ProcessSet at;
  std::shared_ptr<GradientSum> whole;  // the sum's values everywhere, once they are needed
  bool is_reported = false;            // Training::Options::on_kept has been called
  bool wide = false;                   // adds up in double precision
  std::int64_t micro_batches = 0;      // in the sum of the normalisation buffers
  // Strong references on purpose: while a state may still be looked up here, the next step must not take over its
  // memory. Looked up, never iterated.
  std::map<Use, ModelStatePtr> uses;
};

// Sorts the gradient's terms and cuts them into chunks. A gradient that is already one shared sum (a wide one, if it is
// wide) is returned unchanged, and `scale` receives its factor (1 otherwise). If work is divided, micro-batches of
// several processes' workers are cut into a number of chunks that is a multiple of the number of processes.
std::shared_ptr<GradientSum> fix_sum(const Gradient& gradient, const Objective& objective, double& scale,
                                     const DividedWork* divided = nullptr);

// Appends the micro-batches in a sum that this process knows of, without those present only for their statistics.
void append_micro_batches(const GradientSum& sum, std::vector<MicroBatch>& out);
void append_micro_batches(const Gradient& gradient, std::vector<MicroBatch>& out);

// Evaluates the chunk at the model that was taken out of it; null: it is nested, or already has values.
void evaluate_chunk(GradientSum::Chunk& chunk, const ModelStatePtr& at, const Objective& objective);

// Keeps only the last layers of an evaluated sum, as a deadline does.
void cut_sum(GradientSum& sum, const PartialBackward& layers, const Objective& objective);

// Submits the evaluation of all chunks, once. Chunks of other processes are skipped.
void submit_chunks(const std::shared_ptr<GradientSum>& sum, const std::shared_ptr<const Objective>& objective,
                   Executor& executor, DividedWork* divided = nullptr);

// out[i] = scale x the sum's element begin + i; all chunks must be evaluated. A wide sum is rounded once, at the end.
void write_block(const GradientSum& sum, double scale, std::size_t begin, std::span<float> out);

// L2 norm of scale x the sum's elements [begin, end), as write_block writes them.
double norm_of(const GradientSum& sum, double scale, std::size_t begin, std::size_t end);

// Factor that limits a gradient of this norm to `most`, as torch.nn.utils.clip_grad_norm_ with its guard against zero.
inline double clipping_factor(double norm, double most) { return std::min(1.0, most / (norm + 1e-6)); }

// The elements' address if they are already contiguous in memory; else null.
const float* block_in_memory(const GradientSum& sum, double scale, std::size_t begin, std::size_t size);

// Whether scale x the sum is a single chunk that a pass has kept. Only then call the function below: out (P,) += the
// sum, without storing its values.
bool is_kept_of_pass(const GradientSum& sum, double scale);
void add_kept_of_pass(const GradientSum& sum, float* out);

// As write_block, in double precision: high[i] + low[i]. Both of equal size.
void write_wide_block(const GradientSum& sum, double scale, std::size_t begin, std::span<float> high,
                      std::span<float> low);

// Sums over all chunks that were evaluated in this process.
struct LossSum {
  double loss = 0;
  std::int64_t micro_batches = 0;
};
LossSum loss_of(const GradientSum& sum);

// Adds the normalisation buffers after each micro-batch to `total`, if the model has any.
void add_buffers(const GradientSum& sum, std::span<float> total);

// Submits the sum. Returns a sum that can be read at all of `places`: the same, or its values, exchanged once. The
// exchanged values have the same bits on all processes, but differ by rounding from the sum itself.
std::shared_ptr<GradientSum> sum_at(const std::shared_ptr<GradientSum>& sum, ProcessSet places,
                                    const std::shared_ptr<const Objective>& objective, Executor& executor,
                                    DividedWork* divided);

// Elements of the flat vector that an optimizer treats alike.
struct ParameterRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool excluded = false;  // from weight decay
};

// In ascending order, without gaps; none is empty. For a layer-wise optimizer each is a tensor.
std::vector<ParameterRange> ranges_of(const Objective& objective, const Optimizer& optimizer);

// Whether a tensor's name contains one of these.
bool is_named(std::string_view tensor, const std::vector<std::string>& parts);

// Groups sums into passes. Sums whose gradients are taken at one model share a forward and a backward pass
// (Objective::batched_gradients); each sum's own part is computed when asked for. Returns lists of indices of sums that
// share a pass, each sum in one list, in an order in which they may be submitted. The lists depend only on models and
// micro-batches, never on the order of the sums: the same set gives the same bits.
std::vector<std::vector<std::size_t>> passes_of(std::span<const std::shared_ptr<GradientSum>> sums,
                                                const Objective& objective);

// Submits the evaluation of the sums of one pass; a single one as submit_chunks does. `submitted` is called with the
// index of each sum as soon as all its tasks are submitted.
void submit_pass(std::span<const std::shared_ptr<GradientSum>> sums, const std::shared_ptr<const Objective>& objective,
                 Executor& executor, const std::function<void(std::size_t)>& submitted);

// Merges the terms of a wide gradient, a sum with large weights that cancel, such as a decoded gradient code. Returns
// the terms with micro-batches, each of these once per model with the sum of its weights, whatever the terms' order.
// Micro-batches that cancel are never computed. Those whose weights differ only by rounding are evaluated together.
std::vector<Gradient::Term> merge_weights(std::span<const Gradient::Term> terms);

}  // namespace syncopate
