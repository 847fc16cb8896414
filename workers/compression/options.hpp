// How sums of gradients, or averages of models, are compressed: the table `compression` of a method, and what is then
// exchanged.
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

// One exchange of a compressed sum or average. Of an all-to-all the packet has as many chunks of one size as there are
// workers.
struct Exchange {
  Operation operation = Operation::all_reduce;
  Bytes packet{};  // of each worker
  bool operator==(const Exchange&) const = default;

  // As the network counts it: of an all-gather, all members' together.
  Bytes payload(int members) const {
    return operation == Operation::all_gather ? Bytes{members * packet.value()} : packet;
  }
};

// What a method exchanges that can be compressed. Averages under way go on while their workers compute. Messages carry
// gradients, or differences between models, to servers.
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
  bool of_averages = false;             // differences between models are compressed, not gradients
  bool of_messages = false;             // nor are sums, but what each worker sends to servers
  bool of_moments = false;              // nor are gradients, but what they make of the optimizer's first moment, of:
  double beta1 = 0.9;                   // this decay
  bool l2_scale = false;                // sign: times the root mean square, not the mean magnitude
  double ratio = 0.01;                  // sparsifiers: share of the entries that is kept
  std::vector<double> warmup_ratios{};  // instead in the first steps, of which each has as many
  Step warmup_steps{};                  // of all these together
  Scope scope = Scope::model;           // what is compressed by itself
  Pattern pattern = Pattern::gather;    // signs and levels: packets to all, or to owners who compress sums again
  bool error_feedback = true;           // what is not sent is added to the next gradient
  Units units = Units::gradient;        // of the residual: step units keep their weight when the rate changes
  Dropped dropped = Dropped::lost;      // what becomes of a computed gradient that a step leaves out
  double filter = 1;                    // ScaleCom, beta: share of what a step leaves that its residual takes up
  double momentum = 0;                  // majority: of the average whose signs are sent; DGC: of what is accumulated
  bool zeros_abstain = false;           // majority: values of 0 do not vote, else they vote plus
  bool masking = true;                  // DGC: a value that is sent loses its velocity
  bool nesterov = false;                // DGC: the velocity is Nesterov's
  std::optional<double> clip{};         // DGC: what a worker's mean gradient is clipped to; none: it is not
  ClippedBy clipped_by = ClippedBy::norm;
  bool clip_by_workers = false;           // DGC: that, over the root of the number of workers
  bool dense_vectors = false;             // DGC: tensors of one dimension are sent whole
  Threshold threshold = Threshold::zero;  // 1-bit SGD: from where on a value's bit is the other one
  int levels = 127;                       // QSGD, s: of each sign
  int bucket = 128;                       // QSGD: values with one norm; fp4: with one scale
  double range_std = 3;                   // int8: half the range of the bins, in standard deviations
  bool rounds_at_random = false;          // fp4: up or down; else to the nearest
  std::vector<std::string> tables{};      // rows: what the names of the matrices contain whose rows are sent
  int rank = 2;                           // PowerSGD
  double least_rate = 2;                  // PowerSGD: matrices that it makes smaller by less are sent as they are
  Factors factors = Factors::both;        // PowerSGD: of each step; or one, in turn
  bool warm_start = true;                 // PowerSGD: from the last step's factor
  Removed removed = Removed::own;         // PowerSGD: what a worker's residual is without
  bool returns_rejected = false;          // messages: what a server has not taken goes back into the residual
  std::string written{};                  // the key that only the model shows to be wrong, with its place

  // Whether packets depend on the model's tensors, beyond their number of values.
  bool needs_tensors() const {
    return kind == Kind::power || kind == Kind::rows || scope != Scope::model || dense_vectors ||
           (clip && clipped_by == ClippedBy::tensor_norm);
  }
  // Whether they depend on what is computed.
  bool follows_values() const { return kind == Kind::rows; }
  double ratio_at(Step step) const {
    if (step >= warmup_steps || warmup_ratios.empty()) return ratio;
    return warmup_ratios[static_cast<std::size_t>(step.value() * std::ssize(warmup_ratios) / warmup_steps.value())];
  }
};

// What a step of a method leaves out of its sum.
enum class Drops { nothing, uncomputed, computed };

// What compression must know of the method and the run.
struct CompressionContext {
  Compresses compresses = Compresses::nothing;
  std::string_view why_nothing{};  // as Traits::exchanged_whole
  bool averages_moments = false;   // together with models
  int slices = 1;                  // of the model: of averages, or that servers hold; they cut tensors
  bool rejects_messages = false;   // some of them may come too late, or too old
  Drops drops = Drops::nothing;
  bool time_only = false;
  std::optional<Step> steps_per_epoch{};  // none: without a data set, or not known for its faults
  bool has_epochs = steps_per_epoch.has_value();
};

// None where the table is not there. Where nothing can be compressed, or not so, or a model is missing that is
// needed: a fault.
std::optional<CompressionOptions> read_compression(Settings& method, const CompressionContext& context);

// What a table `compression` may name, by what is compressed, and why it may not name others.
struct CompressionRow {
  std::string_view name;      // `name = ...` in TOML
  std::string_view sentence;  // what it sends
  CompressionOptions::Kind kind;
};
std::span<const CompressionRow> compressions_of(Compresses what);

// Why a difference between models, or a message, cannot be compressed so; nothing for what is no such name.
std::string_view why_not(Compresses what, std::string_view name);

// Whether PowerSGD can make anything of a model smaller, as far as its tensors are known before it is made.
// The largest rank with which factors of one of the matrices at least have fewer numbers than it by more than
// `least_rate`; it is never above a matrix's smaller dimension. 0: there is none.
int largest_rank(std::span<const ParameterTensor> tensors, double least_rate);

// A fault of `compression.rank` where it is above that. Nothing where no tensors are known: the run says it then.
void check_rank(Settings& method, const std::optional<CompressionOptions>& options,
                std::span<const ParameterTensor> tensors);

// Whether a model has the tables whose rows are to be sent, as far as its tensors are known before it is made.
// A matrix whose name contains one of these.
bool is_table(const std::vector<std::string>& names, const ParameterTensor& tensor);
bool has_table(const std::vector<std::string>& names, std::span<const ParameterTensor> tensors);

// "a", "b", in quotes.
std::string quoted(const std::vector<std::string>& names);

// What would be right where there is none, with the names that there are.
std::string must_name_a_matrix(std::span<const ParameterTensor> tensors);

// A fault of `compression.tables` where there is none. Nothing where no tensors are known: the run says it then.
void check_tables(Settings& method, const std::optional<CompressionOptions>& options,
                  std::span<const ParameterTensor> tensors);

}  // namespace syncopate
