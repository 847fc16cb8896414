// The evaluation of a sum of gradient promises, shared by all who consume it.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "workers/training/divided_work.hpp"
#include "workers/training/executor.hpp"
#include "workers/training/gradient.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// What a pass that several sums shared has kept of a chunk, until somebody asks for its values (sums_apart.hpp).
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

}  // namespace syncopate
