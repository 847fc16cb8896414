// Non-blocking sums around a ring of ranks, compared with the order of summation that their header promises. Start with
// mpirun.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

#include "tests/workers/mpi_test_main.hpp"
#include "workers/mpi/mpi_collectives.hpp"

namespace syncopate {
namespace {

const MpiSession* session = nullptr;  // main sets it

MPI_Comm everyone() {
  static const MPI_Comm copy = [] {
    MPI_Comm ranks = MPI_COMM_NULL;
    MPI_Comm_dup(MPI_COMM_WORLD, &ranks);
    return ranks;
  }();
  return copy;
}

// Values of all magnitudes, so that another order of summation rounds differently.
template <typename Real>
std::vector<Real> brought_by(int rank, std::size_t count) {
  std::vector<Real> values(count);
  for (std::size_t i = 0; i < count; ++i)
    values[i] = static_cast<Real>(((static_cast<int>(i) * 37 + rank * 101) % 211 - 105)) *
                static_cast<Real>(i % 3 == 0 ? 1e-4 : 1.0 / (3 + rank));
  return values;
}

constexpr std::size_t most_chunk_bytes = std::size_t{1} << 19;

// The sums by definition, piece by piece and chunk by chunk. The sum of chunk i begins with rank i's values.
template <typename Real>
std::vector<Real> expected(std::size_t count) {
  const auto ranks = static_cast<std::size_t>(session->size());
  std::vector<std::vector<Real>> brought;
  for (int rank = 0; rank < session->size(); ++rank) brought.push_back(brought_by<Real>(rank, count));
  std::vector<Real> sum(count);
  const std::size_t most = ranks * most_chunk_bytes / sizeof(Real);
  for (std::size_t first = 0; first < count; first += most) {
    const std::size_t size = std::min(most, count - first);
    for (std::size_t chunk = 0; chunk < ranks; ++chunk)
      for (std::size_t i = first + size * chunk / ranks; i < first + size * (chunk + 1) / ranks; ++i) {
        sum[i] = brought[chunk][i];
        for (std::size_t step = 1; step < ranks; ++step) sum[i] = brought[(chunk + step) % ranks][i] + sum[i];
      }
  }
  return sum;
}

template <typename Real>
RingSums::Values values_of(std::vector<Real>& values) {
  return {values.data(), values.size(), sizeof(Real) == sizeof(double) ? MPI_DOUBLE : MPI_FLOAT};
}

void finish(RingSums& sums) {
  while (!sums.test()) continue;
}

TEST(RingSums, AreAddedInAnOrderOfTheRingAlone) {
  const auto ranks = static_cast<std::size_t>(session->size());
  for (const std::size_t count : {std::size_t{0}, std::size_t{1}, ranks - 1, ranks, 5 * ranks + 3, std::size_t{300'000},
                                  std::size_t{2'500'001}}) {
    SCOPED_TRACE(count);
    std::vector<float> values = brought_by<float>(session->rank(), count);
    RingSums sums({values_of(values)}, everyone(), 0);
    finish(sums);
    EXPECT_EQ(values, expected<float>(count));
    EXPECT_TRUE(sums.test());
  }
}

TEST(RingSums, OfFloatsAndDoublesGoTogether) {
  std::vector<float> floats = brought_by<float>(session->rank(), 1'300'007);
  std::vector<double> doubles = brought_by<double>(session->rank(), 1'200'011), few = {0.5};
  RingSums sums({values_of(floats), values_of(doubles), values_of(few)}, everyone(), 16);
  finish(sums);
  EXPECT_EQ(floats, expected<float>(floats.size()));
  EXPECT_EQ(doubles, expected<double>(doubles.size()));
  EXPECT_EQ(few.front(), 0.5 * session->size());
}

// Half of the ranks work on the second sum first.
TEST(RingSums, SeveralAreUnderWayInAnyOrder) {
  std::vector<float> early = brought_by<float>(session->rank(), 700'000);
  std::vector<double> late = brought_by<double>(session->rank(), 3'000);
  RingSums first({values_of(early)}, everyone(), 0);
  RingSums second({values_of(late)}, everyone(), RingSums::lanes);
  bool first_over = false, second_over = false;
  while (!first_over || !second_over) {
    if (session->rank() % 2 == 0) first_over = first.test();
    second_over = second.test();
    if (session->rank() % 2 == 1 && second_over) first_over = first.test();
  }
  EXPECT_EQ(early, expected<float>(early.size()));
  EXPECT_EQ(late, expected<double>(late.size()));
}

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  const syncopate::MpiSession session;
  syncopate::session = &session;
  return syncopate::run_tests_under_mpi(argc, argv, session);
}
