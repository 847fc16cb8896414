// The same algorithm on both clusters. If control does not depend on the clock, parameters and counts agree, and no run
// is faster than its delays. parity_time_mpi_test checks, on a quiet machine, that wall time does not exceed simulated
// time.
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
