#include "experiments/mpi_exchange.hpp"

#include "results/recording_bytes.hpp"
#include "workers/mpi/mpi_wait.hpp"

namespace syncopate {
namespace {

constexpr int recording_tag = 1;

void wait_for(MPI_Request& request) {
  constexpr bool cores_suffice = false;  // nothing here is in a hurry
  wait_politely(cores_suffice, [&request] {
    int done = 0;
    MPI_Test(&request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

}  // namespace

std::vector<int> from_rank_0(const MpiSession& session, std::vector<int> numbers) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(numbers.data(), static_cast<int>(numbers.size()), MPI_INT, 0, session.communicator(), &request);
  wait_for(request);
  return numbers;
}

Recording move_to_rank_0(const MpiSession& session, int from, const Recording& recording) {
  if (session.rank() == 0 && from == 0) return recording;
  if (session.rank() == from) {
    const auto bytes = to_bytes(recording);
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(bytes.data(), static_cast<int>(bytes.size()), MPI_BYTE, 0, recording_tag, session.communicator(),
              &request);
    wait_for(request);
    return {};
  }
  if (session.rank() != 0) return {};
  MPI_Status status{};
  wait_politely(false, [&] {
    int arrived = 0;
    MPI_Iprobe(from, recording_tag, session.communicator(), &arrived, &status);
    return arrived != 0;
  });
  int size = 0;
  MPI_Get_count(&status, MPI_BYTE, &size);
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(size));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(bytes.data(), size, MPI_BYTE, from, recording_tag, session.communicator(), &request);
  wait_for(request);
  return recording_from_bytes(bytes);
}

}  // namespace syncopate
