#include <gtest/gtest.h>

#include "workers/blas_kernel.hpp"

int main(int argc, char** argv) {
  syncopate::use_best_blas_kernel(argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
