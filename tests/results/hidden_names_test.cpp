// Whose leftover a hidden name is: by the identity of its process, not by a host's name.
#include <gtest/gtest.h>

#include "results/run_directory.hpp"
#include "workers/base/machine.hpp"

namespace syncopate {
namespace {

std::string named(const ProcessIdentity& process, std::string_view kind = partial_kind) {
  return hidden_sibling("folder/seed=1-0123abcd", kind, process).filename().string();
}

ProcessState state(const ProcessIdentity& process) { return read_hidden_name(named(process))->state; }

TEST(HiddenNames, SayWhatTheyStandFor) {
  const auto partial = read_hidden_name(named(this_process()));
  ASSERT_TRUE(partial);
  EXPECT_EQ(partial->name, "seed=1-0123abcd");
  EXPECT_FALSE(partial->is_replaced);
  EXPECT_TRUE(read_hidden_name(named(this_process(), replaced_kind))->is_replaced);
  EXPECT_EQ(hidden_sibling("folder/file.txt", partial_kind).parent_path(), "folder");
  // A name that itself looks like one.
  EXPECT_EQ(read_hidden_name(hidden_sibling(".a.partial.1.2.b", partial_kind).string())->name, ".a.partial.1.2.b");
}

TEST(HiddenNames, SayWhetherTheirProcessIsThere) {
  ProcessIdentity process = this_process();
  EXPECT_EQ(state(process), ProcessState::running);
  process.start -= 1;  // the number is used again
  EXPECT_EQ(state(process), ProcessState::gone);
  process = this_process();
  process.number = 999'999'999;
  EXPECT_EQ(state(process), ProcessState::gone);
}

// Process 1 of a container is none of another's that has the same name, nor are those of a machine that has started
// once more.
TEST(HiddenNames, OfAnotherMachineOrContainerAreUnknown) {
  ProcessIdentity process = this_process();
  process.number = 999'999'999;
  process.machine += " another";
  EXPECT_EQ(state(process), ProcessState::unknown);
  EXPECT_EQ(read_hidden_name(".run.partial.999999999." + host_name())->state, ProcessState::unknown)
      << "an earlier program's name";
}

TEST(HiddenNames, OtherFilesHaveNone) {
  for (const char* name : {"", ".", "..", ".hidden", "run.partial.1.2.3", ".partial.1.2.3", ".run.partial.x.2.3",
                           ".run.partial.0.1.2", ".run.partial.-1.1.2", ".run.partial.7", ".run.part.1.2.3"})
    EXPECT_FALSE(read_hidden_name(name)) << name;
}

}  // namespace
}  // namespace syncopate
