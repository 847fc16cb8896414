// The checkpoint of a run that several processes divide: each writes a part, and the first one a file that names the
// parts, once it sees all of them. If one process cannot write its part, the others remove theirs. What was there
// before stays until a new one is whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "results/directory/checkpoint_file.hpp"
#include "results/run/run.hpp"
#include "workers/training/divided_work.hpp"

namespace syncopate {

// Called by all processes, in the same order.
class CheckpointParts {
 public:
  // `file`: what names the parts; `below`: a directory above it that is not made anew. What is given outlives it.
  CheckpointParts(const Run& run, const std::filesystem::path& file, const std::filesystem::path& below,
                  DividedWork& divided);

  // This process's part of the one that all have; null: all begin, and `problem` is why, the same on all, where there is
  // one. `is_taken_up` false: all begin.
  std::unique_ptr<CheckpointReader> open(bool is_taken_up, std::string& problem);

  // This process's part of a new one, to be written. `number`: higher than those before.
  std::unique_ptr<CheckpointWriter> part(std::int64_t number) const;
  // Once it is on the disk: all parts get their common file, after which all others go. `digest`: of this process's
  // part; `problem`: why it has none, or empty. Returns, the same on all, why there is no new checkpoint, or nothing.
  std::string publish(std::int64_t number, std::uint64_t digest, const std::string& problem);

 private:
  struct Parts {
    std::int64_t number = 0;               // 0: none
    std::vector<std::uint64_t> digests{};  // by process
  };
  CheckpointIdentity identity(const std::string& process) const;
  CheckpointIdentity own_identity() const;
  std::filesystem::path own_part(std::int64_t number) const;
  std::unique_ptr<CheckpointReader> find(Parts& parts) const;
  std::string problem_of_all(std::int64_t number, const std::string& own) const;
  std::string name(const Parts& parts);

  const Run& run_;
  const std::filesystem::path& file_;
  const std::filesystem::path& below_;
  DividedWork& divided_;
  bool is_patient_ = true;  // the last look saw all parts: the next one waits for them
};

}  // namespace syncopate
