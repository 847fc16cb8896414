#include "workers/worker.hpp"

#include <fmt/format.h>

#include <cmath>

#include "workers/compression/compressed_exchanges.hpp"

namespace syncopate {

Participant::Participant(const RunContext& context, Rank rank)
    : context_(context),
      rank_(rank),
      size_(context.cluster.workers()),
      step_(context.first_step),
      model_(context.initial_model) {
  if (context.average && is_heard()) average_ = std::make_unique<MovingAverage>(*context.average, model());
  if (!context.message_compressors.empty() && rank.value < size_)
    compressed_messages_ = std::make_unique<CompressedMessages>(context.message_compressors, context.training, rank);
}

Participant::~Participant() = default;

void Participant::receive_answers(Message& from_server) { compressed_messages_->receive_answers(from_server); }

Step Participant::file_step(Step ahead) const {
  const Step planned = step_ + ahead - added_steps_;
  if (steps_per_file_step_ == 1) return planned;
  // The small addend corrects quotients that rounding has left just below a whole number.
  return Step{static_cast<Step::Rep>(std::floor(static_cast<double>(planned.value()) / steps_per_file_step_ + 1e-9))};
}

void Participant::follow(const LearningRate& learning_rate, Step from) {
  own_schedule_ = std::make_unique<const OwnSchedule>(OwnSchedule{learning_rate, from});
  if (step_ == Step{0} && is_heard()) context_.observer->on_first_rate(this->learning_rate());
}

double Participant::learning_rate(Step ahead) const {
  const Step step = file_step(ahead);
  if (own_schedule_ && step >= own_schedule_->from) return own_schedule_->learning_rate.at(step - own_schedule_->from);
  if (schedule_stretch_ == 1) return context_.learning_rate.at(step);
  const double position = static_cast<double>(step.value()) / schedule_stretch_;
  return context_.learning_rate.at(Step{static_cast<Step::Rep>(position)});
}

bool Participant::budget_left(BudgetView judged) const {
  if (judged != BudgetView::others && taken_ >= data_) return false;
  if (judged == BudgetView::local) return budget_left_at(now());
  const Budget& budget = context_.budget;
  if (judged == BudgetView::server) return !budget.seconds || to_seconds(now()) < *budget.seconds;
  if (budget.steps && file_step() >= *budget.steps + extra_steps_) return false;
  if (!budget.seconds && !budget.samples && !budget.bytes) return true;
  const AgreedProgress agreed = agreed_.value_or(
      AgreedProgress{.time = now(), .micro_batches = kept_total_, .bytes = context_.cluster.bytes_sent()});
  if (budget.seconds && to_seconds(agreed.time) >= *budget.seconds) return false;
  if (budget.samples && agreed.micro_batches * context_.samples_per_micro_batch >= *budget.samples) return false;
  return !(budget.bytes && agreed.bytes >= *budget.bytes);
}

bool Participant::budget_left_at(Time time) const {
  const Budget& budget = context_.budget;
  if (budget.steps && file_step() >= *budget.steps + extra_steps_) return false;
  if (budget.seconds && to_seconds(time) >= *budget.seconds) return false;
  if (!budget.samples) return true;
  const std::int64_t others = agreed_ ? agreed_->micro_batches : 0;
  return (others + size_ * since_sync_.kept) * context_.samples_per_micro_batch < *budget.samples;
}

// Removes the moments: if the method's copy shared them, the optimizer could not update them in place.
ModelStatePtr Participant::model() const {
  const auto is_empty = [](const Moment& moment) { return moment == Moment(); };
  if (!model_ || std::ranges::all_of(model_->moments, is_empty)) return model_;
  auto state = std::make_shared<ModelState>(*model_);
  state->moments = {};
  return state;
}

void Participant::set_model(const ModelStatePtr& model, StatePolicy moments) {
  set_model(model);
  // Averages a single model, which applies the policy to its moments.
  const AveragePolicy policy{.moments = {moments, moments, moments}, .buffers = StatePolicy::keep};
  model_ = context_.training.average({&model_, 1}, policy).front();
}

ModelStatePtr Participant::norm_preserving_mean(const std::vector<WeightedState>& differences, Slice slice,
                                                OfEmbeddings embeddings) const {
  return syncopate::norm_preserving_mean(context_.training, differences, slice, embeddings);
}

double Participant::uniform(Step step, Drawn drawn) const {
  const bool is_own = drawn == Drawn::alone;
  return RandomStream{.seed = context_.seed,
                      .purpose = Purpose::algorithm,
                      .stream = static_cast<std::uint8_t>(is_own ? 0 : 1),
                      .worker = is_own ? rank_ : Rank{},
                      .step = step}
      .uniform(0);
}

void Participant::take_step(const Gradient& gradient, const StepOptions& options, Clipping clipping, Slice slice) {
  if (!options.is_planned) ++added_steps_;
  if (model_) {
    const double rate = options.rate_factor * learning_rate() * options.weight;
    const Training::StepRules rules{.slice = slice, .keeps_second = options.keeps_second_moment, .clipping = clipping};
    const Step after = file_step() + 1;
    if (is_heard() && slice.count == 1 && context_.observer->wants_step_gradient(after)) {
      const Gradient shared = context_.training.share(gradient);
      context_.observer->on_step_gradient(after, now(), shared);
      model_ = context_.training.descend(std::move(model_), shared, rate, rules);
    } else {
      model_ = context_.training.descend(std::move(model_), gradient, rate, rules);
    }
  }
  ++step_;
  const bool is_worker = rank_.value < size_;
  if (model_ && is_worker && context_.observer && context_.observer->wants_worker_models(file_step()))
    context_.observer->on_worker_model({.worker = rank_, .model = model(), .step = file_step(), .time = now()});
}

void Participant::send(Rank to, Message&& message, CalledFrom at) {
  if (compressed_messages_) compressed_messages_->compress(to, message);
  context_.cluster.send(rank_, to, std::move(message), {"send", at});
}

void Participant::publish(Publication publication) {
  if (!is_heard()) return;
  // The published model may be a copy of this participant's model without its moments.
  if (publication.model && model_ && publication.model->parameters == model_->parameters)
    if (const ModelStatePtr other = context_.training.evaluated(model_); other != model_) publication.model = other;
  if (average_ && publication.ensemble.empty() && publication.own.models.empty()) {
    if (publication.model == model_) publication.model = model();
    publication.model = average_->update(publication.model, context_.training);
  }
  publication.step = std::max(publication.step, file_step());
  publication.surplus_steps = static_cast<double>(surplus_) / micro_batches();
  publication.time = now();
  publication.samples = (agreed_ ? agreed_->micro_batches : kept_total_) * context_.samples_per_micro_batch;
  publication.bytes = agreed_ ? agreed_->bytes : context_.cluster.bytes_sent();
  publication.learning_rate = rate_factor_ * learning_rate();
  context_.observer->on_publish(publication);
}

ModelStatePtr Participant::publish(WorkerModel published) {
  published.model = model();
  if (context_.average) {
    if (!average_) average_ = std::make_unique<MovingAverage>(*context_.average, context_.initial_model);
    published.model = average_->update(published.model, context_.training);
  }
  ModelStatePtr evaluated = published.model;
  if (!context_.observer || !budget_left() || !context_.observer->wants_individual_models(file_step()))
    return evaluated;
  published.worker = rank_;
  published.step = file_step();
  published.time = now();
  published.samples = kept_total_ * context_.samples_per_micro_batch;
  published.bytes = context_.cluster.bytes_sent();
  published.learning_rate = learning_rate();
  context_.observer->on_individual_model(std::move(published));
  return evaluated;
}

void Participant::fail(const std::string& why) const {
  throw RunFailure(fmt::format("at {:.6f} s: {}", to_seconds(now()), why));
}

namespace {

// The run fails when outages restart the same micro-batch (or server's step) this many times. The mean time between
// outages must be at least 1/8 of the micro-batch (or step). At 1/8 the micro-batch begins e^8 = 2,981 times on
// average, and more often than this limit with a probability of e^-33.
constexpr std::int64_t most_restarts = 100'000;

// The number of micro-batches that a worker can take before its own data are used up.
std::int64_t data_of(const RunContext& context, Rank rank) {
  const auto index = static_cast<std::size_t>(rank.value);
  if (index >= context.data_of.size() || !context.data_of[index]) return std::numeric_limits<std::int64_t>::max();
  return context.data_of[index]->value() * context.micro_batches;
}

}  // namespace

Worker::Worker(const RunContext& context, Rank rank)
    : Participant(context, rank), may_lose_state_(context.cluster.may_lose_state(rank)) {
  data_ = data_of(context, rank);
  if (context.compressor) compressed_sum_ = std::make_unique<CompressedSum>(context.compressor, context.training, rank);
  if (!context.average_compressors.empty())
    compressed_average_ = std::make_unique<CompressedAverage>(context.average_compressors, context.training, rank);
}

Worker::~Worker() = default;

void Worker::extend_budget(Step extra, bool stretch) {
  if (!context_.budget.steps) return;
  extra_steps_ += extra;
  const auto planned = static_cast<double>(context_.budget.steps->value());
  if (stretch && planned > 0) schedule_stretch_ = (planned + static_cast<double>(extra_steps_.value())) / planned;
}

std::optional<Gradient> Worker::compute_gradient(const MicroBatch& samples, const Deadline& deadline) {
  ++taken_;
  return compute_slot({rank_, step_, next_micro_batch_++}, samples, deadline);
}

std::optional<Gradient> Worker::compute_slot(const MicroBatch& slot, const MicroBatch& samples,
                                             const Deadline& deadline) {
  Attempts attempts{.of = slot};
  while (true) {
    auto gradient = context_.cluster.compute_gradient(rank_, model_, slot, samples, deadline);
    if (gradient || !loses_state(attempts)) return gradient;
    recover();
  }
}

// A step's gradient belongs to one version of a server's model, so at a newer version the whole step begins again.
Gradient Worker::compute_step_with_outages(MicroBatch slot, Samples samples) {
  Gradient sum;
  const Servers servers = context_.cluster.servers();
  const bool restarts_step = servers > 0 && !servers.hold_slices();
  const int first = slot.index, end = first + micro_batches();
  Attempts attempts{.of = slot, .is_step = restarts_step};
  while (slot.index < end) {
    const auto gradient = context_.cluster.compute_gradient(rank_, model_, slot, slot, {});
    if (gradient) {
      sum += *gradient;
      ++slot.index;
      if (!restarts_step) attempts = {.of = slot};
    } else if (loses_state(attempts) && !restarts_step) {
      recover();
    } else {
      discard(std::exchange(sum, {}));
      slot.index = first;
      ask_server_for_model(CalledFrom::current());
      if (samples == Samples::of_step) slot.step = step_;
    }
  }
  return sum;
}

bool Worker::loses_state(Attempts& attempts) {
  if (!may_lose_state_ || !context_.cluster.has_lost_state(rank_)) return false;
  ++states_lost_;
  if (compressed_messages_) compressed_messages_->forget();
  if (compressed_sum_) compressed_sum_->forget();
  if (compressed_average_) compressed_average_->forget();
  if (++attempts.restarts >= most_restarts) give_up(attempts);
  return true;
}

void Worker::give_up(const Attempts& attempts) const {
  const auto& [micro_batch, is_step, restarts] = attempts;
  const std::string what = is_step
                               ? fmt::format("step {} ({} micro-batches)", micro_batch.step.value(), micro_batches())
                               : fmt::format("micro-batch {} of step {}", micro_batch.index, micro_batch.step.value());
  throw RunFailure(
      fmt::format("worker {} at {:.6f} s: {} was restarted {} times, because each time an outage took the worker's "
                  "state before the end; in [[outages]], raise mean_time_between_s (it must not be much shorter than "
                  "such a computation) or set state = \"kept\"",
                  rank_.value, to_seconds(now()), what, restarts));
}

// Goes back to the last agreement. Local steps since then are lost: their micro-batches count as planned but not as
// kept, and their time counts as discarded.
void Worker::recover() {
  if (!recovery_) return;
  const std::int64_t lost = since_sync_.kept - recovery_->kept;
  const Duration lost_time = since_sync_.compute_time - recovery_->compute_time;
  if (lost > 0) context_.cluster.discard(rank_, {rank_, lost, lost_time});
  since_sync_.kept = recovery_->kept;
  since_sync_.compute_time = recovery_->compute_time;
  kept_total_ = recovery_->kept_total;
  model_ = recovery_->model;
  recovery_.reset();
}

Gradient Worker::compute_step_gradient(Samples samples) {
  const bool in_turn = samples == Samples::in_turn;
  if (in_turn && cancelled_turns_ > Step{0}) return *compute_turn(Deadline());
  const MicroBatch first =
      in_turn ? MicroBatch{rank_, taken_ / micro_batches(), 0} : MicroBatch{rank_, step_, next_micro_batch_};
  if (!in_turn) next_micro_batch_ += micro_batches();
  taken_ += micro_batches();
  if (may_lose_state_) return compute_step_with_outages(first, samples);
  return context_.cluster.compute_gradients(rank_, model_, first, micro_batches());
}

std::optional<Gradient> Worker::compute_step_gradient(const Deadline& deadline, Samples samples) {
  if (deadline.at == never && !deadline.at_message) return compute_step_gradient(samples);
  if (taken_ >= data_ || (deadline.at_message && nobody_can_send())) return std::nullopt;
  if (samples == Samples::in_turn) return compute_turn(deadline);
  Gradient sum;
  for (int m = 0; m < micro_batches(); ++m) {
    const auto gradient = compute_gradient(deadline);
    if (!gradient) return std::nullopt;
    sum += *gradient;
  }
  return sum;
}

// Durations are drawn for the current step plus the number of cancelled steps, so that a repeated step gets new ones.
std::optional<Gradient> Worker::compute_turn(const Deadline& deadline) {
  const Step step = taken_ / micro_batches();
  taken_ += micro_batches();
  Gradient sum;
  for (int m = 0; m < micro_batches(); ++m) {
    const auto gradient = compute_slot({rank_, step + cancelled_turns_, m}, {rank_, step, m}, deadline);
    if (!gradient) {
      taken_ -= micro_batches();
      ++cancelled_turns_;
      return std::nullopt;
    }
    sum += *gradient;
  }
  return sum;
}

// Workers send to workers only in methods without a server.
bool Worker::nobody_can_send() const {
  const int first = context_.cluster.servers() > 0 ? size_ : 0;
  for (int other = first; other < size_ + context_.cluster.servers(); ++other)
    if (Rank{other} != rank_ && !has_left(Rank{other})) return false;
  return true;
}

void Worker::descend(const Gradient& gradient, const StepOptions& options) {
  const std::int64_t planned = options.micro_batches.value_or(micro_batches());
  // Steps that an outage undoes count here too, because the worker does not repeat them.
  if (options.is_planned) surplus_ += planned - micro_batches();
  // A reduced gradient was counted when it was summed.
  if (!gradient.reduced()) {
    if (compressed_average_ && !steps_began_at_) steps_began_at_ = model();
    if (!recovery_) declare_newest(model_);
    book_local_step(gradient, planned);
  }
  take_step(gradient, options, Clipping::of_step);
  next_micro_batch_ = 0;
}

void Worker::book_local_step(const Gradient& gradient, std::int64_t planned) {
  since_sync_.kept += gradient.micro_batches();
  since_sync_.planned += planned;
  since_sync_.compute_time += gradient.compute_time();
  kept_total_ += size_ * gradient.micro_batches();  // assumes that all workers took equally many micro-batches
  ++since_sync_.period;
}

Contribution Worker::contribution_with(const Gradient& gradient, std::optional<std::int64_t> planned) {
  Contribution contribution = steps_since_sync();
  contribution.kept += gradient.micro_batches();
  contribution.planned += planned.value_or(micro_batches());
  ++contribution.step;
  ++contribution.period;
  return contribution;
}

void Worker::all_reduce_sum(Gradient& gradient, const SumOptions& options, CalledFrom at) {
  if (compressed_sum_ && !options.is_dense) return all_reduce_compressed(gradient, options, at);
  if (options.counted == Counted::by_tensor) return all_reduce_weighted(gradient, options, at);
  const Contribution contribution = contribution_with(gradient, options.planned);
  // With Counted::micro_batches the exchanged number only costs bytes: the summed gradient counts its micro-batches.
  auto count = static_cast<double>(options.with_statistics.value_or(gradient.micro_batches()));
  const bool is_counted = options.counted != Counted::none || options.with_statistics;
  const std::span<double> counts(&count, is_counted ? 1 : 0);
  agree(context_.cluster.all_reduce_sum(rank_, gradient, counts, contribution, {"all_reduce_sum", at}));
  if (options.with_statistics) context_.training.set_statistics(gradient, std::llround(count));
}

bool Worker::all_reduce_sum(Gradient& gradient, InGroup group, CalledFrom at) {
  Collective what = Collective::all_reduce({});
  what.group_size = group.size;
  if (members_of(what, rank_, size_).count == 1) return budget_left(BudgetView::local);
  book_local_step(gradient, micro_batches());
  what.gradient = std::move(gradient);
  CollectiveResult result =
      context_.cluster.perform(rank_, std::move(what), {.step = step_ + 1}, {"all_reduce_sum", at});
  gradient = std::move(result.gradient);
  recovery_.reset();
  return budget_left_at(result.agreement.time);
}

// A separate function, so that the usual sum needs less space on the stacks of thousands of workers.
void Worker::all_reduce_weighted(Gradient& gradient, const SumOptions& options, CalledFrom at) {
  const Contribution contribution = contribution_with(gradient, options.planned);
  std::vector<double> counts = context_.training.contributions(gradient);
  agree(context_.cluster.all_reduce_sum(rank_, gradient, counts, contribution, {"all_reduce_sum", at}));
  context_.training.weigh_tensors(gradient, counts);
}

// Each worker sends a packet instead of its gradient, or two packets if a second exchange follows the first.
void Worker::all_reduce_compressed(Gradient& gradient, const SumOptions& options, CalledFrom at) {
  if (options.counted == Counted::by_tensor)
    fail("a sum with one count per tensor (Counted::by_tensor) cannot be compressed");
  const Contribution contribution = contribution_with(gradient, options.planned);
  const Place place{"all_reduce_sum", at};
  const double count = static_cast<double>(options.with_statistics.value_or(gradient.micro_batches()));
  Collective what{.gradient = Gradient(nullptr, gradient.micro_batches(), gradient.compute_time())};
  what.packet = compressed_sum_->first_packet(gradient, step_, learning_rate(), model_);
  CompressedSum::Exchanged exchanged{.step = step_};
  const std::vector<Exchange> exchanges = compressed_sum_->exchanges(step_);
  if (exchanges.size() > 1) {
    const std::vector<MicroBatch> carried = what.packet.carried;
    const Collective::Kind kind = Collective::first_exchange(exchanges.front().operation);
    Collective first{.kind = kind, .packet = std::move(what.packet), .root = compressed_sum_->root(step_)};
    const CollectiveResult result = context_.cluster.perform(rank_, std::move(first), {}, place);
    const SharedPackets& packets = result.packets;
    if (kind == Collective::Kind::exchange_chunks) {
      what.packet = compressed_sum_->reduced_packet(carried, step_, packets, result.chunk);
    } else {
      if (packets)
        exchanged.between = *context_.derived->get<CellPtr>(packets, [&] { return compressed_sum_->between(packets); });
      what.packet = compressed_sum_->second_packet(carried, step_, exchanged.between);
    }
  }
  what.kind = Collective::last_exchange(exchanges.back().operation);
  if (options.counted != Counted::none || options.with_statistics) what.numbers = {count};
  CollectiveResult result = context_.cluster.perform(rank_, std::move(what), contribution, place);
  gradient = std::move(result.gradient);
  if (result.packets) {
    exchanged.packets = result.packets;
    exchanged.micro_batches = gradient.micro_batches();
    const auto summed = context_.derived->get<CompressedSum::Summed>(
        result.packets, [&] { return compressed_sum_->sum(exchanged, size_); });
    gradient = summed->gradient;
    compressed_sum_->end(exchanged, *summed, size_);
    if (options.dropped) compressed_sum_->fold(*options.dropped);
  }
  gradient.mark_reduced();
  if (options.with_statistics) context_.training.set_statistics(gradient, std::llround(result.numbers->front()));
  agree(result.agreement);
}

StartedCollective Worker::start(Collective what, CalledFrom at) {
  const bool is_sum = properties_of(what.kind).sums_gradients;
  Contribution contribution{.step = step_};
  if (is_sum) {
    contribution = contribution_with(what.gradient, what.planned);
  } else if (what.kind == Collective::Kind::first_part) {  // the sum of the other parts books these micro-batches
    since_sync_.kept += what.gradient.micro_batches();
    since_sync_.planned += what.planned.value_or(what.gradient.micro_batches());
    contribution.step += 1;
  } else if (!what.group_size) {  // a group's steps are booked by the next collective of all workers
    contribution = steps_since_sync();
  }
  contribution.step += sums_under_way_;
  sums_under_way_ += is_sum ? 1 : 0;
  recovery_.reset();
  const bool is_compressed = compressed_average_ && what.kind == Collective::Kind::average;
  if (what.kind == Collective::Kind::average) what.weight = model_weight(what.weight);
  if (is_compressed) what = compressed(std::move(what));
  if (what.is_first_exchange()) fail("start() cannot begin a compressed average that needs two exchanges");
  what.from = nullptr;
  StartedCollective started = context_.cluster.start(rank_, std::move(what), contribution, {"start", at});
  if (is_compressed) compressed_average_->remember(started.number);
  return started;
}

// Returns the exchange of compressed differences that replaces an average.
Collective Worker::compressed(Collective&& average) {
  const bool is_cut_otherwise = average.slice.count != compressed_average_->slices();
  if (average.group_size || is_cut_otherwise || average.weight != 1 ||
      average.policy.averaged_vectors(most_moments) > 1)
    fail(
        "this average cannot be compressed: it is of a group, includes moments, has a weight, or has other slices than "
        "the method declared");
  steps_began_at_ = nullptr;
  return compressed_average_->exchange(std::move(average));
}

CollectiveResult Worker::finish(StartedCollective started, CalledFrom at) {
  if (started.number < 0) fail("finish() was called for a collective that is already finished");
  const bool is_of_group = started.group.has_value();
  const bool is_average =
      started.kind == Collective::Kind::sum_differences || started.kind == Collective::Kind::gather_differences;
  const std::int64_t number = started.number;
  sums_under_way_ -= properties_of(started.kind).sums_gradients ? 1 : 0;
  CollectiveResult result = context_.cluster.finish(rank_, std::move(started), {"finish", at});
  recovery_.reset();
  if (is_of_group) return result;  // a group's collective does not involve all workers
  agree(result.agreement);
  if (is_average) {
    const auto mine = compressed_average_->recall(number);
    if (result.packets) result.model = common_mean(mine, result.packets);
  }
  return result;
}

// A group's average does not involve all workers and writes no row of steps.csv. The average over all ends the round.
bool Worker::average_model(const Averaging& how, CalledFrom at) {
  if (compressed_average_) return average_compressed(how, at);
  const bool is_of_all = !how.group_size;
  const Contribution contribution = is_of_all ? steps_since_sync() : Contribution();
  Averaging weighed = how;
  weighed.weight = model_weight(how.weight);
  const AgreedProgress agreed = context_.cluster.average(rank_, model_, weighed, contribution, {"average_model", at});
  recovery_.reset();
  if (!is_of_all) return budget_left_at(agreed.time);
  agree(agreed);
  return budget_left(BudgetView::others);
}

// A worker that has taken no steps sends a difference of zero.
bool Worker::average_compressed(const Averaging& how, CalledFrom at) {
  const Contribution contribution = steps_since_sync();
  Collective average = Collective::average(model_, how);
  if (!how.from) average.from = steps_began_at_ ? steps_began_at_ : model_;
  const Place place{"average_model", at};
  Collective exchange = compressed(std::move(average));
  const auto mine = compressed_average_->newest();
  if (exchange.is_first_exchange()) {
    const CollectiveResult first = context_.cluster.perform(rank_, std::move(exchange), {}, place);
    exchange = compressed_average_->second_exchange(mine, first.packets, first.chunk);
  }
  const CollectiveResult result = context_.cluster.perform(rank_, std::move(exchange), contribution, place);
  agree(result.agreement);
  if (result.packets) model_ = common_mean(mine, result.packets);
  return budget_left(BudgetView::others);
}

// The workers of one process compute the mean once. Each worker adds its own moments and its buffers that are not
// averaged.
ModelStatePtr Worker::common_mean(const SentDifference& mine, const SharedPackets& packets) {
  const auto derive = [&] { return compressed_average_->mean(mine, packets, size_); };
  return compressed_average_->model_with(mine, *context_.derived->get<ModelStatePtr>(packets, derive));
}

// Fails after too many rounds without progress. Without this, a budget of samples would never be used up if a threshold
// is shorter than every micro-batch.
void Worker::check_progress() {
  constexpr int most_idle_rounds = 1000;
  const Budget& budget = context_.budget;
  if (budget.steps || budget.seconds || budget.bytes) return;
  idle_rounds_ = std::exchange(kept_before_, agreed_->micro_batches) == kept_before_ ? idle_rounds_ + 1 : 0;
  if (idle_rounds_ <= most_idle_rounds) return;
  fail(
      fmt::format("no worker has finished a micro-batch in the last {} rounds, so the budget of samples would never be "
                  "used up; is a threshold shorter than a micro-batch?",
                  most_idle_rounds));
}

std::vector<PartialSum> Worker::partial_all_reduce_sum(Gradient gradient, const Activation& activation,
                                                       LateGradient late, MissedSums missed, CalledFrom at) {
  const Contribution contribution = contribution_with(gradient);
  auto sums = context_.cluster.partial_all_reduce(rank_, std::move(gradient), activation, late, contribution,
                                                  {"partial_all_reduce_sum", at});
  if (!sums.empty()) agreed_ = sums.back().agreement;
  recovery_.reset();
  if (missed == MissedSums::newest && sums.size() > 1) {
    step_ += std::ssize(sums) - 1;
    sums.erase(sums.begin(), sums.end() - 1);
  }
  return sums;
}

bool Worker::receive_model(std::vector<double>* numbers, CalledFrom at) {
  if (taken_ >= data_ || has_last_model_) return false;
  steps_are_versions_ = true;
  if (context_.cluster.servers().hold_slices()) return receive_slices(at);
  const auto message = receive_at({.from = server()}, {"receive_model", at});
  if (!message) return false;
  adopt(*message);
  if (numbers) *numbers = std::move(message->numbers);
  return message->kind != Message::Kind::last_model;
}

void Worker::adopt(const Message& from_server) {
  steps_are_versions_ = true;
  kept_total_ = from_server.kept;
  if (model_) {
    const bool is_whole = from_server.slice.count == 1;
    model_ = is_whole ? context_.training.adopt(model_, from_server.model)
                      : with_slice(model_, from_server.model, from_server.slice);
  }
  start_from(from_server.step);
}

// If the version has not changed, the worker continues with the next micro-batches of that step. Later local steps
// start from this model.
void Worker::start_from(Step version) {
  recovery_.reset();
  if (version != step_) next_micro_batch_ = 0;
  step_ = version;
}

bool Worker::receive_slices(CalledFrom at) {
  const auto servers = static_cast<std::size_t>(context_.cluster.servers());
  std::vector<ModelStatePtr> slices(servers);
  slice_steps_.assign(servers, Step{});
  Step newest{};
  bool is_last = false;
  const auto receive_slice = [&](std::size_t shard) {
    const Rank server = context_.cluster.server(static_cast<int>(shard));
    const auto message = receive_at({.from = server}, {"receive_model", at});
    if (!message) return false;
    slice_steps_[shard] = message->step;
    newest = std::max(newest, message->step);
    kept_total_ = message->kept;
    is_last |= message->kind == Message::Kind::last_model;
    slices[shard] = std::move(message->model);
    return true;
  };
  for (std::size_t shard = 0; shard < servers; ++shard)
    if (!receive_slice(shard)) return false;
  while (true) {
    const auto behind = std::find_if(slice_steps_.begin(), slice_steps_.end(), [&](Step s) { return s < newest; });
    if (behind == slice_steps_.end()) break;
    const auto shard = static_cast<std::size_t>(behind - slice_steps_.begin());
    send(context_.cluster.server(static_cast<int>(shard)), Message::request_after(*behind), at);
    if (receive_slice(shard)) continue;
    if (!is_last) return false;
    break;  // servers whose budget is in seconds may end at different versions
  }
  model_ = context_.training.assemble(model_, slices);
  const Step before = step_;
  start_from(newest);
  if (newest > before) publish();
  return !is_last;
}

void Worker::send_gradient(Gradient gradient, ClippedBy clipped_by, CalledFrom at) {
  // Time-only runs clip nothing, so they skip the cost of moving the gradient.
  if (clipped_by == ClippedBy::worker && !context_.training.time_only())
    gradient = context_.training.clipped(std::move(gradient), micro_batches());
  if (context_.cluster.servers().hold_slices()) return send_slices(gradient, at);
  send(server(), Message::of_gradient(step_, std::move(gradient)), at);
}

// Each worker begins with a different server, so that they do not all use one server's link at the same time.
void Worker::send_slices(const Gradient& gradient, CalledFrom at) {
  const int servers = context_.cluster.servers();
  for (int i = 0; i < servers; ++i) {
    const int shard = (rank_.value + i) % servers;
    const Step version = slice_steps_.empty() ? step_ : slice_steps_[static_cast<std::size_t>(shard)];
    Message message = Message::of_gradient(version, gradient);
    message.slice = {shard, servers};
    send(context_.cluster.server(shard), std::move(message), at);
  }
}

ReceivedMessage Worker::receive_at(const ReceiveOptions& which, const Place& place) {
  auto message = context_.cluster.receive(rank_, which.from, which.until, place);
  if (message && message->answers > 0) receive_answers(*message);
  return message;
}

// The server sends its whole current model (Server::receive), including any slices that it has sent before. If step()
// is the version of the server's model, the worker takes the model's step. The numbering of the step's micro-batches
// continues.
void Worker::ask_server_for_model(CalledFrom at) {
  send(server(), Message::request(), at);
  ReceivedMessage message;
  do {
    message = context_.cluster.receive(rank_, server(), never, {"ask_server_for_model", at});
  } while (message && (!message->has_model() || message->slice.count > 1));
  if (!message) return;  // the server has ended and accepts no more gradients
  if (message->answers > 0) receive_answers(*message);
  has_last_model_ |= message->kind == Message::Kind::last_model;
  kept_total_ = message->kept;
  if (model_) model_ = context_.training.adopt(model_, message->model);
  if (steps_are_versions_) step_ = message->step;
}

}  // namespace syncopate
