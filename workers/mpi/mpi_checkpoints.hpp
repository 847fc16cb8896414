// Where all ranks of a run stand still, and each writes its part of a checkpoint.
//
// Rank 0 decides by its store that one is due, and calls for it. Each rank hears of it at its next call that may wait,
// in a wait, or in a sleep, and stops there; none waits for what another one would do. Then nothing is sent any more:
// - letters that are on their way are taken in, until each rank has all that was sent to it;
// - collectives that all of their members have come to go on to their end. Of others each rank keeps what it brings;
// - each rank writes its part, and once all have the run goes on. What that takes is in no account: clocks stand still.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "workers/mpi/mpi_collectives.hpp"
#include "workers/mpi/mpi_stage.hpp"
#include "workers/mpi/rank_store.hpp"

namespace syncopate {

class MpiCheckpoints {
 public:
  // `write`: this rank's part, of a run that stands still at that time.
  using Write = std::function<void(ByteSink& out, Time at)>;
  MpiCheckpoints(MpiStage& stage, MpiCollectives& collectives, Write write)
      : stage_(stage), collectives_(collectives), write_(std::move(write)), store_(stage.options.store) {}

  // Wherever a rank may stop, again and again: cheap. Throws LeftAtCheckpoint.
  void look();

 private:
  struct Standstill {
    Time at{};                         // by the latest clock
    std::int64_t collectives = 0;      // of all workers, that all of them have come to
    std::vector<std::int64_t> sent{};  // to this rank, by rank
  };
  std::optional<std::int64_t> called_for();
  void stop(std::int64_t number);
  Standstill stand_still();
  bool has_all(const Standstill& standstill);
  void drive();
  template <typename Number>
  std::vector<Number> gather(const std::vector<Number>& own, MPI_Datatype type, bool drives);

  MpiStage& stage_;
  MpiCollectives& collectives_;
  Write write_;
  RankStore* store_;
  std::int64_t next_look_ns_ = 0;
  std::int64_t number_ = 0;           // read by:
  std::vector<MPI_Request> calls_{};  // of rank 0
};

}  // namespace syncopate
