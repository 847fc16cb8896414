// Where the ranks of a run leave checkpoints, and take them up: what an MPI cluster needs of a disk.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "workers/training/course_log.hpp"

namespace syncopate {

class StateArchive;

// One rank's part in it. A checkpoint is common to all ranks: it is one once all of them have written their part.
class RankStore {
 public:
  virtual ~RankStore() = default;

  // Rank 0 alone, again and again while the run goes on: the number of the checkpoint that is to be written now.
  virtual std::optional<std::int64_t> due() = 0;

  // What comes of a part: the digest of what was written; nothing where it could not be, and why.
  struct Written {
    std::optional<std::uint64_t> digest{};
    std::string problem{};
  };
  virtual Written write(std::int64_t number, const std::function<void(ByteSink&)>& contents) = 0;
  // On all ranks, once all have written: of each, by rank, the digest, or nothing. The run goes on; true: it leaves
  // (LeftAtCheckpoint).
  virtual bool written(std::int64_t number, const std::vector<std::optional<std::uint64_t>>& digests) = 0;

  // Whether the run goes on from one, on all ranks alike; and a participant's part of that.
  virtual bool goes_on() const = 0;
  virtual ByteSource& part() = 0;
  // It has gone on.
  virtual void gone_on() = 0;

  // What the caller keeps besides, of this rank's part in the run.
  virtual void keep(StateArchive& archive) = 0;
};

// Thrown through the programs of all ranks where the store wants the run to end at a checkpoint.
struct LeftAtCheckpoint {};

}  // namespace syncopate
