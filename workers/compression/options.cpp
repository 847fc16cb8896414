#include "workers/compression/options.hpp"

#include "workers/compression/packet_sizes.hpp"

namespace syncopate {
namespace {

using Kind = CompressionOptions::Kind;

struct Row {
  std::string_view name;
  std::string_view sentence;
  Kind kind;
};
constexpr Row rows[] = {
    {"top-k", "The largest values by magnitude, with their places: all-gathered.", Kind::top_k},
    {"dgc", "As top-k, of momentum that each worker accumulates (Deep Gradient Compression).", Kind::dgc},
    {"random-k", "Values at random places, the same on all workers: all-reduced.", Kind::random_k},
    {"sign", "Signs, and the mean magnitude (EF-signSGD): all-gathered.", Kind::sign},
    {"majority", "Signs, of which the majority's is the step's (signSGD, Signum): all-gathered.", Kind::majority},
    {"qsgd", "Random roundings to a few levels of each bucket's norm (QSGD): all-gathered.", Kind::qsgd},
    {"powersgd", "Two factors of each matrix (PowerSGD): all-reduced, one after the other.", Kind::power},
};

void read_residual(Settings& table, CompressionOptions& options) {
  options.error_feedback = table.flag(
      {"error_feedback", "Whether what a worker has not sent is added to its next gradient."}, options.error_feedback);
  if (!options.error_feedback) return;
  options.units = table.choice(
      {"residual", "Units of what is not sent yet: gradients, or steps, which keep their size when the rate changes."},
      {{"gradient", CompressionOptions::Units::gradient}, {"step", CompressionOptions::Units::step}}, options.units);
}

void read_scope(Settings& table, CompressionOptions& options) {
  options.scope = table.choice(
      {"scope", "What is compressed by itself: the whole model, or each tensor."},
      {{"model", CompressionOptions::Scope::model}, {"tensor", CompressionOptions::Scope::tensor}}, options.scope);
}

void read_ratio(Settings& table, CompressionOptions& options) {
  options.ratio = table.number({"ratio", "Share of the values that is sent; at least one is."},
                               Range{.low = 0, .high = 1, .low_open = true});
}

void read_power(Settings& table, CompressionOptions& options) {
  constexpr int most = 1024;
  options.rank = static_cast<int>(table.integer({"rank", "Columns of each factor (r)."}, 1, most, options.rank));
  options.written_rank = table.written("rank");
  options.least_rate =
      table.number({"least_rate", "Matrices that the factors make smaller by this or less are sent as they are."},
                   Range::at_least(1), options.least_rate);
  options.warm_start = table.flag({"warm_start", "Whether a step begins with the factor of the last one."}, true);
  read_residual(table, options);
  if (!options.error_feedback) return;
  options.removed = table.choice(
      {"removed",
       "What a worker takes out of its residual: its own part of the factors' product, or all workers' mean."},
      {{"own", CompressionOptions::Removed::own}, {"mean", CompressionOptions::Removed::shared}}, options.removed);
}

void read_keys(Settings& table, CompressionOptions& options) {
  switch (options.kind) {
    case Kind::top_k:
      read_ratio(table, options);
      read_scope(table, options);
      return read_residual(table, options);
    case Kind::dgc:
      read_ratio(table, options);
      read_scope(table, options);
      options.momentum =
          table.number({"momentum", "Of the velocity that a worker accumulates; the optimizer needs none."},
                       Range{.low = 0, .high = 1, .high_open = true}, 0.9);
      options.masking = table.flag({"masking", "Whether a value that is sent loses its velocity."}, options.masking);
      return;
    case Kind::random_k:
      read_ratio(table, options);
      return read_residual(table, options);
    case Kind::sign:
      read_scope(table, options);
      return read_residual(table, options);
    case Kind::majority:
      options.error_feedback = false;
      options.momentum =
          table.number({"momentum", "Of the moving average of a worker's gradients whose signs it sends (beta)."},
                       Range{.low = 0, .high = 1, .high_open = true}, options.momentum);
      return;
    case Kind::qsgd:
      options.error_feedback = false;
      options.levels = static_cast<int>(
          table.integer({"levels", "Levels of each sign (s): 1 takes 2 bits, up to 7 take 4, up to 127 take 8."}, 1,
                        127, options.levels));
      options.bucket =
          static_cast<int>(table.integer({"bucket", "Values that share a norm."}, 1, 1 << 20, options.bucket));
      return;
    case Kind::power:
      return read_power(table, options);
  }
}

}  // namespace

std::optional<CompressionOptions> read_compression(Settings& method, bool sums_gradients, bool time_only) {
  if (!sums_gradients) {  // which is not described as a key of this method
    const std::vector<std::string> written = method.keys();
    if (std::ranges::find(written, "compression") == written.end()) return std::nullopt;
    method.keep_as_written({"compression"});
    method.fault("compression",
                 "must not be given: this method has no step along one sum of all workers' whole gradients, which is "
                 "what is compressed");
    return std::nullopt;
  }
  if (!method.has("compression")) return std::nullopt;
  Settings table = method.section({"compression", "How the sum of gradients is compressed.", {}, "it is not"});
  const auto* const row = table.row({"name", "What is sent instead of the gradient."}, rows);
  if (!row) return std::nullopt;
  CompressionOptions options;
  options.kind = row->kind;
  read_keys(table, options);
  if (time_only && options.needs_tensors())
    method.fault("compression", "needs a model: the size of a packet depends on its tensors");
  return options;
}

std::vector<Exchange> exchanges_of(const std::optional<CompressionOptions>& options, Bytes parameters) {
  if (!options || options->needs_tensors()) return {};
  return {exchange_of_whole(*options, static_cast<std::size_t>(parameters.value()) / sizeof(float))};
}

}  // namespace syncopate
