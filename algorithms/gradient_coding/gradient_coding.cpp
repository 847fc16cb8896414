#include "algorithms/gradient_coding/gradient_coding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <numeric>

#include "workers/base/linear_algebra.hpp"
#include "workers/base/process.hpp"
#include "workers/base/random.hpp"

namespace syncopate {

namespace {

std::size_t index_of(int i) { return static_cast<std::size_t>(i); }

// A code, still without parts, in which each worker is a separate group.
GradientCode code_of_single_workers(int workers, int needed) {
  GradientCode code{.parts = ByRank<std::vector<GradientCode::Part>>(workers),
                    .group = ByRank<int>(workers),
                    .groups = workers,
                    .needed = needed};
  for (const Rank worker : Ranks(workers)) code.group[worker] = worker.value;
  return code;
}

// Draws H: (s, N), standard normal, with the last column chosen so that each row sums to 0. So the vector of ones is in
// the null space of H.
Matrix draw_null_space(int workers, int stragglers, const RandomStream& stream) {
  Matrix h(stragglers, workers);
  fill_standard_normal(stream, 0, h.values);
  for (auto row = h.values.begin(); row != h.values.end(); row += workers)
    row[workers - 1] = -std::accumulate(row, row + workers - 1, 0.0);
  return h;
}

// Returns B: (N, N). Row i has a 1 at i and s more entries after it (mod N) such that H B[i] = 0.
Matrix encoding(const Matrix& h) {
  Matrix b(h.columns, h.columns);
  for (int i = 0; i < h.columns; ++i) {
    b(i, i) = 1;
    const std::vector<double> x = PivotedQr(h.columns_from(i + 1, h.rows)).solve(h.column(i));
    for (int k = 0; k < h.rows; ++k) b(i, (i + 1 + k) % h.columns) = -x[index_of(k)];
  }
  return b;
}

// Returns the weights a with a^T B = 1^T that are 0 at the stragglers, for the arrived workers in order of arrival.
std::vector<double> decode(const TransposedSolutions& decodings, int workers, double largest_part,
                           std::span<const Rank> arrived) {
  constexpr double far_beyond = 1000;
  std::vector<int> stragglers;
  for (const Rank worker : Ranks(workers))
    if (std::ranges::find(arrived, worker) == arrived.end()) stragglers.push_back(worker.value);
  const std::vector<double> a = decodings.vanishing_at(stragglers);
  if (!(largest_magnitude(a) * largest_part <= far_beyond * largest_cyclic_weight))
    throw RunFailure(
        fmt::format("the cyclic code has weights up to {:.1e} for these stragglers, too large for double precision; "
                    "choose another code_seed",
                    largest_magnitude(a)));
  std::vector<double> weights;
  for (const Rank worker : arrived) weights.push_back(a[index_of(worker.value)]);
  return weights;
}

// Measures how unevenly pairs of parts share workers if part p is on the workers p + offset (mod N). Parts p and p + d
// share a number of workers; returns the sum of its squares over all distances d > 0.
std::int64_t unevenness(const std::vector<int>& offsets, int workers) {
  std::vector<std::int64_t> shared(index_of(workers));
  for (const int a : offsets)
    for (const int b : offsets)
      if (a != b) ++shared[index_of((a - b + workers) % workers)];
  return std::transform_reduce(shared.begin(), shared.end(), std::int64_t{0}, std::plus<>(),
                               [](std::int64_t count) { return count * count; });
}

// Returns the workers that hold each part, drawn separately for each part.
std::vector<std::vector<int>> place_independently(int workers, int copies, std::uint64_t seed) {
  std::vector<std::vector<int>> holders;
  for (int part = 0; part < workers; ++part)
    holders.push_back(
        draw_set(workers, copies, {.seed = seed, .purpose = Purpose::algorithm, .stream = 3, .worker = Rank{part}}));
  return holders;
}

std::vector<std::vector<int>> place_evenly(int workers, int copies, std::uint64_t seed) {
  constexpr int draws = 100;
  std::vector<int> best;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int draw = 0; draw < draws; ++draw) {
    std::vector<int> offsets =
        draw_set(workers, copies, {.seed = seed, .purpose = Purpose::algorithm, .stream = 4, .step = Step{draw}});
    const std::int64_t found = unevenness(offsets, workers);
    if (found >= least) continue;
    least = found;
    best = std::move(offsets);
  }
  std::vector<std::vector<int>> holders(index_of(workers), best);
  for (int part = 0; part < workers; ++part)
    for (int& holder : holders[index_of(part)]) holder = (holder + part) % workers;
  return holders;
}

}  // namespace

std::optional<GradientCode> cyclic_repetition(int workers, int stragglers, std::uint64_t seed) {
  constexpr int most_draws = 50, most_sets = 1000;
  if (stragglers == 0) return fractional_repetition(workers, 0);
  for (int draw = 0; draw < most_draws; ++draw) {
    RandomStream stream{.seed = seed, .purpose = Purpose::algorithm, .stream = 2, .worker = {}, .step = Step{draw}};
    const Matrix b = encoding(draw_null_space(workers, stragglers, stream));
    const TransposedSolutions decodings(b, workers - stragglers, std::vector<double>(index_of(workers), 1.0));
    const double largest_part = largest_magnitude(b.values);
    const auto is_bounded = [&](std::span<const int> set) {
      return largest_magnitude(decodings.vanishing_at(set)) * largest_part <= largest_cyclic_weight;
    };
    stream.worker = Rank{1};
    if (!holds_for_sets(workers, stragglers, most_sets, stream, is_bounded)) continue;
    GradientCode code = code_of_single_workers(workers, workers - stragglers);
    code.in_double_precision = true;
    for (int i = 0; i < workers; ++i)
      for (int k = i; k <= i + stragglers; ++k) code.parts[Rank{i}].push_back({k % workers, b(i, k % workers)});
    code.decode = [=](std::span<const Rank> arrived) { return decode(decodings, workers, largest_part, arrived); };
    return code;
  }
  return std::nullopt;
}

GradientCode fractional_repetition(int workers, int stragglers) {
  assert(workers % (stragglers + 1) == 0);
  const int size = stragglers + 1;
  GradientCode code = code_of_single_workers(workers, workers / size);
  code.groups = code.needed;
  code.merges = false;
  for (const Rank worker : Ranks(workers)) {
    const int group = code.group[worker] = worker.value / size;
    for (int part = group * size; part < (group + 1) * size; ++part) code.parts[worker].push_back({part});
  }
  return code;
}

GradientCode ignore_stragglers(int workers, int stragglers) {
  GradientCode code = code_of_single_workers(workers, workers - stragglers);
  code.exact = code.merges = false;
  for (const Rank worker : Ranks(workers)) code.parts[worker] = {{worker.value}};
  code.decode = [workers](std::span<const Rank> arrived) {
    const auto count = static_cast<double>(arrived.size());
    return std::vector<double>(arrived.size(), workers / count);
  };
  return code;
}

GradientCode stochastic_code(int workers, const StochasticCodeOptions& options) {
  const auto holders = options.placement == Placement::balanced
                           ? place_evenly(workers, options.copies, options.seed)
                           : place_independently(workers, options.copies, options.seed);
  const double weight = 1 / (options.copies * (1 - options.straggler_share));
  GradientCode code = code_of_single_workers(workers, options.needed);
  code.exact = false;
  code.merges = options.copies > 1;
  for (int part = 0; part < workers; ++part)
    for (const int holder : holders[index_of(part)]) code.parts[Rank{holder}].push_back({part, weight});
  return code;
}

namespace {

// The messages of a step that have arrived, at most one of each group. `code` must outlive this object.
class Answers {
 public:
  explicit Answers(const GradientCode& code)
      : code_(code), has_group_(index_of(code.groups)), has_part_(index_of(code.parts.size())) {}

  int count() const { return static_cast<int>(from_.size()); }
  int parts() const { return parts_; }  // number of parts that at least one message contains

  // The maximum number of answers in this step, since some workers may have left.
  int possible(const Server& server) const {
    std::vector<char> can_come = has_group_;
    for (const Rank worker : Ranks(code_.parts.size()))
      if (!code_.parts[worker].empty() && !server.has_left(worker)) can_come[index_of(code_.group[worker])] = 1;
    return static_cast<int>(std::ranges::count(can_come, 1));
  }

  bool has_group_of(Rank worker) const { return has_group_[index_of(code_.group[worker])] != 0; }

  // How many of this worker's parts other messages that have arrived contain.
  int copies_from(Rank worker) const {
    const auto is_here = [&](const GradientCode::Part& part) { return has_part_[index_of(part.number)] != 0; };
    return static_cast<int>(std::ranges::count_if(code_.parts[worker], is_here));
  }

  void take(Rank worker, Gradient message) {
    for (const auto& part : code_.parts[worker]) parts_ += 1 - std::exchange(has_part_[index_of(part.number)], 1);
    has_group_[index_of(code_.group[worker])] = 1;
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
  StochasticRule rule;
  rule.code.copies = static_cast<int>(
      settings.integer({"copies", "How many workers compute each part."}, 1, Stated(workers, "workers")));
  rule.code.needed = workers;
  const Key straggler_share{
      "straggler_share",
      "Probability p that a worker's message is missing; only sets the parts' weights, 1 / (copies (1 - p))."};
  const Key threshold{"threshold_s",
                      "Time after which a step ends with the answers that have arrived, instead of `stragglers`.", "s"};
  if (const auto threshold_s = settings.optional_number(threshold, Range::positive())) {
    if (settings.has("stragglers")) settings.fault("threshold_s", "must not be given together with stragglers");
    rule.threshold = from_seconds(*threshold_s);
    rule.code.straggler_share = settings.number(straggler_share, Range::below_one());
  } else {
    const int stragglers = read_stragglers(settings, workers);
    rule.code.needed = workers - stragglers;
    rule.code.straggler_share = settings.number(
        straggler_share, Range::below_one(), Stated(static_cast<double>(stragglers) / workers, "stragglers / workers"));
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
  const auto kind =
      settings
          .choice<Code>(
              {"code",
               "Which workers compute which parts of the gradient, and how their messages are combined to its sum."},
              {{"fractional", Code::fractional},
               {"cyclic", Code::cyclic},
               {"stochastic", Code::stochastic},
               {"ignore-stragglers", Code::ignore_stragglers}})
          .value_or(Code::fractional);
  const LateWork late = read_late_work(settings);
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
