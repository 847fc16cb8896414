// What the ranks of one node know of each other beside MPI, in memory that they share: who has spoken first when
// several fail, and whose process is gone. A launcher ends all ranks with the same signal whether one of them was
// killed or the user has interrupted the program; here the two can be told apart.
#pragma once

#include <mpi.h>

#include <atomic>
#include <string>
#include <vector>

namespace syncopate {

class NodeBoard {
 public:
  NodeBoard() = default;
  NodeBoard(const NodeBoard&) = delete;
  NodeBoard& operator=(const NodeBoard&) = delete;

  // Collective over the ranks of a node; `rank` is this one's among all.
  void open(MPI_Comm node, int rank);
  void close();  // collective

  // True for the first rank of the node that asks.
  bool first_to_fail() const { return board_->failed.exchange(1) == 0; }

  // From now on this process is expected to be there until it is told to end, or closes the board. Call it once
  // interrupts are handled.
  void expect_to_stay() const;

  // Ranks of this node that should still be there and are not, in ascending order.
  std::vector<int> lost() const;

 private:
  enum State : int { not_expected, expected, told_to_end };
  struct Entry {
    std::atomic<int> state;
    std::atomic<int> process;
    std::atomic<int> rank;
  };
  struct Board {
    std::atomic<int> failed;
    Entry entries[1];  // one per rank of the node
  };
  static_assert(std::atomic<int>::is_always_lock_free, "it is shared between processes");

  MPI_Win window_ = MPI_WIN_NULL;
  Board* board_ = nullptr;
  int own_ = 0;                        // entry
  std::vector<const Entry*> visible_;  // whose processes can be looked for from here
};

}  // namespace syncopate
