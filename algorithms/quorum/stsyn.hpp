// STSyn: Local SGD whose round ends when the K-th worker has done U local steps. No worker stops earlier: fast ones
// take more than U steps, and the steps of slow ones count, too. All workers that have done a step are averaged.
// Source:  Zhu, Zhang, Wang 2024, "STSyn: Speeding Up Local SGD With Straggler-Tolerant Synchronization": the abstract,
//          and the authors' published code with its page.
// Shapes:  gradient, parameters, difference: (P,) flat float32.
// Cost:    per round N models down, a difference of P floats up from each worker with a step, and up to three notes
//          without values per worker: "U steps are done", "the round is over", "nothing to contribute".
// Differs: it is not established how workers learn of a round's end. Here they report their U-th step to the server,
//          which reports the end to all workers. Its note cancels the steps in progress; work done until the note
//          arrives counts. All models have equal weights in the mean; `weights` can also weigh them by steps. The code
//          for heterogeneous data stops a worker after 1.5 U steps, and leaves out the worker with most steps (the
//          first of several), without giving a reason; the other scripts and the page do neither. Here these are the
//          options `most_steps` and `leaves_out_most`, off by default. Moments stay with their worker; the code creates
//          a new optimizer, without momentum, in each round. The last round is limited to the remaining steps of the
//          budget. A worker that can take no further step, since its data or the budget's time are used up, counts as
//          done, and stays until the round's end. No round waits for a worker that has left: K is at most the number of
//          those present. If a worker is down when the round ends, the round waits until it is up again. A worker that
//          loses its state loses its steps of this round, and begins the round again from the round's first model; if
//          it had already reported U steps, it still counts as done.
// Checks:  with K = N and equal constant times it is Local SGD with H = U, to rounding. With exponential step times, a
//          round takes E[X(K:N)], the mean of the K-th smallest of N sums of U step times (Erlang distributions), and
//          has N E[X(K:N)] / (mean step time) steps. We derived both; the paper's closed forms are not established.
//          Hand-worked timelines; a recursion in double precision.
#pragma once

#include <algorithm>
#include <limits>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// How a server averages models after different numbers of local steps.
struct StsynMean {
  enum class Weights { equal, steps };
  Weights weights = Weights::equal;
  // Whether the worker with most steps (the first of several) is left out, if two or more workers have steps.
  bool leaves_out_most = false;
};

// Steps to the mean of the models that these differences (at least one, sorted by rank) describe, and publishes it.
inline void step_to_mean(Server& server, std::vector<Message> differences, const StsynMean& how) {
  const auto work_of = [](const Message& one) { return one.work().micro_batches; };
  if (how.leaves_out_most && differences.size() > 1) {
    const auto most = std::ranges::max_element(differences, {}, work_of);
    server.accept(*most, {.is_needed = false});
    differences.erase(most);
  }
  const bool by_steps = how.weights == StsynMean::Weights::steps;
  std::int64_t micro_batches = 0;
  for (const Message& one : differences) micro_batches += work_of(one);
  const auto total = static_cast<double>(by_steps ? micro_batches : std::ssize(differences));
  std::vector<WeightedState> terms = {{1, server.model()}};
  for (const Message& one : differences) {
    server.accept(one);
    terms.push_back({-static_cast<double>(by_steps ? work_of(one) : 1) / total, one.model});
  }
  server.descend(server.combine(terms), micro_batches);
  server.publish();
}

struct StsynOptions {
  static constexpr Step no_cap{std::numeric_limits<Step::Rep>::max()};
  int quorum = 1;            // K
  Step local_steps{1};       // U
  Step most_steps = no_cap;  // per worker and round; at least U
  StsynMean mean{};
};

class Stsyn : public Algorithm {
 public:
  explicit Stsyn(const StsynOptions& options) : options_(options) {}

  void run(Worker& worker) const override {
    while (worker.receive_model()) {
      const ModelStatePtr start = worker.model();
      const Step enough = std::min(options_.local_steps, std::max(worker.steps_left(), Step{1}));
      ResetOnOutage<BookedTime> done(worker);
      const auto steps = [&] { return Step{(*done).micro_batches / worker.micro_batches()}; };
      for (bool has_reported = false; steps() < options_.most_steps;) {
        const auto gradient = worker.compute_step_gradient(Deadline::until_message(), Samples::in_turn);
        if (!gradient) break;
        worker.descend(*gradient / worker.micro_batches());
        (*done).micro_batches += gradient->micro_batches();
        (*done).time += gradient->compute_time();
        const bool is_enough = steps() >= enough || !worker.budget_left(BudgetView::server);
        if (is_enough && !std::exchange(has_reported, true)) worker.send(worker.server(), Message::note(steps()));
      }
      if (!worker.receive({.from = worker.server()})) return;  // the round is over
      worker.send(worker.server(), brought_by(worker, start, *done));
    }
  }

  void serve(Server& server) const override {
    while (server.budget_left()) {
      server.send_model(Receivers::all);
      for (int done = 0; done < std::min(options_.quorum, server.workers_left());)
        if (server.receive()) ++done;
      for (const Rank worker : Ranks(server.size()))
        if (!server.has_left(worker)) server.send(worker, Message::note(server.step()));
      std::vector<Message> brought = collect(server);
      if (!brought.empty()) step_to_mean(server, std::move(brought), options_.mean);
      if (server.workers_left() == 0) return;
    }
  }

  Traits traits() const override {
    return {.servers = 1,
            .publishes_rounds = true,
            .sends_gradients = true,
            .rejects_gradients = options_.mean.leaves_out_most,
            .held = {.models = 1.5}};
  }

 private:
  static Message brought_by(const Worker& worker, const ModelStatePtr& start, const BookedTime& done) {
    if (done.micro_batches == 0) return Message::note(Step{0});
    return Message::of_difference(worker.step(), worker.combine({{1, start}, {-1, worker.model()}}), done);
  }

  // Returns the differences of all workers, sorted by rank. Late notes of U steps may arrive in between.
  static std::vector<Message> collect(Server& server) {
    std::vector<Rank> heard;
    std::vector<Message> brought;
    for (int expected = server.workers_left(); std::ssize(heard) < expected;) {
      const auto message = server.receive();
      if (!message) expected = server.workers_left(heard);
      if (!message || (message->kind == Message::Kind::note && message->step > Step{0})) continue;
      heard.push_back(message->from);
      if (message->kind == Message::Kind::difference) brought.push_back(std::move(*message));
    }
    std::ranges::sort(brought, {}, &Message::from);
    return brought;
  }

  StsynOptions options_;
};

inline std::unique_ptr<Algorithm> make_stsyn(Settings& settings, const AlgorithmContext& context) {
  constexpr std::int64_t most = 1'000'000'000;
  StsynOptions options;
  options.quorum = static_cast<int>(
      settings.integer({"quorum", "How many workers must have done `local_steps` before a round ends (K)."}, 1,
                       Stated(context.workers, "workers")));
  options.local_steps =
      settings.integer({"local_steps", "Local steps after which a worker counts in the quorum (U).", "steps"}, 1, most);
  context.work.of(context.workers).check(settings, "local_steps", options.local_steps.value());
  if (const auto cap = settings.optional_integer(
          {"most_steps", "After how many local steps a worker waits for the round's end.", "steps", "it never waits"},
          Stated<std::int64_t>(options.local_steps.value(), "local_steps"), most))
    options.most_steps = Step{*cap};
  using Weights = StsynMean::Weights;
  options.mean.weights =
      settings.choice({"weights", "How models are weighted in the mean: equally, or by their numbers of steps."},
                      {{"equal", Weights::equal}, {"steps", Weights::steps}}, options.mean.weights);
  options.mean.leaves_out_most =
      settings.flag({"leaves_out_most",
                     "Whether the worker with most local steps is left out of the mean, as in some authors' code."},
                    options.mean.leaves_out_most);
  return std::make_unique<Stsyn>(options);
}

}  // namespace syncopate
