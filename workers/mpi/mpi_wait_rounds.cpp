#include "workers/mpi/mpi_wait_rounds.hpp"

#include <algorithm>
#include <array>
#include <type_traits>

#include "workers/mpi/mpi_wait.hpp"

namespace syncopate {
namespace {

// How much these are decides how soon a standstill is found and what looking costs, not whether it is one.
constexpr std::int64_t patience_ns = 500'000'000;
constexpr std::int64_t pause_ns = 50'000'000;

static_assert(std::is_trivially_copyable_v<WaitReport>, "it travels as bytes");

void wait_for(MPI_Request& request, bool cores_suffice) {
  wait_politely(cores_suffice, [&request] {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

}  // namespace

MpiWaitRounds::MpiWaitRounds(MPI_Comm communicator) : communicator_(communicator) {
  MPI_Comm_size(communicator, &size_);
  reports_.resize(static_cast<std::size_t>(size_));
}

bool MpiWaitRounds::is_due(std::int64_t since_ns) const {
  return !is_over_ && monotonic_ns() >= std::max(next_look_ns_, since_ns + patience_ns);
}

bool MpiWaitRounds::join(const WaitReport& own) {
  next_look_ns_ = monotonic_ns() + pause_ns;
  if (round_ == MPI_REQUEST_NULL) {
    join_next(own);
    return false;
  }
  int done = 0;
  MPI_Test(&round_, &done, MPI_STATUS_IGNORE);
  if (!done) return false;
  // The next one is joined at the next call, when the rank has looked for letters again.
  is_over_ = nobody_can_go_on(last_reports_, reports_);
  last_reports_ = reports_;
  return is_over_;
}

void MpiWaitRounds::join_next(const WaitReport& own) {
  ++joined_;
  own_ = own;
  MPI_Iallgather(&own_, sizeof(WaitReport), MPI_BYTE, reports_.data(), sizeof(WaitReport), MPI_BYTE, communicator_,
                 &round_);
}

std::vector<std::string> MpiWaitRounds::gather(const std::string& own) const {
  using Text = std::array<char, 256>;
  Text text{};
  own.copy(text.data(), text.size() - 1);
  int rank = 0;
  MPI_Comm_rank(communicator_, &rank);
  std::vector<Text> all(rank == 0 ? static_cast<std::size_t>(size_) : 0);
  MPI_Gather(text.data(), sizeof(Text), MPI_BYTE, all.data(), sizeof(Text), MPI_BYTE, 0, communicator_);
  std::vector<std::string> texts;
  for (const Text& said : all) texts.emplace_back(said.data());
  return texts;
}

void MpiWaitRounds::finish(MPI_Comm everyone, bool cores_suffice) {
  std::int64_t most = joined_;
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(MPI_IN_PLACE, &most, 1, MPI_INT64_T, MPI_MAX, everyone, &request);
  wait_for(request, cores_suffice);
  wait_for(round_, cores_suffice);
  while (joined_ < most) {
    join_next({});
    wait_for(round_, cores_suffice);
  }
  last_reports_.clear();
}

}  // namespace syncopate
