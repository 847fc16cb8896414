#include "experiments/execution/mpi_exchange.hpp"

#include <numeric>

#include "results/rows/recording_bytes.hpp"
#include "workers/mpi/mpi_reduction.hpp"
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

double from_rank_0(const MpiSession& session, double number) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(&number, 1, MPI_DOUBLE, 0, session.communicator(), &request);
  wait_for(request);
  return number;
}

double from_rank_0(const MpiSession& session, double number, const std::function<void()>& meanwhile) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(&number, 1, MPI_DOUBLE, 0, session.communicator(), &request);
  for (int done = 0; !done; MPI_Test(&request, &done, MPI_STATUS_IGNORE)) meanwhile();
  return number;
}

double reduced(const MpiSession& session, double number, MPI_Op operation) {
  std::vector<double> numbers = {number};
  reduced(session, numbers, operation);
  return numbers.front();
}

void reduced(const MpiSession& session, std::vector<double>& numbers, MPI_Op operation) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallreduce(MPI_IN_PLACE, numbers.data(), mpi_count(numbers.size()), MPI_DOUBLE, operation, session.communicator(),
                 &request);
  wait_for(request);
}

std::vector<float> from_rank_0(const MpiSession& session, std::vector<float> numbers) {
  const int size = from_rank_0(session, std::vector{mpi_count(numbers.size())}).front();
  numbers.resize(static_cast<std::size_t>(size));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(numbers.data(), size, MPI_FLOAT, 0, session.communicator(), &request);
  wait_for(request);
  return numbers;
}

std::vector<std::array<std::uint64_t, 2>> gather_everywhere(const MpiSession& session,
                                                            const std::array<std::uint64_t, 2>& own) {
  std::vector<std::array<std::uint64_t, 2>> all(static_cast<std::size_t>(session.size()));
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Iallgather(own.data(), 2, MPI_UINT64_T, all.data(), 2, MPI_UINT64_T, session.communicator(), &request);
  wait_for(request);
  return all;
}

std::vector<std::string> texts_on_rank_0(const MpiSession& session, const std::string& own) {
  const auto ranks = static_cast<std::size_t>(session.size());
  const int own_size = mpi_count(own.size());
  std::vector<int> sizes(ranks), begin(ranks);
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Igather(&own_size, 1, MPI_INT, sizes.data(), 1, MPI_INT, 0, session.communicator(), &request);
  wait_for(request);
  std::string all(static_cast<std::size_t>(mpi_count(std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}))),
                  ' ');
  std::exclusive_scan(sizes.begin(), sizes.end(), begin.begin(), 0);
  MPI_Igatherv(own.data(), own_size, MPI_CHAR, all.data(), sizes.data(), begin.data(), MPI_CHAR, 0,
               session.communicator(), &request);
  wait_for(request);
  std::vector<std::string> texts;
  for (std::size_t rank = 0; session.rank() == 0 && rank < ranks; ++rank)
    texts.push_back(all.substr(static_cast<std::size_t>(begin[rank]), static_cast<std::size_t>(sizes[rank])));
  return texts;
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
