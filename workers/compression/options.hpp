// The table `compression` of a method: the options that all kinds of compressors share. Keys of a single kind are next
// to its code.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "workers/base/units.hpp"
#include "workers/config/settings.hpp"
#include "workers/time/network.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

class Compressor;        // workers/compression/compressor.hpp
struct CompressorInput;  // compressor.hpp, too
struct Part;             // compressor.hpp, too

// One exchange of a compressed sum or average. The packet of an all-to-all has one chunk per worker, all of equal size.
struct Exchange {
  Operation operation = Operation::all_reduce;
  Bytes packet{};  // bytes per worker
  bool operator==(const Exchange&) const = default;

  // The bytes that the network counts; for an all-gather, the bytes of all members together.
  Bytes payload(int members) const {
    return operation == Operation::all_gather ? Bytes{members * packet.value()} : packet;
  }
};

// The values that a method compresses. Averages "under way" continue while their workers compute. Messages carry
// gradients, or differences between models, to servers.
enum class Compresses { nothing, gradients, averages, averages_under_way, moments, messages };

struct CompressionOptions {
  enum class Pattern { gather, two_phase };
  enum class Dropped { lost, folded };
  enum class Units { gradient, step };
  // A worker compresses its gradient plus the values that it has not sent before. With estimates (EF21) it compresses
  // its gradient minus the sum of all that it has sent.
  enum class Feedback { residual, estimate };

  std::string_view kind{};
  Compresses compresses = Compresses::gradients;
  double beta1 = 0.9;                 // for moments: decay of the first moment
  Pattern pattern = Pattern::gather;  // packets go to all workers, or to owners of chunks, which compress sums again
  bool error_feedback = true;         // adds unsent values to the next gradient
  Feedback feedback = Feedback::residual;
  double residual_decay = 1;  // share of the unsent values that is kept at each exchange
  // Without error feedback, or with estimates: decay of a moving average of gradients, which is sent instead of the
  // last gradient.
  double momentum = 0;
  Units units = Units::gradient;  // unit of the residual; values in step units keep their weight when the rate changes
  Dropped dropped = Dropped::lost;  // fate of computed gradients that a step leaves out
  bool returns_rejected = false;    // messages: rejected packets go back into the residual
  Step warmup_steps{};              // number of initial steps during which exchanges change

  // Set by the kind. Without `make` the kind's keys ask for no compression.
  std::function<std::shared_ptr<const Compressor>(const CompressorInput&)> make{};
  bool needs_tensors = false;   // packets depend on the model's tensors, not only on the number of parameters
  bool follows_values = false;  // the size of packets depends on the values
  // Reports faults in the method's table that only the model's tensors reveal.
  std::function<void(Settings& method, const std::vector<Part>& tensors)> check{};

  // The factor of the unsent values at the next exchange.
  float of_residual() const { return error_feedback ? static_cast<float>(residual_decay) : 0.0f; }
  bool estimates() const { return feedback == Feedback::estimate; }
  // The number of vectors that a worker keeps besides the compressor's: the estimate, what the last step compressed,
  // and a moving average of gradients.
  std::size_t vectors_of_estimate() const { return !estimates() ? 0 : momentum > 0 ? 3 : 2; }

  bool of_averages() const {
    return compresses == Compresses::averages || compresses == Compresses::averages_under_way;
  }
  bool of_messages() const { return compresses == Compresses::messages; }
  bool of_moments() const { return compresses == Compresses::moments; }
};

// Which micro-batches a step of a method may leave out of its sum.
enum class Drops { nothing, uncomputed, computed };

// Facts about the method and the run.
struct CompressionContext {
  Compresses compresses = Compresses::nothing;
  std::string_view why_nothing{};  // Traits::exchanged_whole of the method
  bool averages_moments = false;   // averages moments together with models
  int slices = 1;  // parts of the model that are averaged, or held by servers, separately; they cut tensors
  bool rejects_messages = false;  // the server rejects some messages: too late, or too old
  Drops drops = Drops::nothing;
  bool time_only = false;
  std::optional<Step> steps_per_epoch{};  // empty: no data set, or a faulty one
  bool has_epochs = steps_per_epoch.has_value();
  bool clips_gradients = false;  // training.clip_norm is not 0
};

// Returns nullopt if the table is absent. Reports a fault if the method sends nothing that this kind, or any, can
// compress, or if the kind needs tensors in a time-only run.
std::optional<CompressionOptions> read_compression(Settings& method, const CompressionContext& context);

// The kinds that a table `compression` may name if a method compresses these values: their names, and what they send.
std::vector<Alternative> compressions_of(Compresses what);

// Checks keys against the model's tensors, if they are known before the model exists. If not, the run reports the
// faults.
void check_tensors(Settings& method, const std::optional<CompressionOptions>& options,
                   std::span<const ParameterTensor> tensors);

}  // namespace syncopate
