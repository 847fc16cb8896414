// Streams of tokens in files: their windows compared with slices in Python, faults, and models that learn from them.
#include "workers/data/token_stream.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "tests/workers/flat_gradients.hpp"
#include "tests/workers/idx_files.hpp"
#include "tests/workers/npy_files.hpp"
#include "tests/workers/planned_objective.hpp"
#include "workers/base/process.hpp"
#include "workers/data/datasets.hpp"
#include "workers/data/partition.hpp"
#include "workers/data/text_dataset.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/torch_library.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;
using Tokens = std::vector<std::int32_t>;

// Golden cases, and small files of tokens whose windows are easy to see.
class TokenStreams : public PlannedObjective {
 protected:
  void SetUp() override {
    IdxFiles::SetUp();
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);  // not the user's cache
  }

  template <typename Element>
  std::filesystem::path save(const std::string& name, std::int64_t count, Element first = 0) const {
    std::vector<Element> tokens(static_cast<std::size_t>(count));
    std::iota(tokens.begin(), tokens.end(), first);
    return write(name, bytes_of(tokens));
  }
  std::string with_header(TokenType type, std::int64_t declared, std::size_t content_bytes) const {
    return token_file_header(type, declared) + std::string(content_bytes, '\1');
  }
  std::filesystem::path write_text(const std::string& name, const std::string& text) const {
    return write(name, {text.begin(), text.end()});
  }

  TokenStreamOptions options{.context = 4};

  std::string fault() const {
    return message_of<DataFault>([&] { token_stream(options).size(directory_); });
  }
  Tokens tokens(const Dataset& data, Split split, std::uint32_t sample, const Visit& visit = {}) const {
    Tokens space;
    const auto result = data.tokens(split, sample, visit, space);
    EXPECT_EQ(std::ssize(result), data.length(split, sample));
    return {result.begin(), result.end()};
  }
  std::vector<Tokens> all(const Dataset& data, Split split) const {
    std::vector<Tokens> result;
    for (std::uint32_t i = 0; i < data.size().samples(split); ++i) result.push_back(tokens(data, split, i));
    return result;
  }

  // Keys of an experiment with this stream.
  std::vector<std::string> keys(const std::string& model, std::vector<std::string> more = {}) const {
    more.insert(more.end(), {"training.dataset=\"tokens\"", "training.micro_batch_size=1",
                             fmt::format("training.model=\"{}\"", model),
                             fmt::format("datasets.tokens.directory=\"{}\"", directory_.string())});
    return more;
  }
};

FileBytes from_hex(const std::string& hex) {
  FileBytes bytes(hex.size() / 2);
  for (std::size_t i = 0; i < bytes.size(); ++i)
    std::from_chars(hex.data() + 2 * i, hex.data() + 2 * i + 2, bytes[i], 16);
  return bytes;
}

TEST_F(TokenStreams, HaveTheWindowsThatPythonCutsInEveryFormat) {
  std::ifstream file(SYNCOPATE_SOURCE_DIR "/tests/golden/token_windows.json");
  const Json cases = Json::parse(file);
  ASSERT_EQ(cases.size(), 5U);
  const std::map<std::string, TokenType> types = {
      {"uint8", TokenType::uint8}, {"uint16", TokenType::uint16}, {"uint32", TokenType::uint32}};
  for (const Json& one : cases) {
    const std::string type = one.at("type");
    const bool has_header = one.at("header");
    SCOPED_TRACE(type + (has_header ? " with a header" : ""));
    int number = 0;
    for (const Json& content : one.at("train_files"))
      write(fmt::format("part_train_{:06}.bin", ++number), from_hex(content));
    write("part_val_000000.bin", from_hex(one.at("test_file")));
    options.context = one.at("context");
    options.random = false;
    // Only bare files of other types than uint16 need their type.
    options.type = has_header || type == "uint16" ? std::nullopt : std::optional(types.at(type));
    const auto data = token_stream(options).load(directory_);
    EXPECT_EQ(data->size().shape, (SampleShape{.width = options.context + 1, .vocabulary = one.at("vocabulary")}));
    EXPECT_EQ(all(*data, Split::train), one.at("train").get<std::vector<Tokens>>());
    EXPECT_EQ(all(*data, Split::test), one.at("test").get<std::vector<Tokens>>());
    EXPECT_THAT(data->size().notes,
                ElementsAre(AllOf(HasSubstr("part_train_000002.bin: has 5 tokens"), HasSubstr("a window of 6"))));
    EXPECT_EQ(data->size().notes, token_stream(options).size(directory_).notes);
    options.type = types.at(type);
    EXPECT_EQ(all(*token_stream(options).load(directory_), Split::test), all(*data, Split::test));

    options.random = true;
    const auto drawn = token_stream(options).load(directory_);
    EXPECT_EQ(drawn->size().train, data->size().train) << "an epoch has equally many windows";
    EXPECT_EQ(all(*drawn, Split::test), all(*data, Split::test)) << "evaluation draws nothing";
    for (const Json& visit : one.at("random"))
      EXPECT_EQ(
          tokens(*drawn, Split::train, visit.at("sample"), {.seed = visit.at("seed"), .epoch = visit.at("epoch")}),
          visit.at("window").get<Tokens>());
  }
}

TEST_F(TokenStreams, HeadersAreLlmCs) {
  const std::string header = token_file_header(TokenType::uint32, 0x12345);
  ASSERT_EQ(header.size(), 1024U);
  std::array<std::int32_t, 256> words{};
  std::memcpy(words.data(), header.data(), header.size());
  EXPECT_EQ(words[0], 20240801);
  EXPECT_EQ(words[1], 7);
  EXPECT_EQ(words[2], 0x12345);
  EXPECT_TRUE(std::all_of(words.begin() + 3, words.end(), [](std::int32_t word) { return word == 0; }));
}

// Each token is its own index, so the answers of all windows of an epoch can be counted.
TEST_F(TokenStreams, AnEpochPredictsEveryTokenOnceExceptFirstOnesAndRests) {
  save<std::uint16_t>("train_1.bin", 403);      // 100 windows, and a rest of 2
  save<std::uint16_t>("train_2.bin", 81, 403);  // 20 windows, no rest
  save<std::uint16_t>("test.bin", 30);
  const auto data = token_stream(options).load(directory_);
  const Sampler sampler({.samples = data->size().train, .workers = 3, .micro_batches = 2, .micro_batch_size = 5});
  ASSERT_EQ(sampler.steps_per_epoch(), 4);
  std::map<std::int32_t, int> answers;
  for (int step = 4; step < 8; ++step)
    for (int worker = 0; worker < 3; ++worker)
      for (int index = 0; index < 2; ++index) {
        std::vector<std::uint32_t> samples;
        sampler.append_samples({Rank{worker}, step, index}, samples);
        for (const std::uint32_t sample : samples) {
          const Tokens window = tokens(*data, Split::train, sample);
          for (std::size_t i = 1; i < window.size(); ++i) {
            EXPECT_EQ(window[i], window[i - 1] + 1);
            ++answers[window[i]];
          }
        }
      }
  EXPECT_EQ(answers.size(), 480U);
  for (const auto& [token, count] : answers) EXPECT_EQ(count, 1) << token;
  for (const std::int32_t token : {0, 401, 402, 403}) EXPECT_FALSE(answers.contains(token)) << token;
}

TEST_F(TokenStreams, FaultsNameTheFileAndWhatWouldBeRight) {
  save<std::uint16_t>("train.bin", 100);
  const auto test = save<std::uint16_t>("test.bin", 100);
  EXPECT_EQ(token_stream(options).size(directory_).test, 24);

  write("test.bin", FileBytes(101, 1));
  EXPECT_EQ(fault(), test.string() +
                         ": has 101 bytes; must be a multiple of 2, the size of a uint16 token; a file without llm.c's "
                         "header has uint16 tokens unless `format` is set");
  write("test.bin", {});
  EXPECT_EQ(fault(), test.string() + ": is empty");
  save<std::uint16_t>("test.bin", 4);
  EXPECT_EQ(fault(),
            test.string() + ": has 4 tokens, fewer than a window of context + 1 = 5; `context` must be at most 3");
  save<std::uint16_t>("test_2.bin", 3);
  EXPECT_THAT(fault(), HasSubstr("test.bin: has 4 tokens, the most of its split, fewer"));
  std::filesystem::remove(directory_ / "test_2.bin");
  save<std::uint32_t>("test.bin", 100);
  EXPECT_THAT(fault(), AllOf(HasSubstr("test.bin: every second number is 0"), HasSubstr("must be \"uint32\"")));

  write_text("test.bin", with_header(TokenType::uint16, 50, 98));
  EXPECT_EQ(
      fault(),
      test.string() + ": its header declares 50 tokens of uint16, but 98 bytes follow it; must be 2 bytes per token");
  write_text("test.bin", with_header(TokenType::uint16, 50, 100));
  options.type = TokenType::uint32;
  save<std::uint32_t>("train.bin", 100);
  EXPECT_EQ(fault(),
            test.string() +
                ": has llm.c's header of uint16 tokens; `format` is \"uint32\", and must be \"auto\" or \"uint16\"");
  options.type = {};
  save<std::uint16_t>("train.bin", 100);
  std::string other = with_header(TokenType::uint32, 25, 100);
  other[4] = 6;
  write_text("test.bin", other);
  EXPECT_EQ(fault(), test.string() + ": has version 6 of llm.c's header; must be 7 after the magic number 20240801");
  write_text("test.bin", other.substr(0, 1000));
  EXPECT_THAT(fault(), HasSubstr("ends within llm.c's header; has 1000 bytes, and the header has 1024"));

  for (const auto& [type, bytes] : {std::pair(TokenType::uint16, 100), std::pair(TokenType::uint32, 200)}) {
    std::string unknown = with_header(type, 50, static_cast<std::size_t>(bytes));
    constexpr std::int32_t magic = 20240521;
    std::memcpy(unknown.data(), &magic, sizeof(magic));
    write_text("test.bin", unknown);
    for (const auto given : {std::optional<TokenType>(), std::optional(TokenType::uint16)}) {
      options.type = given;
      EXPECT_EQ(fault(), test.string() +
                             ": has a header of an unknown kind, with the magic number 20240521; must have llm.c's "
                             "header, with the magic number 20240520 (uint16) or 20240801 (uint32), or no header");
    }
    options.type = TokenType::uint16;
    for (const std::size_t word : {2, 3, 255}) {
      std::string tokens = unknown;
      ++tokens[4 * word];
      write_text("test.bin", tokens);
      EXPECT_NO_THROW(token_stream(options).size(directory_)) << "these are tokens: word " << word;
    }
  }
  options.type = {};

  std::filesystem::remove(test);
  std::filesystem::create_directory(test);
  EXPECT_EQ(fault(), test.string() + ": is not a regular file");
  std::filesystem::remove(test);
  EXPECT_EQ(fault(), directory_.string() + ": no file matches test = \"*{test,val}*.bin\"; the folder has train.bin");
  options.test = "tr*";
  EXPECT_EQ(fault(), (directory_ / "train.bin").string() +
                         ": matches both train = \"*train*.bin\" and test = \"tr*\"; must match only one of them");
  EXPECT_THAT(message_of<DataFault>([&] { token_stream(options).size(directory_ / "none"); }),
              HasSubstr("no such directory; must be a directory with token files"));
}

TEST_F(TokenStreams, TokensBeyondTheVocabularyAreNamedWithTheirPlace) {
  save<std::uint16_t>("train_1.bin", 100);
  const auto second = save<std::uint16_t>("train_2.bin", 700'000, 7);  // wraps: the first 500 is token 493
  save<std::uint16_t>("test.bin", 100);
  EXPECT_EQ(token_stream(options).size(directory_).shape.vocabulary, 65536);
  options.vocabulary = 65536;
  EXPECT_EQ(token_stream(options).size(directory_).shape.vocabulary, 65536);
  options.vocabulary = 70000;
  EXPECT_EQ(token_stream(options).load(directory_)->size().shape.vocabulary, 70000) << "more than the files have";
  options.vocabulary = 500;
  EXPECT_EQ(fault(), second.string() + ": token 493, counted from 0, is 500; must be less than `vocabulary`, 500");
  // Beyond the first piece that is read at once, in a file with a header.
  std::vector<std::uint32_t> tokens(600'000, 3);
  tokens[599'998] = 1 << 24;
  const FileBytes content = bytes_of(tokens);
  write_text("train_2.bin",
             token_file_header(TokenType::uint32, 600'000) + std::string(content.begin(), content.end()));
  options.vocabulary = {};
  EXPECT_THAT(fault(), AllOf(HasSubstr("train_2.bin: token 599998, counted from 0, is 16777216"),
                             HasSubstr("must be less than 16777216: does `format` fit the file?")));
}

TEST_F(TokenStreams, VocabularyAndHashFollowTheContent) {
  save<std::uint16_t>("train.bin", 10);
  save<std::uint16_t>("test.bin", 10);
  EXPECT_EQ(token_stream(options).size(directory_).shape.vocabulary, 10);
  const std::string hash = token_stream(options).hash(directory_);
  save<std::uint16_t>("train.bin", 10, 3);
  EXPECT_EQ(token_stream(options).size(directory_).shape.vocabulary, 13) << "the content has changed";
  EXPECT_NE(token_stream(options).hash(directory_), hash);
  save<std::uint16_t>("train.bin", 10);
  save<std::uint16_t>("test.bin", 10, 3);
  EXPECT_NE(token_stream(options).hash(directory_), hash) << "which split has changed does matter";
}

TEST_F(TokenStreams, PatternsMayHaveFoldersAndBracesAndFoldersSpecialNames) {
  const auto folder = directory_ / "a[b]*{c,d}";
  std::filesystem::create_directories(folder / "deep");
  const auto put = [&](const std::string& name, std::uint8_t token) {
    std::ofstream(folder / name) << std::string(9, static_cast<char>(token));
  };
  put("deep/x10.u8", 10);
  put("deep/x9.u8", 9);
  put("deep/y.u8", 8);
  put("val.u8", 7);
  options = {.train = "deep/{x*,y,x9}.u8", .test = "val.u8", .type = TokenType::uint8, .context = 8};
  EXPECT_THAT(all(*token_stream(options).load(folder), Split::train),
              ElementsAre(Tokens(9, 10), Tokens(9, 9), Tokens(9, 8)))
      << "sorted by bytes, each once";
}

// Mapping a file of 64 GiB, and reading a few windows of it, needs no memory.
TEST_F(TokenStreams, AreReadWhereTheyAreNeeded) {
  const auto file = write("train.bin", {});
  constexpr std::int64_t bytes = std::int64_t{1} << 36;
  if (truncate(file.c_str(), bytes) != 0) GTEST_SKIP() << "the file system has no sparse files of this size";
  const auto resident_bytes = [] {
    std::ifstream status("/proc/self/statm");
    std::int64_t total = 0, resident = 0;
    status >> total >> resident;
    return resident * sysconf(_SC_PAGESIZE);
  };
  const std::int64_t before = resident_bytes();
  std::vector<TokenFile> files;
  files.emplace_back(file, TokenType::uint16);
  const TokenWindows windows(std::move(files), 1024);
  EXPECT_EQ(windows.windows(), (bytes / 2 - 1) / 1024);
  EXPECT_EQ(windows.begins(), bytes / 2 - 1024);
  Tokens out;
  for (std::int64_t i = 0; i < 100; ++i) windows.append_window(windows.windows() / 100 * i, out);
  windows.append_at(windows.begins() - 1, out);
  EXPECT_EQ(out, Tokens(101 * 1025));
  EXPECT_LT(resident_bytes() - before, 32 << 20);
}

// The program knows both mappings of one file, and also one that took the place of an earlier mapping.
TEST_F(TokenStreams, AFileThatIsCutOffWhileItIsReadEndsTheProgramWithItsName) {
  const auto read_after_cut = [&](std::int64_t token) {
    const auto file = save<std::uint16_t>("train.bin", 100'000);
    const auto other = save<std::uint16_t>("test.bin", 100'000);
    const TokenFile untouched(other, {});
    static_cast<void>(TokenFile(file, {}));
    const TokenFile first(file, {}), second(file, {});
    if (truncate(file.c_str(), 4096) != 0) _exit(3);
    Tokens out;
    untouched.append(0, 100'000, out);
    first.append(0, 2048, out);
    second.append(token, 1, out);
    _exit(0);
  };
  EXPECT_EXIT(read_after_cut(2000), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(read_after_cut(99'999), testing::ExitedWithCode(exit_failure),
              "^syncopate: .*/train.bin: became shorter while it was being read, or its disk failed; must not change "
              "during a run\n$");
}

TEST_F(TokenStreams, ValidationAndSubsetsAreWindowsToo) {
  save<std::uint16_t>("train.bin", 401);
  save<std::uint16_t>("test.bin", 30);
  const auto whole = token_stream(options).load(directory_);
  const auto data = with_validation(whole, {.samples = 20, .subset = 50});
  std::set<Tokens> seen;
  for (const Split split : {Split::train, Split::validation})
    for (const Tokens& window : all(*data, split)) EXPECT_TRUE(seen.insert(window).second);
  EXPECT_EQ(seen.size(), 70U);
  EXPECT_EQ(all(*data, Split::test), all(*whole, Split::test));
  EXPECT_EQ(training_lengths(*data, {.last_is_answer = true}), std::vector<std::int32_t>(50, 4));
}

TEST_F(TokenStreams, ModelsGetTheirWindowsFromAnExperimentFile) {
  save<std::uint8_t>("train.bin", 402);
  save<std::uint8_t>("val.bin", 30);
  const std::string context = "datasets.tokens.context=4", bytes = "datasets.tokens.format=\"uint8\"";
  const std::string causal = "models.text-transformer.task=\"causal-lm\"", small = "models.text-transformer.width=8";
  const auto planned = plan(keys("text-transformer", {context, bytes, causal, small, "models.text-transformer.heads=2",
                                                      "models.text-transformer.positions=4"}));
  ASSERT_EQ(report, "") << "the last of five tokens has no position, because it is only an answer";
  EXPECT_EQ(planned.steps_per_epoch, 100 / 8);
  EXPECT_TRUE(planned.has_accuracy);
  EXPECT_EQ(planned.memory.data_bytes, 0) << "the files are mapped";
  const auto objective = planned.load();
  const std::vector<float> start = objective->initial_parameters(1);
  const EvaluationSums sums = objective->evaluate(start.data(), nullptr, Split::test, 0, 7);
  EXPECT_EQ(sums.samples, 7 * 4) << "all tokens but the first and the rest";
  EXPECT_NEAR(sums.loss / 28, std::log(256), 0.1);

  plan(keys("text-transformer", {context, bytes, causal, "models.text-transformer.positions=3"}));
  EXPECT_THAT(report, HasSubstr("positions = 3; must be at least 4, the length of the longest text without its last "
                                "token, unless `cut` is true; tokens has sequences of up to 5 tokens"));
  EXPECT_EQ(plan(keys("none", {context, bytes})).steps_per_epoch, 12);
  EXPECT_EQ(plan(keys("none", {context, bytes, "datasets.tokens.test_windows=3"})).notes.size(), 0U);
  plan(keys("text-transformer", {context, bytes}));
  EXPECT_THAT(report, HasSubstr("task"));
  plan(keys("linear", {context, bytes}));
  EXPECT_THAT(report, HasSubstr("needs samples with labels of at least two classes"));
  plan(keys("mlp", {context, bytes}));
  EXPECT_THAT(report, HasSubstr("needs samples made of numbers"));
}

TEST_F(TokenStreams, FaultsStandAtTheKeyThatIsToBeChanged) {
  write("train.bin", FileBytes(402, 9));
  write("val.bin", FileBytes(30, 8));
  const std::string place = "datasets.tokens.", folder = directory_.string();
  const auto of = [&](const std::vector<std::string>& given) {
    std::vector<std::string> more = {"datasets.tokens.format=\"uint8\""};
    for (const std::string& key : given) more.push_back(place + key);
    plan(keys("none", more));
    const std::size_t at = report.find(place);
    return at == report.npos ? report : report.substr(at + place.size());
  };
  EXPECT_EQ(of({"context=4"}), "");
  EXPECT_EQ(
      of({"context=4", "vocabulary=9"}),
      "vocabulary = 9; " + folder + "/train.bin: token 0, counted from 0, is 9; must be less than `vocabulary`, 9");
  EXPECT_EQ(of({"context=4", "test_windows=8"}),
            "test_windows = 8; " + folder + ": its test files have 7 windows; `test_windows` must be at most 7");
  EXPECT_EQ(of({"context=500"}), "context = 500; " + folder +
                                     "/train.bin: has 402 tokens, fewer than a window of context + 1 = 501; `context` "
                                     "must be at most 401");
  EXPECT_EQ(of({}), "context = 256 (the default); " + folder +
                        "/val.bin: has 30 tokens, fewer than a window of context + 1 = 257; `context` must be at most "
                        "29");
  EXPECT_EQ(of({"context=4", "train=\"x*\""}),
            "train = \"x*\"; " + folder + ": no file matches train = \"x*\"; the folder has train.bin, val.bin");
  EXPECT_EQ(of({"context=4", "train=\"\""}), "train = \"\"; " + folder + ": `train` must be a pattern of files' names");
  EXPECT_EQ(of({"context=4", "test=\".\""}), "test = \".\"; " + folder + "/.: is not a regular file");
  EXPECT_THAT(of({"context=4", "train=\"*.bin\""}), StartsWith("train = \"*.bin\"; "));
  EXPECT_THAT(of({"context=4", "test=\"*.bin\""}), StartsWith("test = \"*.bin\"; "));
  // The folder's own contents are at fault.
  write("val.bin", FileBytes(1, 9));
  EXPECT_THAT(of({"context=4"}), StartsWith("directory = "));
  write("val.bin", {});
  EXPECT_THAT(of({"context=4"}), AllOf(StartsWith("directory = "), HasSubstr("val.bin: is empty")));
  std::filesystem::remove(directory_ / "val.bin");
  std::filesystem::remove(directory_ / "train.bin");
  EXPECT_THAT(of({"context=4"}), AllOf(StartsWith("directory = "), HasSubstr("the folder is empty")));
}

TEST_F(TokenStreams, AVocabularyOutOfItsRangeIsOneFault) {
  write("train.bin", FileBytes(402, 9));
  write("val.bin", FileBytes(30, 9));
  for (const std::string vocabulary : {"1", "16777217", "\"all\""}) {
    plan(keys("none", {"datasets.tokens.format=\"uint8\"", "datasets.tokens.context=4",
                       "datasets.tokens.vocabulary=" + vocabulary}));
    EXPECT_THAT(report, AllOf(HasSubstr("datasets.tokens.vocabulary = " + vocabulary +
                                        "; must be an integer from 2 to 16777216"),
                              Not(HasSubstr("\n"))));
  }
}

TEST_F(TokenStreams, WindowsAtRandomPositionsCannotBeHeldOutOrDivided) {
  save<std::uint8_t>("train.bin", 402);
  save<std::uint8_t>("val.bin", 30);
  const std::vector<std::string> given = {"datasets.tokens.context=4", "datasets.tokens.format=\"uint8\""};
  for (const std::string& key : {std::string("validation_samples=5"), std::string("subset_samples=50"),
                                 std::string("partition={kind=\"size\"}")}) {
    std::vector<std::string> more = given;
    more.push_back("training." + key);
    plan(keys("none", more));
    EXPECT_EQ(report, "") << key;
    more.emplace_back("datasets.tokens.windows=\"random\"");
    plan(keys("none", more));
    EXPECT_THAT(report, AllOf(HasSubstr("training." + key.substr(0, key.find('='))),
                              HasSubstr("must be left out: with datasets.tokens.windows = \"random\"")));
  }
  std::vector<std::string> more = given;
  more.emplace_back("training.partition={kind=\"label\"}");
  plan(keys("none", more));
  EXPECT_THAT(report, HasSubstr("must be \"shuffled\" or \"size\": samples of tokens have no classes"));
}

// The objective gets the windows of its own seed and epoch: its gradient is that of the same windows in memory.
TEST_F(TokenStreams, GradientsAreThoseOfTheSameWindowsInMemory) {
  write("train.bin", [] {
    FileBytes bytes(403);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i * i % 23);
    return bytes;
  }());
  save<std::uint8_t>("test.bin", 23);
  options.type = TokenType::uint8;
  const SamplerOptions sampling{.samples = 100, .workers = 2, .micro_batches = 2, .micro_batch_size = 4, .seed = 9};
  const TextTransformerOptions small{
      .task = {.kind = TextTask::Kind::causal_lm}, .width = 8, .depth = 1, .heads = 2, .mlp_width = 8, .positions = 5};
  const SampleShape shape{.width = 5, .vocabulary = 23};
  const Network network = text_transformer_network(shape, 0, small);
  const auto objective_on = [&](std::shared_ptr<const Dataset> data) {
    return make_torch_objective({.network = network,
                                 .dataset = std::move(data),
                                 .sampling = sampling,
                                 .chunk_samples = 32,
                                 .label_smoothing = 0,
                                 .mixup = 0});
  };
  const auto gradient = [&](const Objective& objective, std::int64_t step) {
    const std::vector<float> start = objective.initial_parameters(1);
    const MicroBatch micro_batch{.worker = Rank{1}, .step = step, .index = 1};
    const PartialGradient result = objective.gradient(start.data(), nullptr, {&micro_batch, 1});
    return std::pair(flatten(result), result.loss_sum);
  };
  const std::int64_t steps = sampling.steps_per_epoch();
  for (const bool random : {false, true}) {
    options.random = random;
    const auto data = token_stream(options).load(directory_);
    const auto objective = objective_on(data);
    for (const std::int64_t epoch : {0, 2}) {
      std::array<TokenSequences, 2> sequences;
      for (std::uint32_t i = 0; i < 100; ++i)
        sequences[0].add(tokens(*data, Split::train, i, {.seed = 9, .epoch = epoch}), 0);
      for (std::uint32_t i = 0; i < 5; ++i) sequences[1].add(tokens(*data, Split::test, i), 0);
      DatasetSize size = data->size();
      size.draws_samples = false;
      const auto in_memory = objective_on(make_token_dataset(size, sequences[0], sequences[1]));
      EXPECT_EQ(gradient(*objective, epoch * steps + 3), gradient(*in_memory, epoch * steps + 3)) << random << epoch;
      if (epoch == 0) continue;
      EXPECT_EQ(gradient(*objective, 3) == gradient(*in_memory, 3), !random) << "another epoch, other windows";
    }
  }
}

}  // namespace
}  // namespace syncopate
