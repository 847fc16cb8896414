// A short run of the fuzzed parsers: all inputs of the corpus, which contains everything that fuzzing has found, and
// some thousands of random changes of them. Prints its seed; set SYNCOPATE_SEED to repeat it.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tests/faults/fuzzing.hpp"
#include "workers/base/random.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

struct Fuzzed {
  const char* name;
  FuzzedParser parse;
  int changed;  // number of changed inputs made from each input of the corpus
};
constexpr Fuzzed parsers[] = {
    {"toml", fuzz_toml, 60},      {"overrides", fuzz_overrides, 40}, {"experiment", fuzz_experiment, 2},
    {"trace", fuzz_trace, 30},    {"histogram", fuzz_histogram, 40}, {"npy", fuzz_npy, 30},
    {"idx", fuzz_idx, 30},        {"cifar", fuzz_cifar, 10},         {"records", fuzz_records, 60},
    {"results", fuzz_results, 5}, {"tokens", fuzz_tokens, 30}};

double processor_s() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

std::vector<std::string> corpus_of(const std::string& parser) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::directory_iterator(fs::path(SYNCOPATE_SOURCE_DIR) / "tests/faults/corpus" / parser))
    files.push_back(entry.path());
  std::ranges::sort(files);
  std::vector<std::string> inputs;
  for (const fs::path& file : files) {
    std::ostringstream text;
    text << std::ifstream(file, std::ios::binary).rdbuf();
    inputs.push_back(text.str());
  }
  return inputs;
}

// A sequence of numbers from one stream.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : stream_{.seed = seed, .purpose = Purpose::synthetic_data} {}
  std::size_t below(std::size_t limit) {
    return limit == 0 ? 0 : static_cast<std::size_t>(stream_.uniform(next_++) * static_cast<double>(limit));
  }

 private:
  RandomStream stream_;
  std::uint32_t next_ = 0;
};

// Makes a few changes: replaces a byte, removes a piece, repeats a piece, inserts a piece of another input, or inserts
// a number that often causes faults.
std::string changed(std::string input, const std::vector<std::string>& corpus, Draws& draws) {
  static const std::string telling[] = {
      "0",  "-1", "1e308", "-1e308", "9223372036854775807",     "18446744073709551616", "nan", "inf", "\"", "[", "}",
      "\n", ",",  ".",     "null",   std::string(between_files)};
  const std::size_t changes = 1 + draws.below(4);
  for (std::size_t i = 0; i < changes; ++i) {
    const std::size_t at = draws.below(input.size() + 1),
                      length = draws.below(std::min<std::size_t>(input.size() - at, 40) + 1);
    switch (draws.below(5)) {
      case 0:
        if (at < input.size()) input[at] = static_cast<char>(draws.below(256));
        break;
      case 1:
        input.erase(at, length);
        break;
      case 2:
        input.insert(at, input.substr(at, length));
        break;
      case 3: {
        const std::string& other = corpus[draws.below(corpus.size())];
        const std::size_t from = draws.below(other.size() + 1);
        input.replace(at, length, other.substr(from, draws.below(80)));
        break;
      }
      default:
        input.replace(at, length, telling[draws.below(std::size(telling))]);
    }
  }
  return input;
}

// Runs the parser. It may refuse the input in its own way, within a second.
void take(const Fuzzed& parser, const std::string& input, const std::string& what) {
  const double begin_s = processor_s();
  EXPECT_NO_THROW(parser.parse(input)) << parser.name << ", " << what;
  EXPECT_LT(processor_s() - begin_s, 1) << parser.name << ", " << what;
}

TEST(Parsers, TakeEveryInputOfTheirCorpus) {
  for (const Fuzzed& parser : parsers) {
    const std::vector<std::string> corpus = corpus_of(parser.name);
    EXPECT_GE(corpus.size(), 7U) << parser.name;
    for (std::size_t i = 0; i < corpus.size(); ++i) take(parser, corpus[i], "input " + std::to_string(i));
  }
}

TEST(Parsers, TakeThousandsOfChangedInputs) {
  const char* const repeated = std::getenv("SYNCOPATE_SEED");
  const std::uint64_t seed = repeated ? std::strtoull(repeated, nullptr, 10) : std::random_device()();
  std::printf("SYNCOPATE_SEED=%llu\n", static_cast<unsigned long long>(seed));
  Draws draws(seed);
  int inputs = 0;
  for (const Fuzzed& parser : parsers) {
    const std::vector<std::string> corpus = corpus_of(parser.name);
    for (const std::string& input : corpus)
      for (int i = 0; i < parser.changed && !HasFailure(); ++i, ++inputs) {
        const std::string other = changed(input, corpus, draws);
        take(parser, other, "the changed input " + std::to_string(inputs) + ":\n" + testing::PrintToString(other));
      }
  }
  std::printf("%d inputs\n", inputs);
  EXPECT_GT(inputs, 3000);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these two need memory of their own
TEST(Parsers, NeedLessThanAGigabyte) {
  for (const Fuzzed& parser : parsers)
    for (const std::string& input : corpus_of(parser.name)) parser.parse(input);
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  EXPECT_LT(used.ru_maxrss, 1'000'000) << "kilobytes";
}
#endif

}  // namespace
}  // namespace syncopate
