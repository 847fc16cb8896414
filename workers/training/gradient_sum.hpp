// A sum of gradient promises, evaluated once for all its holders, and the division of this work among processes.
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

// Decides, if several processes divide a simulation, which process computes which values and which values are sent.
//
// Every value has places: the processes where it is computed and stored. Other processes allocate no memory for it.
// workers/README.md says why every process knows the places of all values.
//
// - Workers are assigned to processes in equal blocks by rank. Values that only one worker requests (its own steps, its
//   mixture of other models) are computed at that worker's process. Values that servers request, and results of
//   collectives, are computed where their inputs are, without communication, or where they are needed.
// - If all micro-batches of a sum belong to workers of one process, that process evaluates them. Otherwise, if all
//   processes have the model, the micro-batches are cut into the same chunks as in a run with one process, and the
//   chunks are divided evenly. A sum with parts at several processes is exchanged once. Each process sends the sum of
//   its parts, and all processes add these sums in the order of the processes. Averages of models work in the same way.
// - A value that another process needs is sent to that process. Afterwards both processes have it.
//
// Copies of a value have the same bits in all processes, because they are received, or computed from equal bits with
// equal instructions. Compared with a run in one process, sums are grouped and therefore rounded differently.
//
// Only the submitting thread may call the members, except `self` and `processes`.
class DividedWork {
 public:
  // The arguments must exist until leave() is called.
  DividedWork(ProcessGroup& group, Executor& executor, int workers);

  int processes() const { return group_.size(); }
  int self() const { return group_.self(); }
  bool is_here(ProcessSet places) const { return places.has(self()); }
  int process_of(Rank worker) const;
  // Where the values that a participant requests are computed: a worker's process; for a server, everywhere.
  ProcessSet place_of(Rank rank) const {
    return rank.value < workers_ ? place_of_samples(rank) : ProcessSet::everywhere();
  }
  ProcessSet place_of_samples(Rank worker) const { return normalised(ProcessSet::only(process_of(worker))); }

  // Each process in `from` sends a payload to all processes in `to`. A sender runs `give` after the prerequisites. A
  // receiver runs `take` with all payloads, in the order of the processes. Returns a task that ends after `take`; null
  // if this process does not receive.
  std::shared_ptr<Task> exchange(ProcessSet from, ProcessSet to, std::span<const std::shared_ptr<Task>> prerequisites,
                                 std::function<Payload()> give, std::function<void(std::vector<Payload>)> take);
  // Like exchange(), with numbers, which all processes receive.
  using Numbers = std::vector<double>;
  std::shared_ptr<Task> exchange_numbers(ProcessSet from, std::span<const std::shared_ptr<Task>> prerequisites,
                                         std::function<Numbers()> give,
                                         std::function<void(const std::vector<Numbers>&)> take);
  // Like exchange_numbers(), but runs `give` now, on this thread, and waits. Returns the numbers of all of `from`.
  std::vector<Numbers> exchanged_numbers(ProcessSet from, const std::function<Numbers()>& give);

  // Returns when the group no longer holds a payload of a task. Call it after all tasks have ended.
  void settle() { group_.settle(); }

  // Sends the cell to those of `places` that do not have it.
  void bring(const CellPtr& cell, ProcessSet places);

  // Divides `count` equal parts among the processes `places`. Returns for each part whether this process computes it.
  std::vector<bool> dealt(std::size_t count, ProcessSet places) const;

  // Replaces the set of all processes by `everywhere`.
  ProcessSet normalised(ProcessSet places) const { return places.covers(all()) ? ProcessSet::everywhere() : places; }
  ProcessSet all() const { return ProcessSet::first(processes()); }

  // After this call no exchanged value reaches the executor. Call it before destruction.
  void leave() { group_.forget(); }

 private:
  ProcessGroup& group_;
  Executor& executor_;
  int workers_;
  std::uint64_t exchanges_ = 0;
};

// payload_of() makes a payload that owns the vector; floats() returns the floats in it.
Payload payload_of(FlatVector values);
inline const float* floats(const Payload& payload) { return static_cast<const float*>(payload.data); }

class KeptOfPass;

struct GradientSum {
  // A term whose micro-batches are evaluated together, as one large batch, or a nested sum. `at` is null once its
  // evaluation is submitted. Chunks are cut from the sorted list of micro-batches by fixed rules, so the order of
  // summation depends only on the list.
  struct Chunk : Gradient::Term {
    PartialGradient result{};
    // The chunk's part of a forward and backward pass that several sums share; its values are computed when first
    // requested. Null: `result` has all values.
    std::shared_ptr<const KeptOfPass> kept{};
    int evaluator = 0;  // the process that evaluates the chunk, if several processes divide the work; set at submission

    const std::vector<GradientSegment>& segments() const;  // any thread may call it after the pass
  };

  // Multiplies the elements from the preceding factor's `end` up to this `end` by `factor`.
  struct Factor {
    std::size_t end;
    double factor;
  };

  // Identifies an optimizer step along this sum, so that steps with equal inputs return the same state.
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
  std::vector<MicroBatch> carried;           // micro-batches known to be in chunks that only have values
  std::vector<Factor> factors;               // consecutive ranges up to P; empty: all factors are 1
  std::vector<std::shared_ptr<Task>> tasks;  // evaluate the chunks; set at submission
  bool submitted = false;
  // Set at submission: the processes that have all chunks and can read the sum. Empty: no process has all of them.
  ProcessSet at;
  std::shared_ptr<GradientSum> whole;  // the sum's values, exchanged once they are needed everywhere
  bool is_reported = false;            // whether Training::Options::on_kept has been called
  bool wide = false;                   // whether it is added up in double precision
  std::int64_t micro_batches = 0;      // number of micro-batches in the sum of normalisation buffers
  // States after steps along this sum. The references are strong on purpose: while a state can be looked up here, a
  // later step must not reuse its memory. Never iterated.
  std::map<Use, ModelStatePtr> uses;
};

struct ScaledSum {
  std::shared_ptr<GradientSum> sum;
  double scale = 1;
};

// Sorts the gradient's terms and cuts them into chunks. If the gradient is a single shared sum already (for a wide
// gradient, a wide sum), returns that sum and its factor. If work is divided, micro-batches of workers of several
// processes are cut into a number of chunks that is a multiple of the number of processes.
ScaledSum fix_sum(const Gradient& gradient, const Objective& objective, const DividedWork* divided = nullptr);

// Evaluates the chunk at `at`, the model that was moved out of it. Does nothing if `at` is null, because the chunk is
// nested or already has values.
void evaluate_chunk(GradientSum::Chunk& chunk, const ModelStatePtr& at, const Objective& objective);

// Keeps only `layers` of an evaluated sum, as if a deadline had cut its backward pass.
void cut_sum(GradientSum& sum, const PartialBackward& layers, const Objective& objective);

// Submits the evaluation of all chunks, unless it is already submitted. Skips chunks that other processes evaluate.
void submit_chunks(const std::shared_ptr<GradientSum>& sum, const std::shared_ptr<const Objective>& objective,
                   Executor& executor, DividedWork* divided = nullptr);

// Sets out[i] to scale x element begin + i of the sum. All chunks must have been evaluated. A wide sum is rounded once,
// at the end.
void write_block(const GradientSum& sum, double scale, std::size_t begin, std::span<float> out);

// The L2 norm of scale x elements [begin, end) of the sum, as write_block writes them.
double norm_of(const GradientSum& sum, double scale, std::size_t begin, std::size_t end);

// The factor that limits a gradient of this norm to `most`, with the guard against zero of
// torch.nn.utils.clip_grad_norm_.
inline double clipping_factor(double norm, double most) { return std::min(1.0, most / (norm + 1e-6)); }

// Returns the address of `size` elements of scale x the sum from `begin` on; null if they are not contiguous in memory.
const float* block_in_memory(const GradientSum& sum, double scale, std::size_t begin, std::size_t size);

// Whether scale x the sum is a single chunk of a pass that several sums share. Only in that case call add_kept_of_pass,
// which adds the sum to out (P,) without storing its values.
bool is_kept_of_pass(const GradientSum& sum, double scale);
void add_kept_of_pass(const GradientSum& sum, float* out);

// Like write_block, but in double precision, as high[i] + low[i]. `high` and `low` have equal sizes.
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

// The values of a sum are one vector of up to three parts: the sum of gradients as floats; for a wide sum, the
// double-precision sum minus these floats; and the sum of the normalisation buffers. write_values() writes scale x the
// sum. read_values() gives the values to a new sum, which has one chunk, or two if it is wide.
inline std::size_t values_size(const Objective& objective, bool wide) {
  return (wide ? 2 : 1) * objective.parameters() + objective.buffers();
}
void write_values(const GradientSum& sum, double scale, const Objective& objective, bool wide, float* out);
void read_values(GradientSum& sum, const Payload& values, const Objective& objective);

// Submits the sum and returns a sum that can be read at all of `places`: the same one, if all places have it. Otherwise
// its values are exchanged, once, and the returned sum reads these. Exchanged values have the same bits in all
// processes, but differ by rounding from the sum itself.
std::shared_ptr<GradientSum> sum_at(const std::shared_ptr<GradientSum>& sum, ProcessSet places,
                                    const std::shared_ptr<const Objective>& objective, Executor& executor,
                                    DividedWork* divided);

// A range of the flat vector whose elements an optimizer treats in the same way.
struct ParameterRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool excluded = false;  // from weight decay
  std::size_t rows = 0;   // rows, if the optimizer updates it as a whole matrix; otherwise 0
};

// Returns the ranges, ascending, without gaps, none of them empty. For a layer-wise optimizer each range is a tensor.
std::vector<ParameterRange> ranges_of(const Objective& objective, const Optimizer& optimizer);

// Whether a tensor's name contains one of these strings.
bool is_named(std::string_view tensor, const std::vector<std::string>& parts);

// Groups sums into passes. Sums at the same model share a forward and a backward pass (Objective::batched_gradients);
// the part of each sum is computed when it is requested. Returns one list of indices of sums per pass, in an order in
// which the passes may be submitted; each sum is in one list. The lists depend only on models and micro-batches, and
// not on the order of the sums, so the same set of sums gives the same bits.
std::vector<std::vector<std::size_t>> passes_of(std::span<const std::shared_ptr<GradientSum>> sums,
                                                const Objective& objective);

// Submits the evaluation of the sums of one pass. A single sum is submitted as by submit_chunks.
void submit_pass(std::span<const std::shared_ptr<GradientSum>> sums, const std::shared_ptr<const Objective>& objective,
                 Executor& executor);

// Merges the terms of a wide gradient, a sum with large weights that cancel, such as a decoded gradient code. Returns
// one term per model and micro-batch with the sum of its weights, which does not depend on the order of the terms.
// Micro-batches whose weights cancel are left out. Weights that differ only by rounding become equal, so that their
// micro-batches are evaluated together.
std::vector<Gradient::Term> merge_weights(std::span<const Gradient::Term> terms);

}  // namespace syncopate
