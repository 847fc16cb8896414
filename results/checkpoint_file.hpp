// The checkpoint file of a run. It may be as large as all models of a cluster, so it is written in pieces. It has a
// hidden name until it is synced, so readers find a complete file or none.
//
// Bytes:   "SYNCKPT\n", the format's number, the identity, the content, and XXH3 (64 bits) of everything before it.
//          Numbers have the machine's byte order.
#pragma once

#include <fstream>

#include "results/run_directory.hpp"
#include "workers/training/checkpoint_log.hpp"

namespace syncopate {

// Properties of a checkpoint by name ("run", "program", ...). Only a run with the same properties can resume from it.
using CheckpointIdentity = std::vector<std::pair<std::string, std::string>>;

// The checkpoint is unusable: what() says why, on one line, without the file's name.
struct CheckpointFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// All functions throw std::filesystem::filesystem_error for problems of the disk.
class CheckpointWriter : public ByteSink {
 public:
  // Creates the folders between `below` and the file. Throws if `below` is missing, because then somebody has deleted
  // it.
  CheckpointWriter(std::filesystem::path file, const CheckpointIdentity& identity,
                   const std::filesystem::path& below = {});
  ~CheckpointWriter() override;  // removes an unpublished file
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  void write(const void* data, std::size_t size) override;
  void finish();                                       // no write() may follow
  void publish();                                      // syncs and renames the file; any thread may call it
  bool is_published() const { return is_published_; }  // true once it is renamed, even if publish() threw after that
  std::int64_t bytes() const { return bytes_; }
  std::uint64_t digest() const { return finished_digest_; }  // valid after finish()

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
  // Reads and verifies the whole file. Throws CheckpointFault.
  CheckpointReader(const std::filesystem::path& file, const CheckpointIdentity& identity);

  // Reads the content in the order of writing. Throws CheckpointFault beyond the end.
  void read(void* data, std::size_t size) override;
  std::int64_t bytes() const { return bytes_; }
  std::uint64_t digest() const { return digest_; }

 private:
  std::ifstream stream_;  // keeps this file open, even if a newer one gets its name
  std::uint64_t left_ = 0;
  std::uint64_t digest_ = 0;
  std::int64_t bytes_ = 0;
};

// A run's checkpoint, beside its directory.
std::filesystem::path checkpoint_of(const std::filesystem::path& run_directory);
// With several processes `file` holds the checkpoint's number, and each process writes a part of it beside `file`.
std::filesystem::path part_of_checkpoint(const std::filesystem::path& file, std::int64_t number, int rank);
// Removes parts of checkpoints numbered up to `last`, except those of checkpoint `but`. Ignores errors.
void remove_parts(const std::filesystem::path& file, std::int64_t last, std::int64_t but = -1);
// Whether the folder contains parts of any run's checkpoint.
bool has_parts(const std::filesystem::path& folder);
// Removes a checkpoint and all of its parts.
void remove_checkpoint(const std::filesystem::path& file);

}  // namespace syncopate
