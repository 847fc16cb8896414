#include "algorithms/local_sgd/decoupled_diloco.hpp"

#include <set>

namespace syncopate {

namespace {

// A worker's side: it takes local steps, replaces fragments of its model, and answers the server's rounds.
class FragmentLearner {
 public:
  // `worker` must outlive this object. It answers a round once it has taken `minimum_steps` steps since it received the
  // round's fragment. The answer is its model, or, if it `subtracts`, the base (all fragments as received) minus its
  // model.
  FragmentLearner(Worker& worker, int fragments, Step minimum_steps, bool subtracts)
      : worker_(worker), minimum_steps_(minimum_steps), progress_(fragments) {
    if (subtracts) base_ = worker.model();
  }

  // Takes a step from the worker's model. If an outage has erased the model, the worker steps from the server's newest
  // one, which becomes the base, and asks the server which round is open.
  void take_local_step() {
    ResetOnOutage<bool> has_state(worker_, true);
    const Gradient gradient = worker_.compute_step_gradient(Samples::in_turn);
    const bool had_state = *has_state;
    if (!had_state) restart();
    worker_.descend(gradient / worker_.micro_batches());
    progress_.add_step({.micro_batches = gradient.micro_batches(), .time = gradient.compute_time()});
    if (!had_state) worker_.send(worker_.server(), Message::note(worker_.step()));
  }

  // Replaces fragments of the worker's model by those that have arrived from the server.
  void apply_fragments() {
    while (const auto news = worker_.receive({.from = worker_.server(), .until = worker_.now()})) {
      if (!news->numbers.empty()) open_ = OpenRound::from(news->numbers);
      if (!news->has_model()) continue;
      worker_.adopt(*news);
      if (base_) base_ = worker_.with_slice(base_, news->model, news->slice);
      discard(progress_.receive(news->slice.index));
      if (open_) sync_s_ = to_seconds(worker_.now() - open_->last_ended);
    }
  }

  // Sends the open round's fragment if the worker has not answered the round yet, the round has begun, and the worker
  // has taken `minimum_steps` steps since it received the fragment.
  void answer_if_due() {
    if (!open_ || worker_.now() < open_->begins) return;
    const Slice fragment = open_->fragment(progress_.fragments());
    if (progress_.steps(fragment.index) < minimum_steps_) return;
    worker_.send(worker_.server(), answer_of(fragment.index).message(*open_, fragment));
    open_.reset();
  }

  void leave() { discard(progress_.receive_all()); }

 private:
  void discard(const BookedTime& lost) {
    if (lost.micro_batches > 0) worker_.discard(Gradient(nullptr, lost.micro_batches, lost.time));
  }

  void restart() {
    discard(progress_.receive_all());
    worker_.set_model(worker_.model(), StatePolicy::reset);
    if (base_) base_ = worker_.model();
    open_.reset();
  }

  FragmentAnswer answer_of(int fragment) {
    const ModelStatePtr mine = worker_.model();
    const Step steps = progress_.steps(fragment);
    return {.model = base_ ? worker_.combine({{1, base_}, {-1, mine}}, mine) : mine,
            .work = progress_.report(),
            .micro_batches = steps.value() * worker_.micro_batches(),
            .steps = steps,
            .sync_s = sync_s_};
  }

  Worker& worker_;
  Step minimum_steps_;
  FragmentProgress progress_;
  std::optional<OpenRound> open_ = OpenRound{};  // none: already answered, or unknown
  std::optional<double> sync_s_{};               // from a round's end to its fragment's arrival; none: no fragment yet
  ModelStatePtr base_{};                         // null: the server subtracts
};

// The answers that the server has received, by fragment.
class FragmentAnswers {
 public:
  FragmentAnswers(Server& server, int fragments, LateAnswers late)
      : server_(server), late_(late), of_(static_cast<std::size_t>(fragments)) {}

  void open(const OpenRound& round) { round_ = round; }

  // Receives until `time`, or until all workers have left.
  void wait_until(Time time) {
    while (server_.now() < time && server_.workers_left() > 0) receive(time);
  }

  // Receives until `workers` workers, or all that have not left, have answered the open round, but not beyond `until`.
  void collect(int workers, Time until) {
    while (server_.now() < until && std::ssize(here().senders) < workers && !all_have_answered()) receive(until);
  }

  // Takes the answers to the open round, sorted by worker.
  std::vector<FragmentAnswer> take() {
    std::vector<FragmentAnswer> answers = std::exchange(here(), {}).answers;
    std::ranges::stable_sort(answers, {}, &FragmentAnswer::from);
    return answers;
  }

 private:
  struct OfFragment {
    std::vector<FragmentAnswer> answers;
    std::set<Rank> senders;  // who sent the answers; with late ones there may be several answers of one worker
  };

  OfFragment& here() { return of_[static_cast<std::size_t>(round_.fragment(static_cast<int>(of_.size())).index)]; }

  bool all_have_answered() {
    const std::set<Rank>& senders = here().senders;
    if (server_.workers_left() == server_.size()) return std::ssize(senders) == server_.size();
    const std::vector<Rank> answered(senders.begin(), senders.end());
    return std::ssize(answered) == server_.workers_left(answered);
  }

  void receive(Time until) {
    const auto message = server_.receive(until);
    if (!message) return;                        // it is `until`, or a worker has left
    if (message->kind == Message::Kind::note) {  // a worker that has lost its state asks which round is open
      if (!here().senders.contains(message->from))
        server_.send(message->from, Message::note(server_.step(), round_.numbers()));
      return;
    }
    const Step late_by = round_.number - message->step;
    const bool counts = late_by == Step{0} || late_ == LateAnswers::count;
    if (!server_.accept(*message, {.is_needed = counts, .staleness = late_by})) return;
    OfFragment& fragment = of_[static_cast<std::size_t>(message->slice.index)];
    fragment.answers.push_back(FragmentAnswer::from_message(*message));
    fragment.senders.insert(message->from);
  }

  Server& server_;
  LateAnswers late_;
  OpenRound round_;
  std::vector<OfFragment> of_;
};

GraceOptions read_grace(Settings settings) {
  GraceOptions options;
  options.margin =
      settings.number({"margin", "Share of the spare time in which the server waits (gamma)."}, Range::between(0, 1));
  options.overlap_steps =
      settings.number({"overlap_steps", "Local steps within which a round should end (tau).", "steps"},
                      Range::at_least(0), options.overlap_steps);
  options.averaging = settings.number({"averaging", "Weight of the newest value in the averages of measured times."},
                                      Range{.low = 0, .high = 1, .low_open = true}, options.averaging);
  options.initial_s = settings.number({"initial_s", "The window until times have been measured.", "s"},
                                      Range::between(0, 1e9), options.initial_s);
  options.longest_s = settings.number({"longest_s", "The longest window.", "s"}, Range::at_least(0), options.longest_s);
  return options;
}

}  // namespace

void DecoupledDiLoCo::run(Worker& worker) const {
  FragmentLearner learner(worker, options_.fragments.count(), options_.minimum_steps, options_.workers_subtract());
  while (worker.budget_left(BudgetView::server) && !worker.has_left(worker.server())) {
    learner.take_local_step();
    learner.apply_fragments();
    learner.answer_if_due();
  }
  learner.leave();
}

void DecoupledDiLoCo::serve(Server& server) const {
  options_.fragments.check(server);
  GraceWindow grace(options_.grace.value_or(GraceOptions{}));
  FragmentAnswers answers(server, options_.fragments.count(), options_.late);
  FragmentMoments moments;
  OpenRound round;
  while (server.budget_left()) {
    answers.open(round);
    const Slice fragment = round.fragment(options_.fragments.count());
    const Time begun = std::max(round.begins, server.now());
    answers.wait_until(begun);
    answers.collect(options_.quorum.value_or(server.size()), never);
    grace.record_quorum(to_seconds(server.now() - begun));
    answers.collect(server.size(), later(server.now(), from_seconds(grace.length_s())));
    const std::vector<FragmentAnswer> taken = answers.take();
    if (taken.empty()) return;  // all workers have left

    const AnswerTotals totals(taken, server.micro_batches());
    grace.record_step(totals.slowest_step_s);
    if (totals.slowest_sync_s) grace.record_sync(*totals.slowest_sync_s);
    server.descend(stepped(server, fragment, taken, moments), totals.micro_batches);
    server.publish();
    if (!server.budget_left()) return;
    round = {.number = round.number + Step{1}, .begins = begun, .last_ended = server.now()};
    if (options_.local_steps)  // the shortest time between the beginnings of two rounds
      round.begins = later(begun, from_seconds(options_.steps_per_round() * *grace.step_s()));
    for (const Rank worker : Ranks(server.size()))
      if (!server.has_left(worker)) server.send_model(worker, fragment, round.numbers());
  }
}

ModelStatePtr DecoupledDiLoCo::stepped(const Server& server, Slice fragment, const std::vector<FragmentAnswer>& answers,
                                       FragmentMoments& moments) const {
  const ModelStatePtr last = server.model();
  std::vector<WeightedState> differences;
  for (const FragmentAnswer& answer : answers) {
    ModelStatePtr difference = answer.model;
    if (!options_.workers_subtract()) difference = server.combine({{1, last}, {-1, answer.model}}, answer.model);
    differences.push_back({weight_of(answer.micro_batches, answer.steps), difference});
  }
  const ModelStatePtr merged = merge(server, options_.merge, std::move(differences), fragment);
  const ModelStatePtr average = server.combine({{1, last}, {-1, merged}}, merged);
  const OuterStep at{.last = last, .average = average, .inner_rate = server.learning_rate()};
  return moments.step(server, options_.outer, at, fragment);
}

std::unique_ptr<Algorithm> make_decoupled_diloco(Settings& settings, const AlgorithmContext& context) {
  DecoupledOptions options;
  options.quorum = settings.optional_integer(
      {"quorum", "How many workers must answer before a round may end (K).", "workers", "all"}, 1,
      Stated<std::int64_t>(context.workers, "the number of workers"));
  options.fragments = read_fragments(settings, 1, context.parameters);
  const BudgetCheck work = context.work.of(context.workers);
  if (const auto steps = settings.optional_integer(
          {"local_steps", "Rounds begin at least local_steps / fragments times the step time apart (H).", "steps",
           "each begins at the end of the previous one"},
          1, 1'000'000'000))
    options.local_steps = work.check(settings, "local_steps", *steps, options.fragments.count());
  options.minimum_steps = settings.integer(
      {"minimum_steps",
       "Least number of steps that a worker takes after it has received a fragment, before it answers.", "steps"},
      1, 1'000'000'000, 1);
  work.check(settings, "minimum_steps", options.minimum_steps.value());
  if (settings.has("grace")) {
    options.grace = read_grace(settings.section(
        {"grace", "How long the server waits for more answers after the quorum; if left out, it does not wait."}));
    if (!options.quorum) settings.fault("grace", "needs a `quorum`: without it a round waits for all workers anyway");
    if (options.quorum == context.workers)
      settings.fault("grace", "must be left out: with a quorum of all workers there is nobody left to wait for");
  }
  options.merge = read_merge_rule(settings);
  using Anchor = DecoupledOptions::Anchor;
  options.anchor = settings.choice({"anchor",
                                    "A worker's fragment is subtracted from the server's newest one, or from the one "
                                    "it received last."},
                                   {{"server", Anchor::server}, {"base", Anchor::base}}, options.anchor);
  options.late = settings.choice({"late",
                                  "Whether answers to a round that has ended are dropped, or count in their "
                                  "fragment's next round."},
                                 {{"drop", LateAnswers::drop}, {"count", LateAnswers::count}}, options.late);
  options.outer =
      make_outer_optimizer(settings.section({"outer", "The optimizer that steps along the merged outer gradients."}));
  return std::make_unique<DecoupledDiLoCo>(options);
}

}  // namespace syncopate
