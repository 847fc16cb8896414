// `syncopate data tokens`: texts become token files, from which a model learns; unusable texts and folders.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "experiments/commands/commands.hpp"
#include "tests/experiments/program.hpp"
#include "workers/base/files.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

class TokenFilesOfTexts : public ProgramTest {
 protected:
  std::vector<int> tokens(const std::string& file) const {
    const std::string bytes = read(file);
    std::vector<std::uint16_t> numbers(bytes.size() / 2);
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return {numbers.begin(), numbers.end()};
  }
  std::vector<std::string> vocabulary(const std::string& folder) const {
    std::istringstream text(read(folder + "/vocabulary.txt"));
    std::vector<std::string> result;
    for (std::string line; std::getline(text, line);) result.push_back(line);
    return result;
  }
  // Returns the tokens as words.
  std::string words(const std::string& folder, const std::string& file) const {
    const std::vector<std::string> known = vocabulary(folder);
    std::string text;
    for (const int token : tokens(folder + "/" + file)) text += known.at(static_cast<std::size_t>(token)) + " ";
    return text;
  }
};

TEST_F(TokenFilesOfTexts, BytesEndWithTheEndOfEachText) {
  write("a.txt", "abcdefgh ij\xc3\xa9");  // a tenth of 13 bytes is left from byte 11 on, where no blank follows
  write("b.txt", "\xef\xbb\xbfklmnopqr\nst");
  const ProgramOutcome outcome = syncopate("data tokens a.txt b.txt --to out");
  ASSERT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err,
              StartsWith("a.txt, b.txt: --test-share 0.1 leaves nothing for tests: no text can be divided"));
  EXPECT_FALSE(std::filesystem::exists(directory / "out"));
  const ProgramOutcome again = syncopate("data tokens a.txt b.txt --to out --test-share 0.4");
  ASSERT_EQ(again.status, 0) << again.err;
  EXPECT_EQ(again.out, "out\n2 texts of 2 files: 20 tokens for training, 8 for tests, from a vocabulary of 257\n");
  constexpr int end = 256;
  EXPECT_THAT(tokens("out/train.bin"), ElementsAre('a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', ' ', end, 'k', 'l', 'm', 'n',
                                                   'o', 'p', 'q', 'r', '\n', end));
  EXPECT_THAT(tokens("out/test.bin"), ElementsAre('i', 'j', 0xc3, 0xa9, end, 's', 't', end));
  const auto known = vocabulary("out");
  ASSERT_EQ(known.size(), 257U);
  EXPECT_EQ(known[0x0a], "<0x0A>");
  EXPECT_EQ(known[256], "<end of text>");
}

TEST_F(TokenFilesOfTexts, WordsAreTheMostFrequentOnesOfTheTrainingParts) {
  write("a.txt", "Of the men, the ones OF the hill; one of them is the best.\n\nof unseen kings");
  const ProgramOutcome outcome = syncopate("data tokens a.txt --to out --tokenizer words --words 3 --test-share 0.22");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("from a vocabulary of 5\n"));
  EXPECT_THAT(vocabulary("out"), ElementsAre("<end of text>", "<unknown>", "the", "of", "best"));
  EXPECT_EQ(words("out", "train.bin"),
            "of the <unknown> the <unknown> of the <unknown> <unknown> of <unknown> <unknown> the best <end of text> ");
  EXPECT_EQ(words("out", "test.bin"), "of <unknown> <unknown> <end of text> ");
  EXPECT_THAT(outcome.out, HasSubstr("42.1 % of the tokens are words beyond the vocabulary")) << "8 of 19";
}

TEST_F(TokenFilesOfTexts, LinesAreDividedByTheirHash) {
  std::string text;
  for (int i = 0; i < 2000; ++i) text += fmt::format("line {}\r\n\n", i);
  write("lines.txt", text);
  const std::string options = " --lines --test-share 0.25";
  ASSERT_EQ(syncopate("data tokens lines.txt --to out" + options).status, 0);
  const auto train = tokens("out/train.bin"), test = tokens("out/test.bin");
  const auto lines = [](const std::vector<int>& all) { return std::ranges::count(all, 256); };
  EXPECT_EQ(lines(train) + lines(test), 2000);
  EXPECT_NEAR(static_cast<double>(lines(test)), 500, 4 * std::sqrt(2000 * 0.25 * 0.75));
  EXPECT_EQ(std::ranges::count(train, '\n') + std::ranges::count(train, '\r'), 0);
  ASSERT_EQ(shell("(cat lines.txt | '" SYNCOPATE_PROGRAM "' data tokens /dev/stdin --to piped" + options + ")").status,
            0);
  EXPECT_EQ(read("piped/train.bin"), read("out/train.bin"));
  EXPECT_EQ(read("piped/test.bin"), read("out/test.bin"));
}

TEST_F(TokenFilesOfTexts, FoldersAreReadInOrderAndGzipIsDecompressed) {
  std::filesystem::create_directories(directory / "texts/deep");
  write("texts/b.txt", "second text");
  write("texts/a.txt.gz", gzip("first text"));
  write("texts/deep/c.txt", "third text");
  write("texts/deep/latin.txt", "caf\xe9 au lait");
  write("texts/empty.txt", "");
  const ProgramOutcome outcome = syncopate("data tokens texts --to out/new --tokenizer words --test-share 0.5");
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(words("out/new", "train.bin"), "first <end of text> second <end of text> third <end of text> ");
  EXPECT_EQ(words("out/new", "test.bin"), "<unknown> <end of text> <unknown> <end of text> <unknown> <end of text> ");
  EXPECT_THAT(outcome.out, HasSubstr("2 files of folders left out, without text in UTF-8, such as texts/"));
  const std::string bytes = read("out/new/train.bin");
  ASSERT_EQ(syncopate("data tokens texts --to out/new --tokenizer words --test-share 0.5").status, 0);
  EXPECT_EQ(read("out/new/train.bin"), bytes) << "the same again, in the place of the first";
  // With a header the tokens are the same.
  ASSERT_EQ(syncopate("data tokens texts --to headed --tokenizer words --test-share 0.5 --header").status, 0);
  const std::string headed = read("headed/train.bin");
  ASSERT_EQ(headed.size(), 1024 + bytes.size());
  EXPECT_EQ(headed.substr(1024), bytes);
  std::int32_t count = 0;
  std::memcpy(&count, headed.data() + 8, sizeof(count));
  EXPECT_EQ(count, 6);
}

TEST_F(TokenFilesOfTexts, MoreWordsThan16BitsAreWrittenWith32) {
  std::string text;
  for (int i = 0; i < 70'000; ++i) text += fmt::format("w{} ", i);
  write("many.txt", text + "w1 w2 w3");
  ASSERT_EQ(syncopate("data tokens many.txt --to out --tokenizer words --words 70000 --test-share 0.00001").status, 0);
  EXPECT_EQ(read("out/train.bin").size() % 4, 0U);
  EXPECT_GE(read("out/train.bin").size(), 4 * 69'900U);
}

TEST_F(TokenFilesOfTexts, UnusableInputEndsWithStatus2AndOneLineEach) {
  write("latin.txt", "one\ncaf\xe9\n");
  write("empty.txt", "");
  write("good.txt", std::string(100, 'x') + " y z");
  const auto fault = [&](const std::string& arguments) {
    const ProgramOutcome outcome = syncopate("data tokens " + arguments);
    EXPECT_EQ(outcome.status, 2) << arguments;
    EXPECT_EQ(outcome.out, "");
    EXPECT_FALSE(std::filesystem::exists(directory / "out")) << arguments;
    return outcome.err;
  };
  EXPECT_EQ(fault("latin.txt empty.txt none.txt good.txt --to out"),
            "latin.txt:2: byte 0xe9 is not UTF-8; convert a text in Latin-1 with iconv -f ISO-8859-1 -t UTF-8\n"
            "empty.txt: is empty; must be a text in UTF-8\n"
            "none.txt: No such file or directory\n");
  write("cut.gz", gzip("some text").substr(0, 12));
  EXPECT_THAT(fault("cut.gz --to out"), StartsWith("cut.gz: "));
  EXPECT_THAT(fault("good.txt --to out --words 5"), HasSubstr("--words: needs --tokenizer words"));
  EXPECT_THAT(fault("good.txt --to out --test-share 1.5"), HasSubstr("--test-share"));
  EXPECT_THAT(fault("good.txt"), HasSubstr("--to"));
  EXPECT_EQ(fault("good.txt --to out --tokeniser words"),
            "--tokeniser: unknown option of data tokens; did you mean \"--tokenizer\"?\n");
  EXPECT_EQ(syncopate("data tokns good.txt").err,
            "data tokns: unknown command; must be one of tokens; did you mean \"tokens\"?\n");
  std::filesystem::create_directories(directory / "folder");
  EXPECT_THAT(fault("folder --to out"), HasSubstr("folder: contains no text in UTF-8"));
  write("folder/shard_train_1.bin", "x");
  EXPECT_THAT(fault("good.txt --to folder"),
              HasSubstr("--to folder: contains shard_train_1.bin, which is not a file of this command"));
  EXPECT_THAT(fault("good.txt --to good.txt"), HasSubstr("--to good.txt: is not a folder"));
  EXPECT_THAT(fault("good.txt --to good.txt/deep/sub"),
              AllOf(StartsWith("--to good.txt/deep/sub: cannot be written: /"), HasSubstr("/good.txt: is a file\n")));
  EXPECT_THAT(fault("none.txt --to /proc/x"),
              AllOf(StartsWith("--to /proc/x: cannot be written: "), Not(HasSubstr("none.txt"))))
      << "before the texts are read";
  EXPECT_EQ(read("folder/shard_train_1.bin"), "x");
}

// The limit on the size of files stands for a full disk.
TEST_F(TokenFilesOfTexts, WhatCannotBeWrittenLeavesTheFolderAsItWas) {
  write("a.txt", std::string(50'000, 'a') + " b");
  ASSERT_EQ(syncopate("data tokens a.txt --to out").status, 0);
  const std::string before = read("out/train.bin");
  write("a.txt", std::string(500'000, 'c') + " d");
  const ProgramOutcome outcome =
      shell("(ulimit -f 200; trap '' XFSZ; exec '" SYNCOPATE_PROGRAM "' data tokens a.txt --to out)");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(outcome.err, "syncopate: --to out: cannot be written: File too large\n");
  EXPECT_EQ(read("out/train.bin"), before);
  for (const auto& entry : std::filesystem::directory_iterator(directory))
    EXPECT_THAT(entry.path().filename().string(), testing::AnyOf("a.txt", "out", "out.txt", "err.txt"));
}

// Root may write everywhere, so a child process prepares the files as nobody.
TEST_F(TokenFilesOfTexts, AFolderThatCannotBeWrittenIsSaidBeforeTheTextsAreRead) {
  namespace fs = std::filesystem;
  const fs::path closed = directory / "closed", hidden = directory / "hidden";
  for (const fs::path& folder : {closed / "own", hidden / "sub"}) fs::create_directories(folder);
  fs::permissions(directory, fs::perms::all);
  fs::permissions(closed / "own", fs::perms::owner_read | fs::perms::owner_exec);
  fs::permissions(closed, fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_exec);
  fs::permissions(hidden, fs::perms::none);
  const auto prepare = [&](const fs::path& to) {
    if (getuid() == 0 && setuid(65534) != 0) _exit(3);
    try {
      prepare_token_files({.texts = {(directory / "none.txt").string()}, .to = to.string()});
    } catch (const std::exception& fault) {
      fmt::print(stderr, "{}", fault.what());
    }
    _exit(0);
  };
  for (const fs::path& to : {closed / "new", closed / "new/sub", closed / "own", hidden / "sub"})
    EXPECT_EXIT(prepare(to), testing::ExitedWithCode(0),
                "^--to " + to.string() + ": cannot be written: Permission denied$");
  for (const fs::path& folder : {closed, closed / "own", hidden}) fs::permissions(folder, fs::perms::owner_all);
}

TEST_F(TokenFilesOfTexts, WithoutATestPartTheReasonIsSaid) {
  write("line.txt", "oneword\n");
  write("other.txt", "another");
  EXPECT_EQ(syncopate("data tokens line.txt --to out").err,
            "line.txt: nothing is left for tests: a text is divided after a blank or the end of a line, and none has "
            "one before its last character; must be longer\n");
  EXPECT_THAT(syncopate("data tokens line.txt other.txt --to out --test-share 0.9").err,
              HasSubstr("one before its last character; must be longer, or use --lines, which keeps lines whole\n"));
  write("line.txt", "two words\n");
  EXPECT_EQ(
      syncopate("data tokens line.txt --to out").err,
      "line.txt: --test-share 0.1 leaves nothing for tests: no text can be divided in its last 10 %, after a blank or "
      "the end of a line; must be larger\n");
  EXPECT_EQ(syncopate("data tokens line.txt --to out --test-share 0.7").status, 0);
  write("line.txt", "words, and then: ...\n");
  EXPECT_THAT(syncopate("data tokens line.txt --to out --tokenizer words --test-share 0.2").err,
              HasSubstr("--test-share 0.2 leaves nothing for tests; training and tests each need at least one word\n"));
}

// A small transformer learns from the files of the command, without any other key for the data than their folder.
TEST_F(TokenFilesOfTexts, AModelLearnsFromThem) {
  std::string text;
  for (int i = 0; i < 3000; ++i) text += fmt::format("{} and {} are {}. ", i % 7, i % 5, i % 7 + i % 5);
  write("sums.txt", text);
  ASSERT_EQ(syncopate("data tokens sums.txt --to data/sums").status, 0);
  const std::string experiment = write("e.toml", R"(name = "stream"
seeds = 1
cluster = { workers = 2, micro_batch_s = 0.01 }
network = { kind = "free" }
budget.epochs = 1
evaluation.every_steps = 30
[training]
model = "text-transformer"
dataset = "tokens"
micro_batch_size = 16
learning_rate = { schedule = "constant", peak = 0.003 }
optimizer = { name = "adam" }
[models.text-transformer]
task = "causal-lm"
width = 16
depth = 1
mlp_width = 32
positions = 16
norm = "pre"
[datasets.tokens]
directory = "data/sums"
context = 16
[[methods]]
algorithm = "sync-sgd"
)");
  const ProgramOutcome check = syncopate("check " + experiment);
  ASSERT_EQ(check.status, 0) << check.err;
  EXPECT_THAT(check.out, AllOf(HasSubstr("directory_hash"), HasSubstr("windows = \"disjoint\"")));
  const ProgramOutcome run = syncopate("run " + experiment + " --results results --quiet");
  ASSERT_EQ(run.status, 0) << run.err;
  const ProgramOutcome drawn =
      syncopate("run " + experiment + " datasets.tokens.windows=random --results drawn --quiet");
  EXPECT_EQ(drawn.status, 0) << drawn.err;
  EXPECT_NE(drawn.out, run.out);
  // Other contents in the same place are other data; a moved folder is not.
  std::filesystem::rename(directory / "data/sums", directory / "moved");
  const ProgramOutcome moved = syncopate("run " + experiment + " datasets.tokens.directory=moved --results results");
  EXPECT_THAT(moved.err, HasSubstr("1 of 1 runs already exist")) << moved.err;
}

}  // namespace
}  // namespace syncopate
