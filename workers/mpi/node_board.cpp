#include "workers/mpi/node_board.hpp"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>

#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace {

bool is_there(int process) { return kill(process, 0) == 0 || errno != ESRCH; }

}  // namespace

void NodeBoard::open(MPI_Comm node, int rank) {
  int size = 1;
  MPI_Comm_rank(node, &own_);
  MPI_Comm_size(node, &size);
  const auto bytes = sizeof(Board) + static_cast<std::size_t>(size - 1) * sizeof(Entry);
  void* part = nullptr;
  MPI_Win_allocate_shared(own_ == 0 ? static_cast<MPI_Aint>(bytes) : 0, 1, MPI_INFO_NULL, node, &part, &window_);
  MPI_Aint found_bytes = 0;
  int unit = 0;
  void* whole = nullptr;
  MPI_Win_shared_query(window_, 0, &found_bytes, &unit, &whole);
  board_ = static_cast<Board*>(whole);
  if (own_ == 0) new (&board_->failed) std::atomic<int>(0);
  Entry& own = board_->entries[own_];
  new (&own.state) std::atomic<int>(not_expected);
  new (&own.process) std::atomic<int>(getpid());
  new (&own.rank) std::atomic<int>(rank);
  MPI_Barrier(node);
  // Ranks in containers of their own may share memory without seeing each other's processes.
  for (int i = 0; i < size; ++i)
    if (is_there(board_->entries[i].process)) visible_.push_back(&board_->entries[i]);
  MPI_Barrier(node);
}

void NodeBoard::close() {
  tell_of_interrupt(nullptr, 0);
  board_->entries[own_].state = not_expected;
  MPI_Win_free(&window_);
}

void NodeBoard::expect_to_stay() const {
  std::atomic<int>& state = board_->entries[own_].state;
  state = expected;
  tell_of_interrupt(&state, told_to_end);
}

std::vector<int> NodeBoard::lost() const {
  std::vector<int> ranks;
  for (const Entry* entry : visible_)
    if (entry->state == expected && !is_there(entry->process)) ranks.push_back(entry->rank);
  std::ranges::sort(ranks);
  return ranks;
}

}  // namespace syncopate
