#include "workers/training/divided_work.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <memory>
#include <utility>

#include "workers/training/course_log.hpp"

namespace syncopate {
namespace {

Payload payload_of(DividedWork::Numbers numbers) {
  const auto owner = std::make_shared<const DividedWork::Numbers>(std::move(numbers));
  return {.owner = owner, .data = owner->data(), .bytes = owner->size() * sizeof(double)};
}

DividedWork::Numbers numbers_of(const Payload& payload) {
  DividedWork::Numbers numbers(payload.bytes / sizeof(double));
  if (!numbers.empty()) std::memcpy(numbers.data(), payload.data, payload.bytes);
  return numbers;
}

}  // namespace

DividedWork::DividedWork(ProcessGroup& group, Executor& executor, int workers)
    : group_(group), executor_(executor), workers_(workers) {
  assert(executor.threads() > 0 && group.size() <= most_processes);
  group_.open([&executor](std::exception_ptr failure) { executor.fail(std::move(failure)); });
}

int DividedWork::process_of(Rank worker) const {
  // The inverse of blocks that begin at workers * p / processes. Samples may bear a number beyond the workers'.
  const std::int64_t last = std::min(worker.value, workers_ - 1);
  return static_cast<int>(((last + 1) * processes() - 1) / workers_);
}

ProcessSet DividedWork::place_of(Rank rank) const {
  return rank.value < workers_ ? normalised(ProcessSet::only(process_of(rank))) : ProcessSet::everywhere();
}

ProcessSet DividedWork::normalised(ProcessSet places) const {
  return places.covers(all()) ? ProcessSet::everywhere() : places;
}

std::vector<bool> DividedWork::dealt(std::size_t count, ProcessSet places) const {
  std::vector<bool> are_here(count, false);
  if (!is_here(places)) return are_here;
  const auto among = static_cast<std::size_t>((places & all()).count(processes()));
  const auto own = static_cast<std::size_t>(places.count(self()));  // of those before it
  for (std::size_t i = own; i < count; i += among) are_here[i] = true;
  return are_here;
}

std::shared_ptr<Task> DividedWork::exchange(ProcessSet from, ProcessSet to,
                                            std::span<const std::shared_ptr<Task>> prerequisites, Give give,
                                            Take take) {
  const std::uint64_t number = ++exchanges_;
  if (CourseLog::replays_here())
    return nullptr;  // all processes leave it out, and what it brought comes with all values
  from = from & all();
  to = to & all();
  const bool gives = is_here(from), takes = is_here(to);
  if (!gives && !takes) return nullptr;
  const auto given = std::make_shared<std::vector<Payload>>();
  const auto begin = [this, number, from, to, gives, takes, given,
                      give = std::move(give)](const std::shared_ptr<Task>& task) {
    ProcessGroup::Exchange exchange{.number = number, .from = from, .to = to};
    if (gives) exchange.mine = give();
    exchange.done = [this, task, from, gives, takes, given, mine = exchange.mine](std::vector<Payload> others) {
      if (takes) *given = std::move(others);
      if (takes && gives) given->insert(given->begin() + from.count(self()), mine);
      executor_.end(task);
    };
    group_.begin(std::move(exchange));
  };
  const std::shared_ptr<Task> here[] = {
      executor_.submit_elsewhere(begin, gives ? prerequisites : std::span<const std::shared_ptr<Task>>())};
  if (!takes) return nullptr;
  return executor_.submit([given, take = std::move(take)] { take(std::exchange(*given, {})); }, here);
}

std::shared_ptr<Task> DividedWork::exchange_numbers(ProcessSet from,
                                                    std::span<const std::shared_ptr<Task>> prerequisites,
                                                    std::function<Numbers()> give,
                                                    std::function<void(const std::vector<Numbers>&)> take) {
  return exchange(
      from, all(), prerequisites, [give = std::move(give)] { return payload_of(give()); },
      [take = std::move(take)](const std::vector<Payload>& payloads) {
        std::vector<Numbers> all;
        for (const Payload& payload : payloads) all.push_back(numbers_of(payload));
        take(all);
      });
}

std::vector<DividedWork::Numbers> DividedWork::exchanged_numbers(ProcessSet from,
                                                                 const std::function<Numbers()>& give) {
  const Numbers mine = is_here(from) ? give() : Numbers();
  const auto result = std::make_shared<std::vector<Numbers>>();
  executor_.wait(exchange_numbers(
      from, {}, [mine] { return mine; }, [result](const std::vector<Numbers>& all) { *result = all; }));
  return std::move(*result);
}

void DividedWork::bring(const CellPtr& cell, ProcessSet places) {
  if (!cell || cell->at.covers(places)) return;
  assert(!cell->at.empty());
  const ProcessSet missing = places.without(cell->at) & all();
  if (missing.empty()) return;
  const std::shared_ptr<Task> prerequisites[] = {cell->producer};
  const ProcessSet source = ProcessSet::only(cell->at.lowest());
  const auto give = [cell]() -> Payload {
    return {.owner = cell, .data = std::as_const(cell->value).data(), .bytes = cell->value.size() * sizeof(float)};
  };
  const auto take = [cell](const std::vector<Payload>& payloads) {
    const Payload& payload = payloads.front();
    cell->value = FlatVector(payload.bytes / sizeof(float));
    if (payload.bytes > 0) std::memcpy(cell->value.data(), payload.data, payload.bytes);
  };
  auto brought = exchange(source, missing, prerequisites, give, take);
  if (is_here(missing)) cell->producer = std::move(brought);
  cell->at = normalised(cell->at | missing);
}

}  // namespace syncopate
