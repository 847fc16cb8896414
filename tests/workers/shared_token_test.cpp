// A token is taken once, whoever of a process and its children comes first.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <optional>
#include <utility>

#include "workers/base/process.hpp"

namespace syncopate {
namespace {

// Whether a child that knows the token by its descriptor gets it.
bool child_takes(const SharedToken& token) {
  const pid_t child = fork();
  if (child == 0) _exit(SharedToken(token.descriptor()).take() ? 1 : 0);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status));
  return WEXITSTATUS(status) == 1;
}

TEST(SharedToken, IsTakenOnce) {
  SharedToken token;
  EXPECT_TRUE(token.take());
  EXPECT_FALSE(token.take());
  EXPECT_FALSE(child_takes(token));
}

TEST(SharedToken, WhoIsFirstOfSeveralChildrenHasIt) {
  SharedToken token;
  EXPECT_TRUE(child_takes(token));
  EXPECT_FALSE(child_takes(token));
  EXPECT_FALSE(token.take());
}

TEST(SharedToken, EachIsOfItsOwn) {
  SharedToken one, other;
  EXPECT_TRUE(one.take());
  EXPECT_TRUE(other.take());
}

// Of a process that has ended, or whose token is gone, nobody waits for it.
TEST(SharedToken, OfNobodyIsNotThere) {
  std::optional<SharedToken> gone(std::in_place);
  const int descriptor = gone->descriptor();
  gone.reset();
  EXPECT_FALSE(SharedToken(descriptor).take());
}

}  // namespace
}  // namespace syncopate
