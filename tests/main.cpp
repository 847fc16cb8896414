#include <gtest/gtest.h>

#include <cstdlib>

#include "workers/base/machine.hpp"

int main(int argc, char** argv) {
  syncopate::use_best_blas_kernel(argv);
  testing::InitGoogleTest(&argc, argv);
  // Keeps digests of the tests' own data sets out of the user's cache, also those by programs that tests start.
  ::setenv("XDG_CACHE_HOME", (testing::TempDir() + "syncopate-test-cache").c_str(), 1);
  return RUN_ALL_TESTS();
}
