// Gradient coding: synchronous SGD in which workers compute several parts of a step's gradient each, so that a
// server can form it, or an estimate of it, without waiting for stragglers.
// Source:  Tandon et al. 2017, "Gradient Coding" (fractional, cyclic, ignore-stragglers); Bitar et al. 2020,
//          "Stochastic Gradient Coding" (stochastic).
// Shapes:  gradient, parameters: (P,) flat float32; cyclic: messages of P doubles.   Units: threshold in seconds.
// Cost:    per step N models down, up to N messages up; s + 1 parts of M micro-batches per worker (stochastic:
//          d on average).
// Differs: part p is what worker p computes in synchronous SGD, new in each step. A fractional step ends once each
//          group has answered. Late work goes on and is dropped on arrival; late = "cancel" stops it. With
//          `threshold_s` a step ends then, but not before its first message. A micro-batch of a step is kept once;
//          its copies count as dropped, though the time that a message with some of them took is not discarded.
// Checks:  fractional equals synchronous SGD bit for bit whoever straggles, cyclic up to rounding; the stochastic
//          sum is unbiased.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "algorithms/gradient_coding/codes.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// Of a worker that is still computing when the next model comes.
enum class LateWork {
  finish,  // goes on, and its message is dropped when it arrives
  cancel,  // ends: every new model goes to all
};

class CodedSgd : public Algorithm {
 public:
  // threshold: from the sending of the models, where the code can do with fewer messages than it needs.
  CodedSgd(GradientCode code, LateWork late, Duration threshold = longest_duration)
      : code_(std::move(code)), late_(late), threshold_(threshold) {}

  void run(Worker& worker) const override;
  // Throws RunFailure when so many workers have left that an exact code has no sum any more.
  void serve(Server& server) const override;
  Traits traits() const override { return {.servers = 1, .exchanged_whole = "coded gradients must cancel exactly"}; }
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("which answers come first depends on who is late from the step before");
  }

 private:
  bool cancels() const { return late_ == LateWork::cancel; }
  std::optional<Gradient> coded_gradient(Worker& worker) const;
  int needed_of_step(const Server& server, const Answers& answers) const;

  GradientCode code_;
  LateWork late_;
  Duration threshold_;
};

inline void CodedSgd::run(Worker& worker) const {
  while (worker.receive_model())
    if (auto message = coded_gradient(worker)) worker.send_gradient(*std::move(message), ClippedBy::server);
}

// Nothing if a newer model has come, or for a worker without parts.
inline std::optional<Gradient> CodedSgd::coded_gradient(Worker& worker) const {
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

inline void CodedSgd::serve(Server& server) const {
  while (server.budget_left()) {
    const Time deadline = later(server.now(), threshold_);
    Answers answers(code_);
    if (cancels()) server.send_model(Receivers::all);
    for (int needed = needed_of_step(server, answers); answers.count() < needed;) {
      if (!cancels()) server.send_model(Receivers::waiting);  // late workers too: they get the newest model at once
      if (server.now() >= deadline && answers.count() > 0) break;
      auto message = server.receive(server.now() < deadline ? deadline : never);
      if (!message)
        needed = needed_of_step(server, answers);
      else if (server.accept(*message, {.maximum_staleness = 0,
                                        .is_needed = !answers.has_group_of(message->from),
                                        .copies = answers.copies_from(message->from) * server.micro_batches()}))
        answers.take(message->from, std::move(message->gradient));
    }
    if (answers.count() == 0) return;  // all workers have left
    server.descend(answers.decode() / (server.size() * server.micro_batches()),
                   {.clipped_by = ClippedBy::server,
                    .micro_batches = answers.parts() * server.micro_batches()});  // each counts once
    server.publish();
  }
}

// How many groups make this step, which can be no more than have answered or still have a worker.
inline int CodedSgd::needed_of_step(const Server& server, const Answers& answers) const {
  const int possible = answers.possible(server);
  if (code_.exact && possible < code_.needed)
    server.fail(
        fmt::format("the gradient cannot be decoded any more: of {} different messages, {} are needed, but so "
                    "many workers have left that {} can still come",
                    code_.groups, code_.needed, possible));
  return std::min(code_.needed, possible);
}

// The card.

// What makes a stochastic step: N - s messages, or what has come after `threshold`. Of the share p of messages that
// are missing, the first says s / N.
struct StochasticRule {
  StochasticCodeOptions code{};
  Duration threshold = longest_duration;
};

inline int read_stragglers(Settings& settings, int workers) {
  return static_cast<int>(
      settings.integer({"stragglers", "How many workers a step does not wait for; not together with threshold_s."}, 0,
                       Stated(workers - 1, "workers - 1")));
}

inline StochasticRule read_stochastic_rule(Settings& settings, int workers) {
  constexpr Range share{.low = 0, .high = 1, .high_open = true};
  StochasticRule rule;
  rule.code.copies = static_cast<int>(
      settings.integer({"copies", "How many workers compute each part."}, 1, Stated(workers, "workers")));
  rule.code.needed = workers;
  const Key straggler_share{"straggler_share", "How likely a worker's message is to be missing, for the weights."};
  const Key threshold{"threshold_s", "After what time a step ends with whoever has answered, instead of stragglers.",
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
      {"placement", "Whether parts are placed at random, or each worker has `copies` of them."},
      {{"independent", Placement::independent}, {"balanced", Placement::balanced}}, rule.code.placement);
  return rule;
}

inline std::uint64_t read_seed(Settings& settings) {
  return static_cast<std::uint64_t>(
      settings.integer({"code_seed", "What the code is drawn with."}, 0, std::numeric_limits<std::int64_t>::max(), 1));
}

// A list of parts for each worker, in every run of an experiment.
inline constexpr int most_coded_workers = 1 << 18;

// With a fault where there are too many workers; not where their number is not known.
inline bool can_lay_out(Settings& settings, const AlgorithmContext& context) {
  const bool is_too_large = context.workers > most_coded_workers;
  if (context.workers_known && is_too_large)
    settings.fault("code", fmt::format("is for at most {} workers, found {}", most_coded_workers, context.workers));
  return context.workers_known && !is_too_large;
}

enum class Code { fractional, cyclic, stochastic, ignore_stragglers };

// Nothing, with a fault, where the code does not fit the number of workers; nothing, too, where that is not known.
inline std::optional<GradientCode> read_exact_code(Settings& settings, Code kind, const AlgorithmContext& context) {
  const int workers = context.workers;
  const std::size_t faults = settings.faults_so_far();
  const int stragglers = read_stragglers(settings, workers);
  const std::uint64_t seed = kind == Code::cyclic ? read_seed(settings) : 0;
  if (!can_lay_out(settings, context) || settings.faults_so_far() > faults) return std::nullopt;
  if (kind == Code::ignore_stragglers) return ignore_stragglers(workers, stragglers);
  if (kind == Code::fractional) {
    if (workers % (stragglers + 1) == 0) return fractional_repetition(workers, stragglers);
    settings.fault("stragglers",
                   fmt::format("plus 1 must divide the number of workers, {}, with code = \"fractional\"; "
                               "\"cyclic\" has no such condition",
                               workers));
    return std::nullopt;
  }
  if (workers > most_cyclic_workers) {
    settings.fault("code", fmt::format("cyclic is for at most {} workers, found {}", most_cyclic_workers, workers));
    return std::nullopt;
  }
  auto code = cyclic_repetition(workers, stragglers, seed);
  if (!code)
    settings.fault("stragglers", fmt::format("the cyclic codes drawn for {} stragglers of {} workers have weights too "
                                             "large for double precision; must be fewer, or another code_seed",
                                             stragglers, workers));
  return code;
}

inline std::unique_ptr<Algorithm> make_coded_sgd(Settings& settings, const AlgorithmContext& context) {
  const auto kind = settings
                        .choice<Code>({"code", "How parts are shared out, and how the sum is formed of the answers."},
                                      {{"fractional", Code::fractional},
                                       {"cyclic", Code::cyclic},
                                       {"stochastic", Code::stochastic},
                                       {"ignore-stragglers", Code::ignore_stragglers}})
                        .value_or(Code::fractional);
  const LateWork late =
      settings.choice({"late", "Whether late work is finished, and dropped on arrival, or cancelled."},
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
