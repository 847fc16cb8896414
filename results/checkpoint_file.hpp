// The checkpoint file of a run. It may be as large as all models of a cluster, so it is written in pieces. It has a
// hidden name until it is synced, so that readers find a complete file or none.
//
// Bytes:   "SYNCKPT\n", the number of the format, the identity, the content, and the XXH3 digest (64 bits) of all bytes
//          before the digest. Numbers have the machine's byte order.
#pragma once

#include <fstream>

#include "results/run_directory.hpp"
#include "workers/training/checkpoint_log.hpp"

namespace syncopate {

// Properties of a checkpoint by name ("run", "program", ...). Only a run with equal properties can resume from it.
using CheckpointIdentity = std::vector<std::pair<std::string, std::string>>;

// The checkpoint is unusable. what() is the reason, on one line, without the file's name.
struct CheckpointFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// All functions throw std::filesystem::filesystem_error if the disk fails.
class CheckpointWriter : public ByteSink {
 public:
  // Creates missing folders between `below` and the file. Throws if `below` is missing, because somebody has deleted
  // it.
  CheckpointWriter(std::filesystem::path file, const CheckpointIdentity& identity,
                   const std::filesystem::path& below = {});
  ~CheckpointWriter() override;  // removes the file unless it was published
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  void write(const void* data, std::size_t size) override;
  void finish();                                       // no write() may follow
  void publish();                                      // syncs and renames the file; any thread may call it
  bool is_published() const { return is_published_; }  // true once the file is renamed, even if publish() then threw
  std::uint64_t digest() const { return finished_digest_; }  // valid after finish()

 private:
  struct Digest;
  void flush();

  std::filesystem::path file_;
  std::filesystem::path aside_;
  std::unique_ptr<Descriptor> descriptor_;
  std::unique_ptr<Digest> digest_;
  std::string buffer_;
  std::uint64_t finished_digest_ = 0;
  bool is_published_ = false;
};

class CheckpointReader : public ByteSource {
 public:
  // Reads and verifies the whole file. Throws CheckpointFault.
  CheckpointReader(const std::filesystem::path& file, const CheckpointIdentity& identity);

  // Reads the content in the order of writing. Throws CheckpointFault beyond the end.
  void read(void* data, std::size_t size) override;
  std::uint64_t digest() const { return digest_; }

 private:
  std::ifstream stream_;  // keeps this file open, even if a newer file gets its name
  std::uint64_t left_ = 0;
  std::uint64_t digest_ = 0;
};

// The checkpoint file of a run, beside the run's directory.
std::filesystem::path checkpoint_of(const std::filesystem::path& run_directory);
// If several processes share a run, `file` has only the checkpoint's number. Each process writes its part beside it.
std::filesystem::path part_of_checkpoint(const std::filesystem::path& file, std::int64_t number, int rank);
// Removes the parts of checkpoints numbered up to `last`, except those of checkpoint `but`. Ignores errors.
void remove_parts(const std::filesystem::path& file, std::int64_t last, std::int64_t but = -1);
// Whether the folder contains parts of any checkpoint.
bool has_parts(const std::filesystem::path& folder);
void remove_checkpoint(const std::filesystem::path& file);

}  // namespace syncopate
