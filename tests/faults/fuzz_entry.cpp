// libFuzzer's entry point to one parser, SYNCOPATE_FUZZED. No input may take a second of processor time.
#include <time.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "tests/faults/fuzzing.hpp"

namespace {

double processor_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

// libFuzzer requires this name.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const double begin_s = processor_s();
  try {
    syncopate::SYNCOPATE_FUZZED({reinterpret_cast<const char*>(data), size});
  } catch (const std::exception& fault) {
    std::fprintf(stderr, "an exception that no caller expects: %s\n", fault.what());
    std::abort();
  }
  if (processor_s() - begin_s > 1) {
    std::fprintf(stderr, "an input of %zu bytes took more than a second of the processor\n", size);
    std::abort();
  }
  return 0;
}
