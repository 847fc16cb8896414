// The file that a killed run goes on from. It is written piece by piece, since it may be as large as all models of a
// cluster, under a hidden name, and has its own name once it is on the disk: a reader finds a whole one or none.
//
// Bytes:   "SYNCKPT\n", the format's number, the identity, whatever is written, and XXH3 (64 bits) of all before it.
//          Numbers are those of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "results/found_runs.hpp"
#include "workers/training/checkpoint_log.hpp"

namespace syncopate {

// What a checkpoint is of, by name ("run", "program", ...): it is taken up by who has all alike.
using CheckpointIdentity = std::vector<std::pair<std::string, std::string>>;

// It cannot be taken up: what() says why, on one line, without the file's name.
struct CheckpointFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// All throw std::filesystem::filesystem_error where the disk does not do what it should.
class CheckpointWriter : public ByteSink {
 public:
  // Creates the folder of the file, if it is not there; but not `below`, which has been removed if it is not.
  CheckpointWriter(std::filesystem::path file, const CheckpointIdentity& identity,
                   const std::filesystem::path& below = {});
  ~CheckpointWriter() override;  // of one that is not published nothing stays
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  void write(const void* data, std::size_t size) override;
  void finish();   // nothing comes after it
  void publish();  // puts it on the disk, and gives it its name; any thread may do it
  bool is_published() const { return is_published_; }  // it has its name, also where publish() has thrown after that
  std::int64_t bytes() const { return bytes_; }
  std::uint64_t digest() const { return finished_digest_; }  // of what is finished

 private:
  struct Digest;
  void flush();

  std::filesystem::path file_;
  std::filesystem::path aside_;
  std::unique_ptr<Descriptor> descriptor_;
  std::unique_ptr<Digest> digest_;
  std::string buffer_;
  std::int64_t bytes_ = 0;
  std::uint64_t finished_digest_ = 0;
  bool is_published_ = false;
};

class CheckpointReader : public ByteSource {
 public:
  // Reads the whole file once, to see that it is what was written. Throws CheckpointFault.
  CheckpointReader(const std::filesystem::path& file, const CheckpointIdentity& identity);

  // What was written, in its order. Throws CheckpointFault beyond the end.
  void read(void* data, std::size_t size) override;
  std::int64_t bytes() const { return bytes_; }
  std::uint64_t digest() const { return digest_; }

 private:
  std::ifstream stream_;  // holds the file, also where another one gets its name
  std::uint64_t left_ = 0;
  std::uint64_t digest_ = 0;
  std::int64_t bytes_ = 0;
};

// Where the checkpoint of the run with this directory lies: beside it.
std::filesystem::path checkpoint_of(const std::filesystem::path& run_directory);
// A checkpoint of several processes: this file names its number and the parts, one of each process, beside it.
std::filesystem::path part_of_checkpoint(const std::filesystem::path& file, std::int64_t number, int rank);
// Those with numbers up to `last`, but for one; errors are left to who finds them in the way.
void remove_parts(const std::filesystem::path& file, std::int64_t last, std::int64_t but = -1);
// Whether there are any, of whichever run.
bool has_parts(const std::filesystem::path& folder);
// What there is of one, with all parts of whichever attempt.
void remove_checkpoint(const std::filesystem::path& file);

}  // namespace syncopate
