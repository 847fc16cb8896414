#include "workers/compression/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

namespace syncopate {

namespace {

using Kind = CompressionOptions::Kind;
using Scope = CompressionOptions::Scope;
using Dropped = CompressionOptions::Dropped;
using Units = CompressionOptions::Units;
using Pattern = CompressionOptions::Pattern;

constexpr CompressionRow rows_of_gradients[] = {
    {"top-k", "The largest values by magnitude, with their places: all-gathered.", Kind::top_k},
    {"dgc", "As top-k, of momentum that each worker accumulates (Deep Gradient Compression).", Kind::dgc},
    {"random-k", "Values at random places, the same on all workers: all-reduced.", Kind::random_k},
    {"scalecom", "Values at the largest places of one worker, each in its turn (ScaleCom): all-reduced.",
     Kind::scalecom},
    {"sign", "Signs, and the mean magnitude (EF-signSGD): all-gathered.", Kind::sign},
    {"one-bit", "Signs, and of each sign the mean, by columns of matrices (1-bit SGD): all-gathered.", Kind::one_bit},
    {"majority", "Signs, of which the majority's is the step's (signSGD, Signum): all-gathered.", Kind::majority},
    {"qsgd", "Random roundings to a few levels of each bucket's norm (QSGD): all-gathered.", Kind::qsgd},
    {"powersgd", "Two factors of each matrix (PowerSGD): all-reduced, one after the other.", Kind::power},
    {"int8", "Eight bits of each value, for uniform bins with their means (INTELLECT-1): all-gathered.", Kind::int8},
    {"fp4", "Four bits of each value, a sign and a power of two of its bucket's largest: all-gathered.", Kind::fp4},
    {"sparse-rows", "Rows of embeddings that are not zero, with their places: all-gathered; the rest: all-reduced.",
     Kind::rows},
};
constexpr CompressionRow rows_of_averages[] = {
    {"top-k", "The largest differences by magnitude, with their places: all-gathered.", Kind::top_k},
    {"random-k", "Differences at random places, the same on all workers: all-reduced.", Kind::random_k},
    {"sign", "Signs, and the mean magnitude: all-gathered.", Kind::sign},
    {"qsgd", "Random roundings to a few levels of each bucket's norm (QSGD): all-gathered.", Kind::qsgd},
    {"int8", "Eight bits of each value, for uniform bins with their means (INTELLECT-1): all-gathered.", Kind::int8},
    {"fp4", "Four bits of each value, a sign and a power of two of its bucket's largest: all-gathered.", Kind::fp4},
    {"none", "The models as they are: all-reduced.", Kind::random_k},
};

constexpr CompressionRow rows_of_messages[] = {
    {"top-k", "The largest values by magnitude, with their places.", Kind::top_k},
    {"random-k", "Values at random places, which both sides draw.", Kind::random_k},
    {"sign", "Signs, and the mean magnitude.", Kind::sign},
    {"qsgd", "Random roundings to a few levels of each bucket's norm (QSGD).", Kind::qsgd},
    {"int8", "Eight bits of each value, for uniform bins with their means (INTELLECT-1).", Kind::int8},
    {"fp4", "Four bits of each value, a sign and a power of two of its bucket's largest.", Kind::fp4},
    {"none", "What is sent as it is.", Kind::random_k},
};

constexpr CompressionRow rows_of_moments[] = {
    {"sign", "Signs, and a scale (1-bit Adam): to owners of chunks, and from them.", Kind::sign},
    {"top-k", "The largest values by magnitude, with their places: all-gathered.", Kind::top_k},
    {"random-k", "Values at random places, the same on all workers: all-reduced.", Kind::random_k},
    {"qsgd", "Random roundings to a few levels of each bucket's norm (QSGD): all-gathered.", Kind::qsgd},
    {"int8", "Eight bits of each value, for uniform bins with their means (INTELLECT-1): all-gathered.", Kind::int8},
    {"fp4", "Four bits of each value, a sign and a power of two of its bucket's largest: all-gathered.", Kind::fp4},
    {"none", "The moment as it is: all-reduced.", Kind::random_k},
};

// Why differences between models, moments or messages cannot be compressed with a kind that gradients can.
struct Refusal {
  std::string_view name;
  std::string_view of_averages, of_moments, of_messages;
};
constexpr std::string_view is_of_sums_alone =
    "its two exchanges, of which the second follows from the sum of the first, are those of sums of gradients alone";
constexpr Refusal refusals[] = {
    {"dgc", "it accumulates momentum of gradients, which local steps have had",
     "it accumulates momentum, which a moment is already",
     "its ratio and momentum are those of steps that all take together; \"top-k\" has a residual alone"},
    {"majority", "a majority of signs has no length, and a difference between models has one",
     "a majority of signs has no length, and a step along a moment needs one",
     "a majority is that of all workers, and each message counts by itself"},
    {"powersgd", is_of_sums_alone, is_of_sums_alone,
     "its second factor follows from the sum of all workers' first ones, which a message does not wait for"},
    {"scalecom", is_of_sums_alone, is_of_sums_alone,
     "all send values at the places of one of them, which a message does not wait for"},
    {"sparse-rows", "local steps with momentum or decay move rows that no token has touched",
     "a moment keeps rows that no token of this step has touched",
     "how long its packets are follows from what is computed, which messages do not wait for"},
    {"one-bit", "its means are of columns of gradients; \"sign\" is for differences",
     "its means are of columns of gradients; \"sign\" is for moments",
     "its means are of columns of gradients; \"sign\" is for messages"},
};

// Empty for a kind that can be used, and for what is no kind.
std::string_view why_not(Compresses what, std::string_view name) {
  const auto* const row = std::ranges::find(refusals, name, &Refusal::name);
  if (row == std::end(refusals) || what == Compresses::nothing || what == Compresses::gradients) return {};
  if (what == Compresses::moments) return row->of_moments;
  return what == Compresses::messages ? row->of_messages : row->of_averages;
}

// The largest rank with which factors of at least one matrix have fewer numbers than it by more than `least_rate`; 0:
// there is none. It is at most a matrix's smaller dimension. As in PowerSgd, r (n + m) least_rate < n m; a rate of 0
// allows any rank that a matrix can have.
int largest_rank(std::span<const ParameterTensor> tensors, double least_rate) {
  std::size_t largest = 0;
  for (const ParameterTensor& tensor : tensors) {
    if (tensor.rows == 0) continue;
    const std::size_t n = tensor.rows, m = tensor.size / n;
    const double bound = static_cast<double>(n * m) / (static_cast<double>(n + m) * least_rate);
    const double below = std::max(0.0, std::ceil(bound) - 1);
    largest = std::max(largest, static_cast<std::size_t>(std::min(below, static_cast<double>(std::min(n, m)))));
  }
  return static_cast<int>(largest);
}

// Keys that are not written stay out of the resolved configuration, which then equals that of versions without them.
void leave_out_unwritten(Settings& table, std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (!table.has(key)) table.leave_out(key);
}

void read_dropped(Settings& table, CompressionOptions& options, const CompressionContext& context) {
  options.dropped = table.choice(
      {"dropped", "What becomes of a batch that is left out: it is lost, or folded into what its worker has not sent."},
      {{"lost", Dropped::lost}, {"fold", Dropped::folded}}, options.dropped);
  if (context.drops == Drops::computed) return;
  leave_out_unwritten(table, {"dropped"});
  if (options.dropped == Dropped::lost) return;
  table.fault("dropped",
              context.drops == Drops::nothing
                  ? "must be \"lost\": this method leaves nothing out"
                  : "must be \"lost\": what this method drops has not been computed to its end, so that there "
                    "is no gradient to fold into anything");
}

void read_rejected(Settings& table, CompressionOptions& options, const CompressionContext& context) {
  options.returns_rejected = table.choice(
      {"rejected",
       "What becomes of what a server does not take: it is lost, or its worker sends it again with a later message."},
      {{"lost", false}, {"return", true}}, false);
  if (context.rejects_messages) return;
  leave_out_unwritten(table, {"rejected"});
  if (options.returns_rejected) table.fault("rejected", "must be \"lost\": this method's server takes all that comes");
}

// No units for differences between models, which are steps already.
void read_residual(Settings& table, CompressionOptions& options, const CompressionContext& context) {
  options.error_feedback = table.flag(
      {"error_feedback", "Whether what a worker has not sent is added to what it sends next."}, options.error_feedback);
  if (options.error_feedback && options.of_messages) return read_rejected(table, options, context);
  if (!options.error_feedback || options.of_averages || options.of_moments) return;
  options.units = table.choice(
      {"residual", "Units of what is not sent yet: gradients, or steps, which keep their size when the rate changes."},
      {{"gradient", Units::gradient}, {"step", Units::step}}, options.units);
  read_dropped(table, options, context);
}

void read_scope(Settings& table, CompressionOptions& options, const CompressionContext& context) {
  options.scope = table.choice({"scope", "What is compressed by itself: the whole model, or each tensor."},
                               {{"model", Scope::model}, {"tensor", Scope::tensor}}, options.scope);
  if (context.slices > 1 && options.scope == Scope::tensor)
    table.fault("scope", fmt::format("must be \"model\": each of {} slices of the model goes by itself, and they cut "
                                     "tensors",
                                     context.slices));
}

void read_columns(Settings& table, CompressionOptions& options) {
  options.scope = table.choice(
      {"scope", "What has two means of its own: a matrix's column (and each other tensor), a tensor, the model."},
      {{"column", Scope::column}, {"tensor", Scope::tensor}, {"model", Scope::model}}, Scope::column);
  using Threshold = CompressionOptions::Threshold;
  options.threshold =
      table.choice({"threshold", "What a value's bit says: whether it is below 0, or below its column's mean."},
                   {{"zero", Threshold::zero}, {"mean", Threshold::mean}}, options.threshold);
  leave_out_unwritten(table, {"threshold"});
}

void read_momentum(Settings& table, CompressionOptions& options) {
  options.momentum = table.number({"momentum", "Of the velocity that a worker accumulates; the optimizer needs none."},
                                  Range{.low = 0, .high = 1, .high_open = true}, 0.9);
  options.nesterov = table.flag({"nesterov", "Whether the velocity is Nesterov's."}, options.nesterov);
  options.masking = table.flag({"masking", "Whether a value that is sent loses its velocity."}, options.masking);
  leave_out_unwritten(table, {"nesterov"});
}

void read_clip(Settings& table, CompressionOptions& options) {
  using By = CompressionOptions::ClippedBy;
  options.clip = table.optional_number(
      {"clip", "What a worker's mean gradient is clipped to before it accumulates.", "", "it is not clipped"},
      Range{.low = 0, .low_open = true, .high_open = true});
  if (!options.clip)
    for (const char* key : {"clip_by", "clip_scaling"})
      if (table.has(key)) table.fault(key, "must be left out: there is no `clip`");
  options.clipped_by =
      table.choice({"clip_by", "What `clip` bounds: the gradient's norm, each tensor's, or each value."},
                   {{"norm", By::norm}, {"tensor-norm", By::tensor_norm}, {"value", By::value}}, options.clipped_by);
  options.clip_by_workers = table.choice({"clip_scaling", "What `clip` is multiplied by."},
                                         {{"none", false}, {"1/sqrt(N)", true}}, options.clip_by_workers);
  leave_out_unwritten(table, {"clip_by", "clip_scaling"});
}

void read_pattern(Settings& table, CompressionOptions& options, const CompressionContext& context) {
  if (context.compresses == Compresses::averages_under_way || options.of_messages) {  // one phase alone
    if (!table.has("exchange")) return;
    table.keep_as_written({"exchange"});
    return table.fault("exchange", options.of_messages
                                       ? "must not be given here: a message goes to one server, and has no second phase"
                                       : "must not be given here: the second phase would follow the first while "
                                         "workers compute");
  }
  options.pattern = table.choice(
      {"exchange", "Packets go to all, or chunks of them to owners, who send their sum to all, compressed again."},
      {{"gather", Pattern::gather}, {"two-phase", Pattern::two_phase}}, options.pattern);
}

// All entries of the list together hold for warmup_steps: an epoch each unless the table says otherwise.
void read_warmup(Settings& table, CompressionOptions& options, const CompressionContext& context) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const Range share{.low = 0, .high = 1, .low_open = true};
  options.warmup_ratios =
      table.numbers({"warmup_ratios", "Ratios of the first steps, each for as many of them, before `ratio` holds."},
                    share, std::vector<double>{});
  const auto epochs = table.optional_number(
      {"warmup_epochs", "How long they all hold together.", "epochs", "one each, with a data set"}, Range::positive());
  const auto steps = table.optional_integer(
      {"warmup_steps", "How long they all hold together, instead of warmup_epochs.", "steps", "by epochs"}, 1, most);
  if (options.warmup_ratios.empty()) {
    leave_out_unwritten(table, {"warmup_ratios"});
    for (const char* key : {"warmup_epochs", "warmup_steps"})
      if (table.has(key)) table.fault(key, "must be left out: there are no warmup_ratios");
    return;
  }
  if (epochs && steps) table.fault("warmup_steps", "must not be given together with warmup_epochs");
  if (epochs && !context.has_epochs) table.fault("warmup_epochs", "needs a data set; without one, give warmup_steps");
  if (!epochs && !steps && !context.has_epochs)
    table.fault("warmup_ratios", "needs warmup_steps: there is no data set that fixes the length of an epoch");
  const auto of_each = static_cast<double>(options.warmup_ratios.size());
  options.warmup_steps = steps.value_or(0);
  if (!steps && context.steps_per_epoch)
    options.warmup_steps =
        std::llround(epochs.value_or(of_each) * static_cast<double>(context.steps_per_epoch->value()));
}

void read_ratio(Settings& table, CompressionOptions& options, const CompressionContext& context) {
  options.ratio = table.number({"ratio", "Share of the values that is sent; at least one is."},
                               Range{.low = 0, .high = 1, .low_open = true});
  if (context.compresses == Compresses::gradients) read_warmup(table, options, context);
}

void read_power(Settings& table, CompressionOptions& options, const CompressionContext& context) {
  constexpr int most = 1024;
  options.rank = static_cast<int>(table.integer({"rank", "Columns of each factor (r)."}, 1, most, options.rank));
  options.written = table.written("rank");
  options.least_rate = table.number(
      {"least_rate", "Matrices that the factors make smaller by this or less are sent as they are; with 0 none is."},
      Range::at_least(0), options.least_rate);
  options.warm_start = table.flag({"warm_start", "Whether a step begins with the factor of the last one."}, true);
  using Factors = CompressionOptions::Factors;
  options.factors = table.choice({"factors", "Whether a step renews both factors of a matrix, or one, in turn."},
                                 {{"both", Factors::both}, {"in-turn", Factors::in_turn}}, options.factors);
  leave_out_unwritten(table, {"factors"});
  if (options.factors == Factors::in_turn && !options.warm_start)
    table.fault("warm_start", "must be true: of factors in turn, the other one is the last step's");
  read_residual(table, options, context);
  if (!options.error_feedback) return;
  options.removed = table.choice(
      {"removed",
       "What a worker takes out of its residual: its own part of the factors' product, or all workers' mean."},
      {{"own", CompressionOptions::Removed::own}, {"mean", CompressionOptions::Removed::shared}}, options.removed);
}

void read_keys(Settings& table, CompressionOptions& options, const CompressionContext& context) {
  switch (options.kind) {
    case Kind::top_k:
      read_ratio(table, options, context);
      read_scope(table, options, context);
      return read_residual(table, options, context);
    case Kind::scalecom:
      read_ratio(table, options, context);
      read_scope(table, options, context);
      read_residual(table, options, context);
      if (options.error_feedback)
        options.filter = table.number(
            {"filter", "Share of what a step leaves that is taken up into what is not sent yet (beta); 1: all of it."},
            Range{.low = 0, .high = 1, .low_open = true}, options.filter);
      return;
    case Kind::dgc:
      read_ratio(table, options, context);
      read_scope(table, options, context);
      read_momentum(table, options);
      read_clip(table, options);
      options.dense_vectors =
          table.flag({"dense_vectors", "Whether tensors of one dimension are sent whole, with momentum of their mean."},
                     options.dense_vectors);
      options.written = table.written("dense_vectors");
      return read_dropped(table, options, context);
    case Kind::random_k:
      read_ratio(table, options, context);
      return read_residual(table, options, context);
    case Kind::sign:
      if (options.of_moments)
        options.l2_scale = table.choice({"scale", "What signs are times: the root mean square, or the mean magnitude."},
                                        {{"l2", true}, {"l1", false}}, options.l2_scale);
      read_scope(table, options, context);
      read_pattern(table, options, context);
      return read_residual(table, options, context);
    case Kind::one_bit:
      read_columns(table, options);
      read_pattern(table, options, context);
      return read_residual(table, options, context);
    case Kind::majority:
      options.error_feedback = false;
      options.momentum =
          table.number({"momentum", "Of the moving average of a worker's gradients whose signs it sends (beta)."},
                       Range{.low = 0, .high = 1, .high_open = true}, options.momentum);
      options.zeros_abstain =
          table.choice({"zeros", "What a value of 0 votes: plus, or nothing, which takes two bits."},
                       {{"plus", false}, {"abstain", true}}, options.zeros_abstain);
      leave_out_unwritten(table, {"zeros"});
      return;
    case Kind::qsgd:
      options.error_feedback = false;
      options.levels = static_cast<int>(
          table.integer({"levels", "Levels of each sign (s): 1 takes 2 bits, up to 7 take 4, up to 127 take 8."}, 1,
                        127, options.levels));
      options.bucket =
          static_cast<int>(table.integer({"bucket", "Values that share a norm."}, 1, 1 << 20, options.bucket));
      return read_pattern(table, options, context);
    case Kind::int8:
      options.error_feedback = false;
      options.range_std =
          table.number({"range_std", "Half the range that the bins divide, in standard deviations around the mean."},
                       Range{.low = 0, .low_open = true, .high_open = true}, options.range_std);
      read_scope(table, options, context);
      read_pattern(table, options, context);
      return read_residual(table, options, context);
    case Kind::fp4:
      options.error_feedback = false;
      options.bucket =
          static_cast<int>(table.integer({"bucket", "Values that share a scale."}, 1, 1 << 20, options.bucket));
      options.rounds_at_random =
          table.choice({"rounding", "To the nearest, or up or down at random, right on average."},
                       {{"nearest", false}, {"random", true}}, options.rounds_at_random);
      read_pattern(table, options, context);
      return read_residual(table, options, context);
    case Kind::rows:
      options.error_feedback = false;
      options.tables =
          table.texts({"tables", "What the names of embeddings contain; other tensors are summed as they are."},
                      std::vector<std::string>{"words.weight", "places.weight", "bag_of_words"});
      options.written = table.written("tables");
      if (options.tables.empty()) table.fault("tables", "must name at least one table");
      return;
    case Kind::power:
      return read_power(table, options, context);
  }
}

// False: everything is summed densely, as without the table.
bool read_gathers_rows(Settings& table) {
  return table.choice({"exchange", "Whether rows are gathered, or summed densely with all other parameters."},
                      {{"gather", true}, {"dense", false}}, true);
}

const char* sentence_of(Compresses what) {
  if (what == Compresses::moments) return "What is sent of first moments.";
  if (what == Compresses::messages) return "How what workers send to their server is compressed.";
  return what == Compresses::gradients ? "How the sum of gradients is compressed."
                                       : "How averages of models are compressed.";
}

const CompressionRow* row_of(Settings& table, Compresses what) {
  const auto rows = compressions_of(what);
  if (const std::string_view why = why_not(what, table.word("name").value_or("")); !why.empty()) {
    table.fault("name", fmt::format("must not be given here: {}", why));
    return nullptr;
  }
  if (what == Compresses::moments)
    return table.row({"name", "What is sent instead of the first moment."}, rows, "sign");
  if (what == Compresses::gradients) return table.row({"name", "What is sent instead of the gradient."}, rows);
  const char* const sentence = what == Compresses::messages
                                   ? "What is sent instead of the gradient, or of the difference between models."
                                   : "What is sent instead of the difference to the last common model.";
  return table.row({"name", sentence}, rows, "none");
}

}  // namespace

std::span<const CompressionRow> compressions_of(Compresses what) {
  if (what == Compresses::nothing) return {};
  if (what == Compresses::gradients) return rows_of_gradients;
  if (what == Compresses::moments) return rows_of_moments;
  if (what == Compresses::messages) return rows_of_messages;
  return rows_of_averages;
}

void check_rank(Settings& method, const std::optional<CompressionOptions>& options,
                std::span<const ParameterTensor> tensors) {
  if (!options || options->kind != Kind::power || tensors.empty()) return;
  const int largest = largest_rank(tensors, options->least_rate);
  if (options->rank <= largest) return;
  std::string problem =
      fmt::format("the model has no matrix that factors of any rank make smaller by more than {}", options->least_rate);
  if (largest > 0 && options->least_rate == 0)
    problem = fmt::format("must be at most {}: no matrix of the model has a higher rank", largest);
  else if (largest > 0)
    problem =
        fmt::format("must be at most {}: factors of a higher rank make no matrix of the model smaller by more than {}",
                    largest, options->least_rate);
  method.section({"compression"}).fault("rank", problem);
}

bool is_table(const std::vector<std::string>& names, const ParameterTensor& tensor) {
  const auto contains = [&](const std::string& name) { return tensor.name.find(name) != std::string::npos; };
  return tensor.rows > 0 && tensor.size > 0 && std::ranges::any_of(names, contains);
}

bool has_table(const std::vector<std::string>& names, std::span<const ParameterTensor> tensors) {
  return std::ranges::any_of(tensors, [&](const ParameterTensor& tensor) { return is_table(names, tensor); });
}

std::string quoted(const std::vector<std::string>& names) {
  return names.empty() ? "" : fmt::format("\"{}\"", fmt::join(names, "\", \""));
}

std::string must_name_a_matrix(std::span<const ParameterTensor> tensors) {
  std::vector<std::string> matrices;
  for (const ParameterTensor& tensor : tensors)
    if (tensor.rows > 0 && tensor.size > 0) matrices.push_back(tensor.name);
  return fmt::format("one of them must be in the name of a matrix of the model: {}",
                     matrices.empty() ? "it has none" : quoted(matrices));
}

void check_tables(Settings& method, const std::optional<CompressionOptions>& options,
                  std::span<const ParameterTensor> tensors) {
  if (!options || options->kind != Kind::rows || tensors.empty()) return;
  if (options->tables.empty() || has_table(options->tables, tensors)) return;
  method.section({"compression"}).fault("tables", must_name_a_matrix(tensors));
}

std::optional<CompressionOptions> read_compression(Settings& method, const CompressionContext& context) {
  if (context.compresses == Compresses::nothing) {  // then the key is not described
    const std::vector<std::string> written = method.keys();
    if (std::ranges::find(written, "compression") == written.end()) return std::nullopt;
    method.keep_as_written({"compression"});
    method.fault("compression", fmt::format("must not be given: {}", context.why_nothing.empty()
                                                                         ? "nothing that is exchanged can be compressed"
                                                                         : context.why_nothing));
    return std::nullopt;
  }
  const bool of_moments = context.compresses == Compresses::moments;
  const bool of_gradients = context.compresses == Compresses::gradients;
  const bool of_messages = context.compresses == Compresses::messages;
  if (of_gradients && !method.has("compression")) return std::nullopt;
  Settings table = method.section(
      {"compression", sentence_of(context.compresses), {}, of_moments ? "signs, in two phases" : "it is not"});
  const CompressionRow* const row = row_of(table, context.compresses);
  if (row && row->name == "none" && !of_moments && !table.word("name")) table.leave_out("name");
  if (!row || row->name == "none") return std::nullopt;
  CompressionOptions options;
  options.kind = row->kind;
  options.of_moments = of_moments;
  options.of_messages = of_messages;
  options.of_averages = !of_moments && !of_gradients && !of_messages;
  options.l2_scale = of_moments && options.kind == Kind::sign;
  if (options.l2_scale) options.pattern = Pattern::two_phase;
  const bool is_dense = options.kind == Kind::rows && !read_gathers_rows(table);
  read_keys(table, options, context);
  if (is_dense) return std::nullopt;
  if (options.of_averages && context.averages_moments)
    method.fault("compression", "must not be given where moments are averaged: they have no model to differ from");
  if (context.time_only && options.needs_tensors())
    method.fault("compression", "needs a model: the size of a packet depends on its tensors");
  return options;
}

}  // namespace syncopate
