// How sums of gradients are compressed: the table `compression` of a method, and what is then exchanged.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "workers/cluster/operation.hpp"
#include "workers/settings/settings.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

// One exchange of a compressed sum.
struct Exchange {
  Operation operation = Operation::all_reduce;
  Bytes packet{};  // of each worker

  // As the network counts it: of an all-gather, all members' together.
  Bytes payload(int members) const {
    return operation == Operation::all_gather ? Bytes{members * packet.value()} : packet;
  }
};

struct CompressionOptions {
  enum class Kind { top_k, dgc, random_k, sign, majority, qsgd, power };
  enum class Scope { model, tensor };
  enum class Units { gradient, step };
  enum class Removed { own, shared };

  Kind kind = Kind::top_k;
  double ratio = 0.01;             // top-k, DGC and random-k: share of the entries that is kept
  Scope scope = Scope::model;      // top-k, DGC and sign: what is compressed by itself
  bool error_feedback = true;      // what is not sent is added to the next gradient
  Units units = Units::gradient;   // of the residual: step units keep their weight when the rate changes
  double momentum = 0;             // majority: of the average whose signs are sent; DGC: of what is accumulated
  bool masking = true;             // DGC: a value that is sent loses its velocity
  int levels = 127;                // QSGD, s: of each sign
  int bucket = 128;                // QSGD: values with one norm
  int rank = 2;                    // PowerSGD
  double least_rate = 2;           // PowerSGD: matrices that it makes smaller by less are sent as they are
  bool warm_start = true;          // PowerSGD: from the last step's factor
  Removed removed = Removed::own;  // PowerSGD: what a worker's residual is without
  std::string written_rank{};      // where the rank stands, for what is found out with the model

  // Whether packets depend on the model's tensors, beyond their number of values.
  bool needs_tensors() const { return kind == Kind::power || scope == Scope::tensor; }
};

// None where the table is not there. Where sums cannot be compressed, or a model is missing that is needed: a fault.
std::optional<CompressionOptions> read_compression(Settings& method, bool sums_gradients, bool time_only);

// What a sum of so many bytes of parameters takes, where that does not need the tensors; else none.
std::vector<Exchange> exchanges_of(const std::optional<CompressionOptions>& options, Bytes parameters);
inline constexpr const char* needs_tensors = "its packets depend on the tensors of the model";

}  // namespace syncopate
