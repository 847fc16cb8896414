// The table `compression` of a method, and the exchanges that follow from it.
#pragma once

#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/config/settings.hpp"
#include "workers/time/network.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// One exchange of a compressed sum or average. The packet of an all-to-all has a chunk per worker, all of one size.
struct Exchange {
  Operation operation = Operation::all_reduce;
  Bytes packet{};  // of each worker
  bool operator==(const Exchange&) const = default;

  // The bytes that the network counts: of an all-gather, all members' together.
  Bytes payload(int members) const {
    return operation == Operation::all_gather ? Bytes{members * packet.value()} : packet;
  }
};

// The values that a method compresses. Averages under way go on while their workers compute. Messages carry gradients,
// or differences between models, to servers.
enum class Compresses { nothing, gradients, averages, averages_under_way, moments, messages };

struct CompressionOptions {
  enum class Kind { top_k, dgc, random_k, scalecom, sign, one_bit, majority, qsgd, power, int8, fp4, rows };
  enum class Scope { model, tensor, column };
  enum class Pattern { gather, two_phase };
  enum class Dropped { lost, folded };
  enum class Units { gradient, step };
  enum class Removed { own, shared };
  enum class Factors { both, in_turn };
  enum class Threshold { zero, mean };
  enum class ClippedBy { norm, tensor_norm, value };

  Kind kind = Kind::top_k;
  bool of_averages = false;             // of differences between models, not of gradients
  bool of_messages = false;             // of what each worker sends to servers, not of sums
  bool of_moments = false;              // of the optimizer's first moment with the gradients in it,
  double beta1 = 0.9;                   // which has this decay
  bool l2_scale = false;                // sign: times the root mean square, not the mean magnitude
  double ratio = 0.01;                  // sparsifiers: share of the values that is kept
  std::vector<double> warmup_ratios{};  // those of the first steps, each for the same number of steps
  Step warmup_steps{};                  // of all these together
  Scope scope = Scope::model;           // what is compressed by itself
  Pattern pattern = Pattern::gather;    // signs and levels: packets to all, or to owners who compress sums again
  bool error_feedback = true;           // what is not sent is added to the next gradient
  Units units = Units::gradient;        // of the residual: step units keep their weight when the rate changes
  Dropped dropped = Dropped::lost;      // computed gradients that a step leaves out
  double filter = 1;                    // ScaleCom, beta: share of a step's rest that its residual takes in
  double momentum = 0;                  // majority: of the average whose signs are sent; DGC: of the velocity
  bool zeros_abstain = false;           // majority: values of 0 do not vote, else they vote plus
  bool masking = true;                  // DGC: a value that is sent loses its velocity
  bool nesterov = false;                // DGC: the velocity is Nesterov's
  std::optional<double> clip{};         // DGC: bound of a worker's mean gradient; none: it is not clipped
  ClippedBy clipped_by = ClippedBy::norm;
  bool clip_by_workers = false;           // DGC: the bound is divided by the root of the number of workers
  bool dense_vectors = false;             // DGC: tensors of one dimension are sent whole
  Threshold threshold = Threshold::zero;  // 1-bit SGD: where a value's bit changes
  int levels = 127;                       // QSGD, s: of each sign
  int bucket = 128;                       // QSGD: values with one norm; fp4: with one scale
  double range_std = 3;                   // int8: half the range of the bins, in standard deviations
  bool rounds_at_random = false;          // fp4: up or down; else to the nearest
  std::vector<std::string> tables{};      // rows: parts of the names of matrices whose rows are sent
  int rank = 2;                           // PowerSGD
  double least_rate = 2;                  // PowerSGD: matrices that get smaller by less are sent whole
  Factors factors = Factors::both;        // PowerSGD: renewed at each step; or one, in turn
  bool warm_start = true;                 // PowerSGD: from the last step's factor
  Removed removed = Removed::own;         // PowerSGD: what is subtracted from a worker's residual
  bool returns_rejected = false;          // messages: rejected packets go back into the residual
  std::string written{};                  // place and text of the key that only a model can show to be wrong

  // Whether packets depend on the model's tensors, beyond the number of parameters.
  bool needs_tensors() const {
    return kind == Kind::power || kind == Kind::rows || scope != Scope::model || dense_vectors ||
           (clip && clipped_by == ClippedBy::tensor_norm);
  }
  // Whether the size of packets depends on the values.
  bool follows_values() const { return kind == Kind::rows; }
  double ratio_at(Step step) const {
    if (step >= warmup_steps || warmup_ratios.empty()) return ratio;
    return warmup_ratios[static_cast<std::size_t>(step.value() * std::ssize(warmup_ratios) / warmup_steps.value())];
  }
};

// The micro-batches that a step of a method leaves out of its sum.
enum class Drops { nothing, uncomputed, computed };

// Facts about the method and the run.
struct CompressionContext {
  Compresses compresses = Compresses::nothing;
  std::string_view why_nothing{};  // as Traits::exchanged_whole
  bool averages_moments = false;   // together with models
  int slices = 1;                  // of the model, averaged or held by servers one by one; they cut tensors
  bool rejects_messages = false;   // some come too late, or are too old
  Drops drops = Drops::nothing;
  bool time_only = false;
  std::optional<Step> steps_per_epoch{};  // none: no data set, or a faulty one
  bool has_epochs = steps_per_epoch.has_value();
};

// None if the table is absent. A fault if nothing can be compressed, not with this kind, or not without a model.
std::optional<CompressionOptions> read_compression(Settings& method, const CompressionContext& context);

// The kinds that a table `compression` can name, by what is compressed.
struct CompressionRow {
  std::string_view name;      // `name = ...` in TOML
  std::string_view sentence;  // what it sends
  CompressionOptions::Kind kind;
};
std::span<const CompressionRow> compressions_of(Compresses what);

// Checks of `compression.rank` and `compression.tables`, for tensors that are known before the model exists: a fault if
// factors of that rank make no matrix smaller, or if no matrix is named so. Without tensors the run finds it out.
void check_rank(Settings& method, const std::optional<CompressionOptions>& options,
                std::span<const ParameterTensor> tensors);
void check_tables(Settings& method, const std::optional<CompressionOptions>& options,
                  std::span<const ParameterTensor> tensors);

// Whether a tensor is a matrix whose name contains one of these; and whether any is.
bool is_table(const std::vector<std::string>& names, const ParameterTensor& tensor);
bool has_table(const std::vector<std::string>& names, std::span<const ParameterTensor> tensors);

// `"a", "b"`
std::string quoted(const std::vector<std::string>& names);

// The text of the fault if there is none; lists the names of the model's matrices.
std::string must_name_a_matrix(std::span<const ParameterTensor> tensors);

}  // namespace syncopate
