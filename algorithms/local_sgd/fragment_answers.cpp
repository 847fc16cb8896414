#include "algorithms/local_sgd/fragment_answers.hpp"

#include <algorithm>
#include <utility>

namespace syncopate {

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
