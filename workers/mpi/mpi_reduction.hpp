// The values of one collective on one rank: what it brings, in buffers that MPI reduces in place, and what comes of it.
#pragma once

#include <mpi.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "workers/cluster/collective.hpp"
#include "workers/mpi/ring_sums.hpp"
#include "workers/training/training.hpp"

namespace syncopate {

class StateArchive;

// A number of elements as MPI counts them. Throws std::length_error beyond 2^31 - 1.
int mpi_count(std::size_t elements);

// What a time-only run moves instead of values, so that its messages load the real network too.
FlatVector zeros_of(Bytes bytes);

class MpiReduction {
 public:
  // What the arrivals of all say together.
  struct Agreed {
    std::int64_t micro_batches = 0;  // in the sum
    bool wide = false;               // in double precision
    std::optional<double> share{};   // of this rank's model in a mean; none, on all ranks alike: equal shares
    std::vector<Bytes> packets{};    // of each rank, where all are gathered
    MomentAges ages{};               // of the mean's moments

    template <typename Archive>
    void keep(Archive& archive) {
      archive(micro_batches, wide, share, packets, ages);
    }
  };
  // Who takes part in what has ended.
  struct Ended {
    int size = 1;
    bool is_root = false;
  };

  // `ranks`: of the members, where collectives alone go; the same order of them on all ranks. `number`: of this one
  // among theirs, of which several may be under way.
  MpiReduction(Training& training, Collective&& what, const Agreed& agreed, MPI_Comm ranks, std::int64_t number);
  // One that has ended in another process. Its values come with those of the whole course (CourseLog), or by `keep`.
  MpiReduction(Training& training, Collective&& what, const Agreed& agreed, const Ended& members);
  ~MpiReduction();
  MpiReduction(const MpiReduction&) = delete;
  MpiReduction& operator=(const MpiReduction&) = delete;

  // Blocks until the values are there.
  void run();
  // Returns at once; then `test` until it is true. Values go piece by piece, so that no call takes long that lets them
  // go on: what their rank does meanwhile is held up by it.
  void begin();
  bool test();
  // All pieces of a broadcast at once: this rank does nothing else from here on.
  void begin_rest() { begin_pieces(pieces_.size()); }

  const Agreed& agreed() const { return agreed_; }
  const std::vector<double>& numbers() const { return numbers_; }
  void set_numbers(std::vector<double> numbers) { numbers_ = std::move(numbers); }

  // Once.
  CollectiveResult result();

  // The values of one that has ended.
  void keep(StateArchive& archive);

 private:
  using Part = RingSums::Values;

  void write();
  std::vector<MicroBatch> carried() const;
  void begin_pieces(std::size_t end);
  void add(std::span<float> values) { parts_.push_back({values.data(), values.size(), MPI_FLOAT}); }
  void add(std::span<double> values) { parts_.push_back({values.data(), values.size(), MPI_DOUBLE}); }
  void add_slice();
  void begin_gathering();
  void begin_broadcast();
  bool gathers() const { return what_.gathers_packets() || what_.kind == Collective::Kind::exchange_chunks; }
  bool broadcasts() const {
    return what_.kind == Collective::Kind::broadcast || what_.kind == Collective::Kind::broadcast_packet;
  }
  bool exchanges_chunks() const { return what_.kind == Collective::Kind::exchange_chunks; }
  void widen();
  Gradient sum();
  void scale(double factor);
  ModelStatePtr mean();
  SharedPackets packets();

  Training& training_;
  Collective what_;
  Agreed agreed_;
  MPI_Comm ranks_ = MPI_COMM_NULL;
  std::int64_t number_ = 0;
  int size_ = 1;
  bool is_root_ = false;
  FlatVector values_;
  std::vector<MicroBatch> carried_;  // this rank's, where somebody wants to know
  FlatVector gathered_;              // everybody's packets, or chunks; of each rank:
  std::vector<int> words_;           // how many words
  std::vector<int> begins_;          // and where they begin
  std::vector<double> exact_;        // of a wide sum
  std::vector<double> numbers_;      // summed, or everybody's
  std::vector<Part> parts_;          // of the buffers: what is reduced
  std::optional<RingSums> sums_;     // of the long ones, where they do not block
  std::vector<Part> pieces_;         // of the parts of a broadcast, which begin one after another
  std::size_t begun_ = 0;            // of them
  std::vector<MPI_Request> requests_;
};

}  // namespace syncopate
