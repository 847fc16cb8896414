// The same algorithm on both clusters. If its control flow does not depend on the clock, both clusters have equal
// parameters and counts, and no run is faster than its delays. On a quiet machine, parity_time_mpi_test checks that
// wall time is not longer.
#include <gtest/gtest.h>

#include "tests/workers/mpi_test_main.hpp"
#include "tests/workers/parity_asynchronous.hpp"
#include "tests/workers/parity_models.hpp"
#include "tests/workers/parity_quorum.hpp"
#include "tests/workers/parity_synchronous.hpp"

int main(int argc, char** argv) {
  const syncopate::MpiSession session;
  syncopate::session = &session;
  return syncopate::run_tests_under_mpi(argc, argv, session);
}
