// Sums of values over the ranks of a communicator, in place, that go on while their ranks do something else: wherever
// they let MPI progress, a step goes on.
//
// Piece by piece around the ring, a few pieces at a time: a rank hands a chunk, a piece's share of a rank, to the next
// one, which adds its own; after N - 1 steps each rank has the sum of one chunk, and after N - 1 more all have all of
// them. Each rank sends 2 (N - 1) / N of the values, as the network model's ring does. The first summand of chunk i is
// rank i's, the next one rank i + 1's: the order of summation depends on nothing else. All ranks add at the same time,
// where a sum of MPI's own that does not block may bring all values to one of them (Open MPI does, in place).
#pragma once

#include <mpi.h>

#include <array>
#include <cstddef>
#include <deque>
#include <vector>

namespace syncopate {

class RingSums {
 public:
  // What is reduced: `count` floats or doubles (`type`), the same number on all ranks.
  struct Values {
    void* data;
    std::size_t count;
    MPI_Datatype type;
  };
  static constexpr int lanes = 8;  // pieces at a time, each with a tag of its own

  // On all ranks of `ranks` in the same order. Tags first_tag to first_tag + lanes - 1 must be nobody else's there
  // until the sums are done.
  RingSums(const std::vector<Values>& values, MPI_Comm ranks, int first_tag);
  RingSums(const RingSums&) = delete;
  RingSums& operator=(const RingSums&) = delete;

  // Does what can be done now; whether all sums are there.
  bool test();

 private:
  struct Lane {
    Values piece{};
    int step = -1;  // of 2 (N - 1); -1: none is under way
    std::array<MPI_Request, 2> requests{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    std::vector<std::byte> received{};
  };

  bool is_over(Lane& lane);
  void begin_step(Lane& lane);
  void end_step(Lane& lane);
  Values chunk(const Values& piece, int number) const;
  int chunk_sent(int step) const;
  int chunk_received(int step) const { return chunk_sent(step) - 1; }
  bool is_adding(int step) const { return step < size_ - 1; }
  int tag_of(const Lane& lane) const { return first_tag_ + static_cast<int>(&lane - lanes_.data()); }

  MPI_Comm ranks_;
  int first_tag_;
  int rank_ = 0;
  int size_ = 1;
  std::array<std::deque<Values>, lanes> waiting_;  // whose lane is fixed, so that all ranks have the same
  std::array<Lane, lanes> lanes_;
};

}  // namespace syncopate
