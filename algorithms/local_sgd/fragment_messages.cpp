#include "algorithms/local_sgd/fragment_messages.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

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

AnswerTotals::AnswerTotals(const std::vector<FragmentAnswer>& answers, int micro_batches_per_step) {
  for (const FragmentAnswer& answer : answers) {
    const auto steps = static_cast<double>(answer.work.micro_batches) / micro_batches_per_step;
    slowest_step_s = std::max(slowest_step_s, to_seconds(answer.work.time) / steps);
    slowest_sync_s = std::max(slowest_sync_s, answer.sync_s);  // none is the least
    micro_batches += answer.work.micro_batches;
  }
}

}  // namespace syncopate
