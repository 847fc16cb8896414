#include "algorithms/local_sgd/fragment_answers.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace syncopate {

std::vector<double> OpenRound::numbers() const {
  return {static_cast<double>(number.value()), to_seconds(begins), to_seconds(last_ended)};
}

OpenRound OpenRound::from(const std::vector<double>& numbers) {
  return {.number = Step{static_cast<Step::Rep>(numbers[0])},
          .begins = Time{from_seconds(numbers[1])},
          .last_ended = Time{from_seconds(numbers[2])}};
}

Message FragmentAnswer::message(const OpenRound& round, Slice fragment) const {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  Message message = Message::of_difference(round.number, model, work);
  message.slice = fragment;
  message.numbers = {static_cast<double>(micro_batches), static_cast<double>(steps.value()), sync_s.value_or(none)};
  return message;
}

FragmentAnswer FragmentAnswer::from_message(const Message& message) {
  const std::vector<double>& numbers = message.numbers;
  return {.from = message.from,
          .model = message.model,
          .work = message.work(),
          .micro_batches = static_cast<std::int64_t>(numbers[0]),
          .steps = Step{static_cast<Step::Rep>(numbers[1])},
          .sync_s = std::isnan(numbers[2]) ? std::nullopt : std::optional(numbers[2])};
}

void FragmentAnswers::wait_until(Time time) {
  while (server_.now() < time && server_.workers_left() > 0) receive(time);
}

void FragmentAnswers::collect(int workers, Time until) {
  while (server_.now() < until && std::ssize(here().senders) < workers && !all_have_answered()) receive(until);
}

bool FragmentAnswers::all_have_answered() {
  const std::set<Rank>& senders = here().senders;
  if (server_.workers_left() == server_.size()) return std::ssize(senders) == server_.size();
  const std::vector<Rank> answered(senders.begin(), senders.end());
  return std::ssize(answered) == server_.workers_left(answered);
}

std::vector<FragmentAnswer> FragmentAnswers::take() {
  std::vector<FragmentAnswer> answers = std::exchange(here(), {}).answers;
  std::ranges::stable_sort(answers, {}, &FragmentAnswer::from);
  return answers;
}

void FragmentAnswers::receive(Time until) {
  const auto message = server_.receive(until);
  if (!message) return;                        // the time is over, or a worker has left
  if (message->kind == Message::Kind::note) {  // who has lost its state asks which round is open to it
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

}  // namespace syncopate
