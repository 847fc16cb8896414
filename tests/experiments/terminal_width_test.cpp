// What is printed on a narrow terminal stays within its width.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>

#include <array>
#include <cstdlib>
#include <future>
#include <sstream>
#include <string>

#include "results/text_table.hpp"
#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

constexpr const char* experiment = R"(
name = "wide"
seeds = 3
[cluster]
workers = 8
micro_batch_s = 0.01
micro_batches = 2
[network]
kind = "ring"
latency_s = 50e-6
bandwidth_bytes_per_s = 1.25e9
[[delays]]
kind = "exponential"
mean = 0.01
[training]
model = "none"
parameters = 1000
[budget]
steps = 20
[[methods]]
label = "synchronous SGD, which waits for everybody"
algorithm = "sync-sgd"
[[methods]]
label = "DropCompute that drops what comes late"
algorithm = "dropcompute"
threshold_s = 0.03
[[methods]]
label = "backup workers, two of eight"
algorithm = "backup-workers"
backups = 2
[sweep]
"cluster.micro_batches" = [2, 4]
[[claim]]
sentence = "With a fixed threshold and exponential delays of one micro-batch's length DropCompute makes more of its time"
measure = "micro_batches_per_s"
method = "DropCompute that drops what comes late"
against = "synchronous SGD, which waits for everybody"
as = "ratio"
everywhere = true
above = 1.0
)";

class TerminalWidth : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    file_ = write("e.toml", experiment);
  }

  // What the program writes to a terminal of so many columns.
  std::string on_terminal(const std::string& arguments, unsigned short columns) {
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    EXPECT_GE(terminal, 0);
    EXPECT_EQ(grantpt(terminal), 0);
    EXPECT_EQ(unlockpt(terminal), 0);
    const winsize size{.ws_row = 50, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);
    const std::string name = ptsname(terminal);
    const int held = open(name.c_str(), O_RDWR | O_NOCTTY);  // lest the terminal ends before the program opens it
    std::future<std::string> shown = std::async(std::launch::async, [terminal] {
      std::string text;
      std::array<char, 4096> part{};
      for (ssize_t n = 0; (n = ::read(terminal, part.data(), part.size())) > 0;)
        text.append(part.data(), static_cast<std::size_t>(n));
      std::erase(text, '\r');
      return text;
    });
    const ProgramOutcome outcome = shell("('" SYNCOPATE_PROGRAM "' " + arguments + " >" + name + ")");
    EXPECT_EQ(outcome.status, 0) << arguments << "\n" << outcome.err;
    close(held);
    std::string text = shown.get();
    close(terminal);
    return text;
  }

  std::string file_;
};

std::size_t longest_line(const std::string& text) {
  std::istringstream lines(text);
  std::size_t longest = 0;
  for (std::string line; std::getline(lines, line);) longest = std::max(longest, display_width(line));
  return longest;
}

TEST_F(TerminalWidth, IsThatOfAllTablesNotesAndClaims) {
  const std::string against = " --against 'synchronous SGD, which waits for everybody'";
  for (const std::string& arguments :
       {"run " + file_ + " --quiet", "predict " + file_, "table results/runs/wide --rank micro_batches_per_s" + against,
        std::string("claims results/runs"), "run " + file_ + " --quiet --accept results/runs"}) {
    const std::string narrow = on_terminal(arguments, 80);
    EXPECT_LE(longest_line(narrow), 80u) << arguments << "\n" << narrow;
    EXPECT_GT(longest_line(syncopate(arguments).out), 80u) << arguments << ": without a terminal nothing is folded";
  }
  for (const std::string& arguments : {"predict " + file_, std::string("claims results/runs")})
    EXPECT_EQ(on_terminal(arguments, 1000), syncopate(arguments).out) << arguments;
}

}  // namespace
}  // namespace syncopate
