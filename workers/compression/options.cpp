#include "workers/compression/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>

#include "workers/compression/kinds.hpp"

namespace syncopate {

namespace {

// The values that a kind sends in one use, or why it cannot be used there. Both empty: the use has no such kind.
struct KindInUse {
  std::string_view sentence{};
  std::string_view why_not{};
};

struct CompressionKind {
  std::string_view name;
  KindInUse sums, averages, moments, messages;
  void (*read)(CompressionKeys&);  // null: values are sent uncompressed
};

constexpr const char* sends_levels = "Levels: fractions of each bucket's norm, rounded at random (QSGD): all-gathered.";
constexpr const char* sends_bytes =
    "Eight bits per value: the index of its bin, and the bins' means (INTELLECT-1): all-gathered.";
constexpr const char* sends_half_bytes =
    "Four bits per value: a sign, and a power of two relative to its bucket's largest: all-gathered.";
constexpr const char* sends_bins =
    "Two, four or eight bits per value: its bin, and the bins' means (MuLoCo): all-gathered.";
constexpr const char* sends_tiles =
    "The largest values of each tile of a matrix, in two bits (SparseLoCo): all-gathered.";
constexpr const char* is_of_tiles = "its means are those of the workers that sent a value, but a moment needs all";
constexpr const char* is_of_sums_alone =
    "its second exchange needs the result of the first, which only sums of gradients support";

constexpr CompressionKind kinds[] = {
    {.name = "top-k",
     .sums = {"The largest values by magnitude, with their indices: all-gathered."},
     .averages = {"The largest differences by magnitude, with their indices: all-gathered."},
     .moments = {"The largest values by magnitude, with their indices: all-gathered."},
     .messages = {"The largest values by magnitude, with their indices."},
     .read = read_top_k},
    {.name = "dgc",
     .sums = {"As top-k, but of momentum that each worker accumulates (Deep Gradient Compression)."},
     .averages = {.why_not = "it accumulates momentum of gradients, but the local steps have applied momentum already"},
     .moments = {.why_not = "it accumulates momentum, but a first moment is a momentum already"},
     .messages = {.why_not = "its ratio and momentum belong to steps that all workers take together; use \"top-k\", "
                             "which has only a residual"},
     .read = read_dgc},
    {.name = "random-k",
     .sums = {"Values at random indices, the same on all workers, sent by all-reduce."},
     .averages = {"Differences at random indices, the same on all workers: all-reduced."},
     .moments = {"Values at random indices, the same on all workers, sent by all-reduce."},
     .messages = {"Values at random indices, which both sides draw."},
     .read = read_random_k},
    {.name = "scalecom",
     .sums = {"Values at the indices that are largest on one worker, in turn (ScaleCom): all-reduced."},
     .averages = {.why_not = is_of_sums_alone},
     .moments = {.why_not = is_of_sums_alone},
     .messages = {.why_not = "all workers send values at the indices that one worker chooses, but a worker sends a "
                             "message without waiting for other workers"},
     .read = read_scalecom},
    {.name = "sign",
     .sums = {"Signs, and the mean magnitude (EF-signSGD): all-gathered."},
     .averages = {"Signs, and the mean magnitude: all-gathered."},
     .moments = {"Signs, and a scale (1-bit Adam): to owners of chunks, and from them."},
     .messages = {"Signs, and the mean magnitude."},
     .read = read_sign},
    {.name = "one-bit",
     .sums = {"Signs, and the mean of each sign, per column of a matrix (1-bit SGD): all-gathered."},
     .averages = {.why_not =
                      "its means are taken over columns of gradients; use \"sign\" for differences between models"},
     .moments = {.why_not = "its means are taken over columns of gradients; use \"sign\" for moments"},
     .messages = {.why_not = "its means are taken over columns of gradients; use \"sign\" for messages"},
     .read = read_one_bit},
    {.name = "majority",
     .sums = {"Signs; the step takes the majority's sign (signSGD, Signum): all-gathered."},
     .averages = {.why_not = "a majority of signs has no length, but a difference between models has one"},
     .moments = {.why_not = "a majority of signs has no length, but a step along a moment needs one"},
     .messages = {.why_not = "a majority needs all workers, but a server uses each message separately"},
     .read = read_majority},
    {.name = "qsgd",
     .sums = {sends_levels},
     .averages = {sends_levels},
     .moments = {sends_levels},
     .messages = {"Levels: fractions of each bucket's norm, rounded at random (QSGD)."},
     .read = read_qsgd},
    {.name = "powersgd",
     .sums = {"Two factors of each matrix (PowerSGD): all-reduced, one after the other."},
     .averages = {.why_not = is_of_sums_alone},
     .moments = {.why_not = is_of_sums_alone},
     .messages = {.why_not = "its second factor needs the sum of all workers' first factors, but a message does "
                             "not wait for it"},
     .read = read_powersgd},
    {.name = "int8",
     .sums = {sends_bytes},
     .averages = {sends_bytes},
     .moments = {sends_bytes},
     .messages = {"Eight bits per value: the index of its bin, and the bins' means (INTELLECT-1)."},
     .read = read_int8},
    {.name = "fp4",
     .sums = {sends_half_bytes},
     .averages = {sends_half_bytes},
     .moments = {sends_half_bytes},
     .messages = {"Four bits per value: a sign, and a power of two relative to its bucket's largest."},
     .read = read_fp4},
    {.name = "bins",
     .sums = {sends_bins},
     .averages = {sends_bins},
     .moments = {sends_bins},
     .messages = {"Two, four or eight bits per value: its bin, and the bins' means (MuLoCo)."},
     .read = read_bins},
    {.name = "tiles",
     .sums = {sends_tiles},
     .averages = {sends_tiles},
     .moments = {.why_not = is_of_tiles},
     .messages = {"The largest values of each tile of a matrix, in two bits (SparseLoCo)."},
     .read = read_tiles},
    {.name = "demo",
     .sums = {"The largest values of the cosine transform of each tile of momentum (DeMo): all-gathered."},
     .averages = {.why_not = "its steps are signs of means, which have no length; use \"tiles\" for differences"},
     .moments = {.why_not = "it keeps a momentum of its own, but a first moment is a momentum already"},
     .messages = {.why_not = "it needs the mean over all workers, but a server uses each message separately"},
     .read = read_demo},
    {.name = "sparse-rows",
     .sums = {"Nonzero rows of embeddings, with their indices: all-gathered; all other values: all-reduced."},
     .averages = {.why_not = "local steps with momentum or decay change rows that no token has touched"},
     .moments = {.why_not = "a moment is nonzero also in rows that no token of this step has touched"},
     .messages = {.why_not =
                      "the size of its packets is known only after the computation, but messages do not wait for it"},
     .read = read_sparse_rows},
    {.name = "none",
     .sums = {},
     .averages = {"The models, uncompressed: all-reduced."},
     .moments = {"The moment, uncompressed: all-reduced."},
     .messages = {"Sends values uncompressed."},
     .read = nullptr},
};

// The table `compression` for one of these uses.
struct CompressionUse {
  KindInUse CompressionKind::*column;
  std::string_view sentence;        // describes the table
  std::string_view instead;         // describes the key `name`
  std::string_view usual = "none";  // default name; empty: a name is required
  std::string_view left_out = "it is not";
};

CompressionUse use_of(Compresses what) {
  switch (what) {
    case Compresses::gradients:
      return {&CompressionKind::sums, "Compression of the sum of gradients.", "The form in which a gradient is sent.",
              ""};
    case Compresses::moments:
      return {&CompressionKind::moments, "Compression of first moments.", "The form in which the first moment is sent.",
              "sign", "signs, in two phases"};
    case Compresses::messages:
      return {&CompressionKind::messages, "Compression of the messages from workers to their server.",
              "The form in which a gradient, or a difference between models, is sent."};
    default:
      return {&CompressionKind::averages, "Compression of averages of models.",
              "The form in which the difference to the last common model is sent."};
  }
}

// The kind that the table names; null after a fault.
const CompressionKind* read_kind(Settings& table, Compresses what) {
  const CompressionUse use = use_of(what);
  const auto kind_of = [](std::string_view name) { return std::ranges::find(kinds, name, &CompressionKind::name); };
  if (const auto* const written = kind_of(table.word("name").value_or(""));
      written != std::end(kinds) && !(written->*use.column).why_not.empty()) {
    table.fault("name", fmt::format("cannot be used here: {}", (written->*use.column).why_not));
    return nullptr;
  }
  const std::vector<Alternative> known = compressions_of(what);
  const Alternative* const row = table.row({"name", use.instead}, known, use.usual);
  return row ? kind_of(row->name) : nullptr;
}

void read_rejected(CompressionKeys& keys) {
  auto& [table, context, options, why_no_estimates] = keys;
  options.returns_rejected = table.choice(
      {"rejected", "Treatment of packets that a server rejects: lost, or sent again with a later message."},
      {{"lost", false}, {"return", true}}, false);
  if (context.rejects_messages) return;
  keys.leave_out_unwritten({"rejected"});
  if (options.returns_rejected) table.fault("rejected", "must be \"lost\": this method's server accepts every packet");
}

}  // namespace

bool CompressionKeys::by_tensors(bool usual) {
  const bool by_tensors = table.choice({"scope", "The unit of compression: the whole model, or each tensor."},
                                       {{"model", false}, {"tensor", true}}, usual);
  if (by_tensors) need_tensors("scope", "must be \"model\":");
  return by_tensors;
}

void CompressionKeys::need_tensors(const char* key, const char* problem) {
  options.needs_tensors = true;
  if (context.slices > 1)
    table.fault(key,
                fmt::format("{} each of the {} slices of the model is compressed separately, and slices cut tensors",
                            problem, context.slices));
}

void CompressionKeys::pattern() {
  if (context.compresses == Compresses::averages_under_way || options.of_messages()) {  // both have only one phase
    if (!table.has("exchange")) return;
    table.keep_as_written({"exchange"});
    return table.fault("exchange", options.of_messages()
                                       ? "must be left out: a message goes to one server, so there is no second phase"
                                       : "must be left out: the second phase would follow the first while "
                                         "workers compute");
  }
  using Pattern = CompressionOptions::Pattern;
  options.pattern =
      table.choice({"exchange", "Packets go to all; or their chunks go to owners, who send the compressed sum to all."},
                   {{"gather", Pattern::gather}, {"two-phase", Pattern::two_phase}}, options.pattern);
}

// Differences between models have no choice of units (gradient or step), because they already are steps.
void CompressionKeys::residual(bool usual) {
  options.error_feedback =
      table.flag({"error_feedback", "Whether values that a worker has not sent are added to its next packet."}, usual);
  const bool has_decay = table.has("residual_decay") || options.residual_decay != 1;
  options.residual_decay =
      table.number({"residual_decay", "Share of the unsent values that is kept at each exchange; 1: all."},
                   Range{.low = 0, .high = 1}, options.residual_decay);
  if (!has_decay) leave_out_unwritten({"residual_decay"});
  if (!options.error_feedback && table.has("residual_decay"))
    table.fault("residual_decay", "has no effect without error_feedback");
  feedback();
  if (options.error_feedback && options.of_messages()) return read_rejected(*this);
  if (!options.error_feedback || options.estimates() || options.of_averages() || options.of_moments()) return;
  using Units = CompressionOptions::Units;
  options.units = table.choice(
      {"residual", "Units of unsent values: gradients, or steps, which keep their size when the rate changes."},
      {{"gradient", Units::gradient}, {"step", Units::step}}, options.units);
  dropped();
}

// EF21: each worker sends the compressed difference between its gradient and an estimate that all have of it.
// Source:  Richtarik, Sokolov, Fatkhullin 2021, "EF21", and its form with momentum, EF21-SGDM; from summaries, as the
//          papers' texts were not read.
//   g_i <- g_i + C(gradient_i - g_i); all step along the mean of the g_i
//   EF21-SGDM: v_i <- (1 - eta) v_i + eta gradient_i takes the gradient's place
// Shapes:  gradient, g_i, v_i: (P,) flat float32.   Units: `momentum` is 1 - eta.
// Cost:    the packets of C; per worker one more vector of P floats, two with momentum.
// Differs: the first estimate is the compressed first gradient, from g_i = 0.
// Checks:  C = identity is synchronous SGD; golden rounds of an independent reference, with and without momentum.
void CompressionKeys::feedback() {
  using Feedback = CompressionOptions::Feedback;
  if (options.compresses != Compresses::gradients || why_no_estimates) {
    if (!table.has("feedback")) return;
    table.keep_as_written({"feedback"});
    return table.fault("feedback",
                       why_no_estimates ? why_no_estimates
                       : options.of_messages()
                           ? "must be left out: a server uses each message by itself, or loses it, and then it cannot "
                             "keep the mean of all workers' estimates"
                       : options.of_moments()
                           ? "must be left out: estimates of gradients have no use where moments are sent"
                           : "must be left out: an average of models exchanges progress, which begins at 0 in each "
                             "round, so the progress of the last round does not estimate it");
  }
  options.feedback = table.choice(
      {"feedback", "A worker compresses its gradient plus unsent values, or minus the sum of all that it has sent."},
      {{"residual", Feedback::residual}, {"ef21", Feedback::estimate}}, options.feedback);
  if (!options.estimates()) return leave_out_unwritten({"feedback"});
  options.momentum =
      table.number({"momentum", "EF21-SGDM: decay of the average of a worker's gradients that its estimate follows."},
                   Range{.low = 0, .high = 1, .high_open = true}, 0.0);
  refuse_estimates(!options.error_feedback, "error_feedback",
                   "must be true with feedback = \"ef21\": unsent values are needed to know what was sent");
  refuse_estimates(options.pattern == CompressionOptions::Pattern::two_phase, "exchange",
                   "must be \"gather\" with feedback = \"ef21\": the second compression would change the estimates");
  refuse_estimates(table.has("residual_decay"), "residual_decay",
                   "has no effect with feedback = \"ef21\", which has no residual");
  refuse_estimates(context.drops != Drops::nothing, "feedback",
                   "must be \"residual\" here: this method leaves out micro-batches, and the estimate of a whole "
                   "gradient would not fit a part of one");
}

void CompressionKeys::refuse_estimates(bool is_refused, const char* key, const char* why) const {
  if (options.estimates() && is_refused) table.fault(key, why);
}

void CompressionKeys::dropped() {
  using Dropped = CompressionOptions::Dropped;
  options.dropped = table.choice(
      {"dropped", "Treatment of a gradient that a step leaves out: lost, or added to its worker's residual."},
      {{"lost", Dropped::lost}, {"fold", Dropped::folded}}, options.dropped);
  if (context.drops == Drops::computed) return;
  leave_out_unwritten({"dropped"});
  if (options.dropped == Dropped::lost) return;
  table.fault("dropped",
              context.drops == Drops::nothing
                  ? "must be \"lost\": this method leaves no gradient out"
                  : "must be \"lost\": gradients that this method drops are not completely computed, so there "
                    "is nothing to add to the residual");
}

// A vector of P signs has the norm sqrt(P), which clipping would replace by clip_norm.
void CompressionKeys::refuse_clipping(const char* key) const {
  if (context.clips_gradients)
    table.fault(key, "needs training.clip_norm = 0: the vector of signs would be clipped, not the gradients");
}

void CompressionKeys::leave_out_unwritten(std::initializer_list<const char*> keys) {
  for (const char* key : keys)
    if (!table.has(key)) table.leave_out(key);
}

std::vector<Alternative> compressions_of(Compresses what) {
  std::vector<Alternative> known;
  if (what == Compresses::nothing) return known;
  const CompressionUse use = use_of(what);
  for (const CompressionKind& kind : kinds)
    if (const std::string_view sentence = (kind.*use.column).sentence; !sentence.empty())
      known.push_back({kind.name, sentence});
  const auto is_usual = [&](const Alternative& one) { return one.name == use.usual && use.usual != "none"; };
  std::stable_partition(known.begin(), known.end(), is_usual);
  return known;
}

void check_tensors(Settings& method, const std::optional<CompressionOptions>& options,
                   std::span<const ParameterTensor> tensors) {
  if (options && options->check && !tensors.empty()) options->check(method, parts_of(tensors));
}

std::optional<CompressionOptions> read_compression(Settings& method, const CompressionContext& context) {
  if (context.compresses == Compresses::nothing) {  // then the key `compression` is not described
    const std::vector<std::string> written = method.keys();
    if (std::ranges::find(written, "compression") == written.end()) return std::nullopt;
    method.keep_as_written({"compression"});
    method.fault("compression",
                 fmt::format("must not be given: {}", context.why_nothing.empty()
                                                          ? "none of this method's exchanges can be compressed"
                                                          : context.why_nothing));
    return std::nullopt;
  }
  CompressionOptions options{.compresses = context.compresses};
  if (context.compresses == Compresses::gradients && !method.has("compression")) return std::nullopt;
  const CompressionUse use = use_of(context.compresses);
  Settings table = method.section({"compression", use.sentence, {}, use.left_out});
  const CompressionKind* const kind = read_kind(table, context.compresses);
  if (kind && !kind->read && !options.of_moments() && !table.word("name")) table.leave_out("name");
  if (!kind || !kind->read) return std::nullopt;
  options.kind = kind->name;
  CompressionKeys keys{table, context, options};
  kind->read(keys);
  if (!options.make) return std::nullopt;
  if (options.of_averages() && context.averages_moments)
    method.fault(
        "compression",
        "must be left out if moments are averaged, because moments have no common model to take differences to");
  if (context.time_only && options.needs_tensors)
    method.fault("compression", "needs a model, because the size of a packet depends on the model's tensors");
  return options;
}

}  // namespace syncopate
