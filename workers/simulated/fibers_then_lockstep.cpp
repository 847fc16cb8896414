#include "workers/simulated/fibers_then_lockstep.hpp"

#include <fmt/format.h>

#include "workers/process/free_memory.hpp"

namespace syncopate {
namespace {

// Ends the run on fibers, where worker 0 has gone on for all to the end of its program.
struct WentOnInLockstep {};

constexpr std::int64_t bytes_in_lockstep = 250, bytes_on_shared_stack = 2000, bytes_on_own_stack = 5000;

}  // namespace

RunTotals FibersThenLockstep::run(const Program& work, const Program& serve) {
  const Program ends_for_all = [this, &work](Rank rank) {
    work(rank);
    if (lockstep_) throw WentOnInLockstep();
  };
  try {
    return fibers_.run(ends_for_all, serve);
  } catch (const WentOnInLockstep&) {
    return lockstep_->totals();
  }
}

CollectiveResult FibersThenLockstep::finish(Rank self, StartedCollective&& started, Place place) {
  const Step step = started.group ? Step{0} : started.step;
  CollectiveResult result = wrapped().finish(self, std::move(started), place);
  go_on_in_lockstep_after(self, step);
  return result;
}

AgreedProgress FibersThenLockstep::all_reduce_sum(Rank self, Gradient& gradient, std::span<double> numbers,
                                                  const Contribution& contribution, Place place) {
  const AgreedProgress agreement = wrapped().all_reduce_sum(self, gradient, numbers, contribution, place);
  go_on_in_lockstep_after(self, contribution.step);
  return agreement;
}

// Worker 0 is the first to come out of a collective. It never waits again, so that the others stay where they are.
void FibersThenLockstep::go_on_in_lockstep_after(Rank self, Step step) {
  if (!lockstep_ && self == Rank{0} && step > alike_from_) lockstep_.emplace(options_, fibers_.progress());
}

std::int64_t least_bytes_of_workers(const SimulatedOptions& options, std::optional<Step> alike_from) {
  const bool in_lockstep = alike_from == Step{0} && LockstepCluster::can_simulate(options);
  if (in_lockstep) return options.workers * bytes_in_lockstep;
  const bool have_own_stacks = static_cast<std::size_t>(options.workers) <= options.most_own_stacks;
  return options.workers * (have_own_stacks ? bytes_on_own_stack : bytes_on_shared_stack);
}

std::unique_ptr<Cluster> make_simulated_cluster(const SimulatedOptions& options, std::optional<Step> alike_from) {
  const std::int64_t needed = least_bytes_of_workers(options, alike_from), free = free_memory_bytes();
  if (needed > free)
    throw RunFailure(
        fmt::format("the memory does not suffice: {} simulated workers take at least {:.3g} GB, {} bytes "
                    "each; {:.3g} GB are free",
                    options.workers, 1e-9 * static_cast<double>(needed), needed / options.workers,
                    1e-9 * static_cast<double>(free)));
  if (!alike_from || !LockstepCluster::can_simulate(options)) return std::make_unique<SimulatedCluster>(options);
  if (*alike_from == Step{0}) return std::make_unique<LockstepCluster>(options);
  return std::make_unique<FibersThenLockstep>(options, *alike_from);
}

}  // namespace syncopate
