// A simulation that several processes divide: who computes what, and what goes from one to the other.
//
// All processes go through the same programs, on the same virtual time, and so submit the same arithmetic in the same
// order. Every value has places, the processes where it is computed and kept; they are decided when it is submitted, by
// what has been submitted before alone, so that all processes know them. Elsewhere it has no memory.
//
// - Workers are dealt to processes in equal blocks by rank. What a worker asks for alone (its own steps, its mixture of
//   others' models) is computed at its process; what servers ask for, or comes of a collective, everywhere where its
//   inputs are, without a word between the processes, or where they are needed.
// - Micro-batches of one process's workers are evaluated there; those of several, at a model that is everywhere, in the
//   chunks of one process, divided evenly. A sum that needs parts of several processes is exchanged once: each gives
//   the sum of its parts, and all add these up in the order of the processes. So do averages of models.
// - A value that is needed where it is not is sent there, and kept by both.
//
// Whatever is everywhere is the same to the bit: it is computed by all from equal bits, by equal instructions, or sent.
// What differs from one process is the grouping of sums, thus rounding.
//
// All members but `self` and `processes` are for the submitting thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "workers/training/executor.hpp"
#include "workers/training/model_state.hpp"
#include "workers/training/process_group.hpp"
#include "workers/units/units.hpp"

namespace syncopate {

class DividedWork {
 public:
  // What is given outlives it, up to leave().
  DividedWork(ProcessGroup& group, Executor& executor, int workers);

  int processes() const { return group_.size(); }
  int self() const { return group_.self(); }
  bool is_here(ProcessSet places) const { return places.has(self()); }
  int process_of(Rank worker) const;
  // Where what this participant asks for belongs: a worker's process; with a server, everywhere.
  ProcessSet place_of(Rank rank) const;

  // For whom is submitted what is submitted now.
  ProcessSet asker() const { return asker_; }
  ProcessSet exchange_asker(ProcessSet places) { return std::exchange(asker_, places); }  // returns the one before

  // What each of `from` gives goes to all of `to`. `give` is run where this process is among the ones, after the
  // prerequisites, and `take` where it is among the others, with what all give, in the order of the processes. The task
  // that is returned ends after `take` (null: nothing is taken here).
  using Give = std::function<Payload()>;
  using Take = std::function<void(std::vector<Payload>)>;
  std::shared_ptr<Task> exchange(ProcessSet from, ProcessSet to, std::span<const std::shared_ptr<Task>> prerequisites,
                                 Give give, Take take);
  // The same of numbers, which all take.
  using Numbers = std::vector<double>;
  std::shared_ptr<Task> exchange_numbers(ProcessSet from, std::span<const std::shared_ptr<Task>> prerequisites,
                                         std::function<Numbers()> give,
                                         std::function<void(const std::vector<Numbers>&)> take);
  // The same, with `give` at once on this thread; returns what all give.
  std::vector<Numbers> exchanged_numbers(ProcessSet from, const std::function<Numbers()>& give);

  // Once all tasks have ended: returns when nothing of what they have given is held by the group any more.
  void settle() { group_.settle(); }

  // From then on the cell is at all of `places` too.
  void bring(const CellPtr& cell, ProcessSet places);

  // Which of `count` equal parts are this process's, of all that `places` divide among them.
  std::vector<bool> dealt(std::size_t count, ProcessSet places) const;

  // All of the processes is everywhere.
  ProcessSet normalised(ProcessSet places) const;
  ProcessSet all() const { return ProcessSet::first(processes()); }

  // Nothing that has been exchanged reaches the executor from then on: before this is destroyed.
  void leave() { group_.forget(); }

 private:
  ProcessGroup& group_;
  Executor& executor_;
  int workers_;
  ProcessSet asker_;
  std::uint64_t exchanges_ = 0;
};

}  // namespace syncopate
