#include "workers/simulated/stage.hpp"

#include <fmt/format.h>

#include "workers/cluster/deadlock.hpp"

namespace syncopate {

Stage::Stage(const SimulatedOptions& given)
    : options(given),
      spans(given.record && given.record->spans ? &*given.record->spans : nullptr),
      rows(given.observer),
      stacks(static_cast<std::size_t>(given.workers + given.servers), given.most_own_stacks),
      timers_(given.workers + given.servers),
      participants_(given.workers + given.servers) {
  if (options.network.overlap()) last_micro_batches = ByRank<LastMicroBatch>(options.workers);
  for (const Rank rank : everybody()) participants_[rank].book = Book(rank, start_time, spans);
}

std::string Stage::name(Rank rank) const {
  if (!is_server(rank)) return fmt::format("worker {}", rank.value);
  return options.servers.name_of(rank, options.workers);
}

void Stage::fail_for_end_of_clock(Rank rank) const { throw RunFailure(explain_end_of_clock(name(rank))); }

void Stage::add_duration(Rank rank, const MicroBatch& slot, Duration duration) {
  const Duration added = options.compute_time.added(rank, slot.step, static_cast<std::uint32_t>(slot.index));
  options.record->durations->push_back({rank, slot.step, slot.index, duration, added});
}

void Stage::clear() {
  for (SimulatedParticipant& participant : participants_) participant.fiber.reset();
}

}  // namespace syncopate
