#include "algorithms/gradient_coding/gradient_coding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "workers/base/process.hpp"

namespace syncopate {

namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// The messages of a step that have arrived, at most one of each group. `code` must outlive this object.
class Answers {
 public:
  explicit Answers(const GradientCode& code)
      : code_(code), has_group_(at(code.groups)), has_part_(at(code.parts.size())) {}

  int count() const { return static_cast<int>(from_.size()); }
  int parts() const { return parts_; }  // number of parts that at least one message contains

  // The maximum number of answers in this step, since some workers may have left.
  int possible(const Server& server) const {
    std::vector<char> can_come = has_group_;
    for (const Rank worker : Ranks(code_.parts.size()))
      if (!code_.parts[worker].empty() && !server.has_left(worker)) can_come[at(code_.group[worker])] = 1;
    return static_cast<int>(std::ranges::count(can_come, 1));
  }

  bool has_group_of(Rank worker) const { return has_group_[at(code_.group[worker])] != 0; }

  // How many of this worker's parts other messages that have arrived contain.
  int copies_from(Rank worker) const {
    const auto is_here = [&](const GradientCode::Part& part) { return has_part_[at(part.number)] != 0; };
    return static_cast<int>(std::ranges::count_if(code_.parts[worker], is_here));
  }

  void take(Rank worker, Gradient message) {
    for (const auto& part : code_.parts[worker]) parts_ += 1 - std::exchange(has_part_[at(part.number)], 1);
    has_group_[at(code_.group[worker])] = 1;
    from_.push_back(worker);
    messages_.push_back(std::move(message));
  }

  // The sum, or an estimate of it.
  Gradient decode() const {
    const std::vector<double> weights = code_.decode(from_);
    Gradient sum;
    for (std::size_t i = 0; i < weights.size(); ++i) sum += messages_[i] * weights[i];
    if (code_.merges) sum.use_double_precision();
    return sum;
  }

 private:
  const GradientCode& code_;
  std::vector<char> has_group_, has_part_;
  int parts_ = 0;
  std::vector<Rank> from_;
  std::vector<Gradient> messages_;
};

// How many answers this step needs, at most the number of groups that have answered or still have a worker. Fails the
// run if an exact code can no longer get enough.
int needed_of_step(const Server& server, const GradientCode& code, const Answers& answers) {
  const int possible = answers.possible(server);
  if (code.exact && possible < code.needed)
    server.fail(
        fmt::format("the gradient can no longer be decoded: of {} different messages, {} are needed, but so "
                    "many workers have left that only {} can still arrive",
                    code.groups, code.needed, possible));
  return std::min(code.needed, possible);
}

// When a step of a stochastic code ends: with N - s messages (the default of p is then s / N), or after `threshold`.
struct StochasticRule {
  StochasticCodeOptions code{};
  Duration threshold = longest_duration;
};

int read_stragglers(Settings& settings, int workers) {
  return static_cast<int>(
      settings.integer({"stragglers", "How many workers a step does not wait for; not together with threshold_s."}, 0,
                       Stated(workers - 1, "workers - 1")));
}

StochasticRule read_stochastic_rule(Settings& settings, int workers) {
  constexpr Range share{.low = 0, .high = 1, .high_open = true};
  StochasticRule rule;
  rule.code.copies = static_cast<int>(
      settings.integer({"copies", "How many workers compute each part."}, 1, Stated(workers, "workers")));
  rule.code.needed = workers;
  const Key straggler_share{
      "straggler_share",
      "Probability p that a worker's message is missing; only sets the parts' weights, 1 / (copies (1 - p))."};
  const Key threshold{"threshold_s", "Time after which a step ends with the answers it has, instead of `stragglers`.",
                      "s"};
  if (const auto threshold_s = settings.optional_number(threshold, Range::positive())) {
    if (settings.has("stragglers")) settings.fault("threshold_s", "must not be given together with stragglers");
    rule.threshold = from_seconds(*threshold_s);
    rule.code.straggler_share = settings.number(straggler_share, share);
  } else {
    const int stragglers = read_stragglers(settings, workers);
    rule.code.needed = workers - stragglers;
    rule.code.straggler_share = settings.number(
        straggler_share, share, Stated(static_cast<double>(stragglers) / workers, "stragglers / workers"));
  }
  rule.code.placement = settings.choice(
      {"placement", "Whether parts are placed at random, or so that each worker has exactly `copies` parts."},
      {{"independent", Placement::independent}, {"balanced", Placement::balanced}}, rule.code.placement);
  return rule;
}

std::uint64_t read_seed(Settings& settings) {
  return static_cast<std::uint64_t>(
      settings.integer({"code_seed", "The seed of the code."}, 0, std::numeric_limits<std::int64_t>::max(), 1));
}

// Every run of an experiment stores a list of parts for each worker.
constexpr int most_coded_workers = 1 << 18;

// Reports a fault if there are too many workers, unless their number is unknown.
bool can_lay_out(Settings& settings, const AlgorithmContext& context) {
  const bool is_too_large = context.workers > most_coded_workers;
  if (context.workers_known && is_too_large)
    settings.fault("code", fmt::format("allows at most {} workers, found {}", most_coded_workers, context.workers));
  return context.workers_known && !is_too_large;
}

constexpr int most_cyclic_workers = 512;  // beyond this a decomposition takes more than a second

enum class Code { fractional, cyclic, stochastic, ignore_stragglers };

// Returns none after a fault, for example if the code does not fit the number of workers, or if that is unknown.
std::optional<GradientCode> read_exact_code(Settings& settings, Code kind, const AlgorithmContext& context) {
  const int workers = context.workers;
  const std::size_t faults = settings.faults_so_far();
  const int stragglers = read_stragglers(settings, workers);
  const std::uint64_t seed = kind == Code::cyclic ? read_seed(settings) : 0;
  if (!can_lay_out(settings, context) || settings.faults_so_far() > faults) return std::nullopt;
  if (kind == Code::ignore_stragglers) return ignore_stragglers(workers, stragglers);
  if (kind == Code::fractional) {
    if (workers % (stragglers + 1) == 0) return fractional_repetition(workers, stragglers);
    settings.fault("stragglers",
                   fmt::format("stragglers + 1 must divide the number of workers, {}, with code = \"fractional\"; "
                               "\"cyclic\" allows any number",
                               workers));
    return std::nullopt;
  }
  if (workers > most_cyclic_workers) {
    settings.fault("code", fmt::format("cyclic allows at most {} workers, found {}", most_cyclic_workers, workers));
    return std::nullopt;
  }
  auto code = cyclic_repetition(workers, stragglers, seed);
  if (!code)
    settings.fault("stragglers", fmt::format("all cyclic codes drawn for {} stragglers of {} workers have weights too "
                                             "large for double precision; must be smaller, or try another code_seed",
                                             stragglers, workers));
  return code;
}

}  // namespace

void CodedSgd::run(Worker& worker) const {
  while (worker.receive_model())
    if (auto message = coded_gradient(worker)) worker.send_gradient(*std::move(message), ClippedBy::server);
}

// Returns none if a newer model has arrived, or if the worker has no parts.
std::optional<Gradient> CodedSgd::coded_gradient(Worker& worker) const {
  const Deadline deadline = cancels() ? Deadline::until_message() : Deadline();
  Gradient sum;
  for (const auto& [part, weight] : code_.parts[worker.rank()])
    for (int m = 0; m < worker.micro_batches(); ++m) {
      auto gradient = worker.compute_gradient({Rank{part}, worker.step(), m}, deadline);
      if (!gradient) return std::nullopt;
      sum += *std::move(gradient) * weight;
    }
  if (sum.micro_batches() == 0) return std::nullopt;
  if (code_.in_double_precision) sum.use_double_precision();
  return sum;
}

void CodedSgd::serve(Server& server) const {
  while (server.budget_left()) {
    const Time deadline = later(server.now(), threshold_);
    Answers answers(code_);
    if (cancels()) server.send_model(Receivers::all);
    for (int needed = needed_of_step(server, code_, answers); answers.count() < needed;) {
      if (!cancels()) server.send_model(Receivers::waiting);  // a late worker gets the newest model on arrival
      if (server.now() >= deadline && answers.count() > 0) break;
      auto message = server.receive(server.now() < deadline ? deadline : never);
      if (!message)
        needed = needed_of_step(server, code_, answers);
      else if (server.accept(*message, {.maximum_staleness = 0,
                                        .is_needed = !answers.has_group_of(message->from),
                                        .copies = answers.copies_from(message->from) * server.micro_batches()}))
        answers.take(message->from, std::move(message->gradient));
    }
    if (answers.count() == 0) return;  // all workers have left
    server.descend(answers.decode() / (server.size() * server.micro_batches()),
                   {.clipped_by = ClippedBy::server,
                    .micro_batches = answers.parts() * server.micro_batches()});  // each part counts once
    server.publish();
  }
}

std::unique_ptr<Algorithm> make_coded_sgd(Settings& settings, const AlgorithmContext& context) {
  const auto kind = settings
                        .choice<Code>({"code", "How parts are distributed, and how answers are combined to the sum."},
                                      {{"fractional", Code::fractional},
                                       {"cyclic", Code::cyclic},
                                       {"stochastic", Code::stochastic},
                                       {"ignore-stragglers", Code::ignore_stragglers}})
                        .value_or(Code::fractional);
  const LateWork late =
      settings.choice({"late", "Whether late work finishes, and is dropped on arrival, or is cancelled."},
                      {{"finish", LateWork::finish}, {"cancel", LateWork::cancel}}, LateWork::finish);
  if (kind != Code::stochastic) {
    auto code = read_exact_code(settings, kind, context);
    return std::make_unique<CodedSgd>(code ? *std::move(code) : GradientCode{}, late);
  }
  const std::size_t faults = settings.faults_so_far();
  StochasticRule rule = read_stochastic_rule(settings, context.workers);
  rule.code.seed = read_seed(settings);
  const bool is_read = can_lay_out(settings, context) && settings.faults_so_far() == faults;
  return std::make_unique<CodedSgd>(is_read ? stochastic_code(context.workers, rule.code) : GradientCode{}, late,
                                    rule.threshold);
}

}  // namespace syncopate
