#include "algorithms/quorum/stsyn.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "workers/lost_with_state.hpp"
#include "workers/theory/sampled_rounds.hpp"

namespace syncopate {
namespace {

Message brought_by(const Worker& worker, const ModelStatePtr& start, const Work& done) {
  if (done.micro_batches == 0) return Message::note(Step{0});
  return Message::of_difference(worker.step(), worker.combine({{1, start}, {-1, worker.model()}}), done);
}

// What all have to bring, by rank. News of U steps, which end the round no more, may come in between.
std::vector<Message> collect(Server& server) {
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

}  // namespace

void Stsyn::run(Worker& worker) const {
  const Rank server{worker.size()};
  while (worker.receive_model()) {
    const ModelStatePtr start = worker.model();
    const Step enough = std::min(options_.local_steps, std::max(worker.steps_left(), Step{1}));
    LostWithState<Work> done(worker);
    const auto steps = [&] { return Step{(*done).micro_batches / worker.micro_batches()}; };
    for (bool has_told = false; steps() < options_.most_steps;) {
      const auto gradient = worker.compute_step_gradient(Deadline::until_message(), Samples::in_turn);
      if (!gradient) break;
      worker.descend(*gradient / worker.micro_batches());
      (*done).micro_batches += gradient->micro_batches();
      (*done).time += gradient->compute_time();
      const bool is_enough = steps() >= enough || !worker.budget_left(Judged::by_server);
      if (is_enough && !std::exchange(has_told, true)) worker.send(server, Message::note(steps()));
    }
    if (!worker.receive({.from = server})) return;  // the round is over
    worker.send(server, brought_by(worker, start, *done));
  }
}

void Stsyn::serve(Server& server) const {
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

// The card.
namespace {

// What one round takes until the K-th worker has done U steps, and how many steps of all are in the mean.
struct Round {
  double computing_s = 0;
  double steps = 0;
};

// Of `count` drawn steps of each worker, from `first` on; none where that may be too few.
std::optional<Round> round_of(const SampledTimes& times, const StsynOptions& options, double news_s, std::size_t first,
                              std::size_t count) {
  std::vector<std::vector<double>> ends(static_cast<std::size_t>(times.workers), std::vector<double>(count));
  std::vector<double> told;
  for (std::size_t worker = 0; worker < ends.size(); ++worker) {
    const auto steps = std::span(times.step_times).subspan(worker * times.drawn_steps() + first, count);
    std::partial_sum(steps.begin(), steps.end(), ends[worker].begin());
    told.push_back(ends[worker][static_cast<std::size_t>(options.local_steps.value() - 1)]);
  }
  const auto kth = told.begin() + options.quorum - 1;
  std::ranges::nth_element(told, kth);
  Round round{.computing_s = *kth};
  double most_done = 0;
  for (const std::vector<double>& own : ends) {
    const Step done = std::ranges::upper_bound(own, *kth + news_s) - own.begin();
    if (done == Step{std::ssize(own)} && done < options.most_steps) return std::nullopt;
    const auto taken = static_cast<double>(std::min(done, options.most_steps).value());
    round.steps += taken;
    most_done = std::max(most_done, taken);
  }
  if (options.mean.leaves_out_most && times.workers > 1) round.steps -= most_done;
  return round;
}

}  // namespace

// The news that U steps are done goes up, that of the end down, the differences up and the next model down. Rounds are
// put together from drawn steps, of no more of them than it takes to know how far the fastest worker comes.
Forecast Stsyn::forecast(const PredictionInput& input) const {
  if (!input.times.slowest_s) return Forecast::none(not_all_drawn);
  const double note_s = to_seconds(input.network.message({.from = Rank{0}, .to = Rank{input.workers}}));
  const double around_s = 2 * note_s + input.gradient_message_s() + input.message_s();
  const auto enough = static_cast<std::size_t>(options_.local_steps.value());
  for (std::size_t count = enough; count <= input.times.drawn_steps(); count *= 2) {
    std::vector<Round> rounds;
    bool all_known = true;
    const auto time_s = sample_rounds(input.times, static_cast<std::int64_t>(count), [&](std::size_t first) {
      const auto round = round_of(input.times, options_, 2 * note_s, first, count);
      all_known = all_known && round;
      if (round) rounds.push_back(*round);
      return round ? round->computing_s + around_s : 0;
    });
    if (!time_s) break;
    if (!all_known) continue;
    double steps = 0;  // of a round, of all workers
    for (const Round& round : rounds) steps += round.steps / static_cast<double>(rounds.size());
    const double in_file_steps = steps / input.workers, step_s = time_s->mean / in_file_steps;
    std::vector<double> excess;  // how much longer a round is than its steps make it
    for (const Round& round : rounds)
      excess.push_back(round.computing_s + around_s - step_s * round.steps / input.workers);
    return {{{.formula = "sampled K-th worker's sum",
              .step_time_s = step_s,
              .communication_s = (input.gradient_message_s() + input.message_s()) / in_file_steps,
              .kept = 1,
              .drop_rate = {},
              .sync_step_time_s = *input.times.slowest_s + input.all_reduce_s(),
              .step_error_s = mean_of(excess).error / in_file_steps,
              .sync_step_error_s = input.times.slowest_error_s,
              .is_sampled = true}},
            {}};
  }
  return Forecast::none("a round takes more of each worker's steps than a few were drawn of");
}

std::unique_ptr<Algorithm> make_stsyn(Settings& settings, const AlgorithmContext& context) {
  constexpr std::int64_t most = 1'000'000'000;
  StsynOptions options;
  options.quorum =
      static_cast<int>(settings.integer({"quorum", "How many workers with all their local steps end a round (K)."}, 1,
                                        Stated(context.workers, "workers")));
  options.local_steps =
      settings.integer({"local_steps", "How many local steps these have done (U).", "steps"}, 1, most);
  context.work.of(context.workers).check(settings, "local_steps", options.local_steps.value());
  if (const auto cap = settings.optional_integer(
          {"most_steps", "After how many local steps a worker waits for the round's end.", "steps", "it never waits"},
          Stated<std::int64_t>(options.local_steps.value(), "local_steps"), most))
    options.most_steps = Step{*cap};
  options.mean = read_uneven_mean(settings);
  return std::make_unique<Stsyn>(options);
}

}  // namespace syncopate
