// The number of calls that a method may use: the public calls of Worker, Participant and Server, and of the objects
// through which a worker acts. They are few enough to be read in one go, and each is used by at least one method.
//
// The test counts the names of each class's public functions. Overloads count once, constructors do not count, and
// neither do values such as gradients and messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace syncopate {
namespace {

namespace fs = std::filesystem;

const fs::path source = SYNCOPATE_SOURCE_DIR;

std::string text_of(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns the public part of a class, without comments and with semicolons in place of functions' bodies.
std::string public_part(const std::string& header, const std::string& name) {
  const std::string text = std::regex_replace(header, std::regex("//[^\n]*"), "");
  const std::regex heading("\nclass " + name + "\\b[^;{]*\\{");
  std::smatch found;
  if (!std::regex_search(text, found, heading)) return "";
  const auto begin = static_cast<std::size_t>(found.position() + found.length());
  std::string body = text.substr(begin, text.find("\n};", begin) - begin);
  body = body.substr(body.find(" public:") + 8);
  body = body.substr(0, std::min(body.find("\n protected:"), body.find("\n private:")));
  std::string result;
  int depth = 0;
  bool is_default = false;  // inside the braces of a default argument
  for (const char c : body) {
    if (c == '{' && depth++ == 0) {
      const auto last = result.find_last_not_of(" \n");
      is_default = last != std::string::npos && result[last] == '=';
    }
    if (depth == 0) result += c;
    if (c == '}' && --depth == 0 && !is_default) result += ';';
  }
  return result;
}

std::set<std::string> calls_of(const std::string& header, const std::string& name) {
  const std::string text = public_part(text_of(source / "workers" / header), name);
  EXPECT_NE(text, "") << name;
  std::set<std::string> calls;
  const std::regex function(R"((operator\W+?|[A-Za-z_]\w*)\s*\()");
  std::size_t begin = 0;
  for (std::size_t end = text.find(';'); end != std::string::npos; begin = end + 1, end = text.find(';', begin)) {
    const std::string statement = text.substr(begin, end - begin);
    std::smatch found;
    if (statement.find("= delete") != std::string::npos || !std::regex_search(statement, found, function)) continue;
    if (found[1] != name) calls.insert(found[1]);
  }
  return calls;
}

struct Class {
  std::string header;
  std::string name;
};
const std::vector<Class> classes = {
    {"worker.hpp", "Participant"}, {"worker.hpp", "Worker"}, {"server.hpp", "Server"}, {"worker.hpp", "ResetOnOutage"}};

// Why the limit was raised. Call 46 is `follow`: it publishes a phase's own learning rate, which determines QSR's
// rounds, even when the file's schedule has reached 0 and no factor of a step can help. Call 47 is `norm`: rules that
// weigh single gradients (as in dynamic-backup) need it, and `distance` compares models. Call 48 is `loss`: AdaComm's
// periods depend on it. Calls 49 and 50 are `parameters` and `with_slice`: a method that averages a model in fragments
// (streaming-diloco) needs their lengths and joins them. Call 51 is `server`: if servers have servers, a rank does not
// identify a worker's server. Call 52 is `norm_preserving_mean`, the merge of Decoupled DiLoCo, because norms of
// tensors are not computed yet when it is called. Call 53 is `adopt`: if a worker does not wait for its server, only
// the method knows when the received model is adopted. Call 54 is `scale_rate`: the first row is published before any
// step shows how a method scales the rate. Call 55 is `elementwise`: adaptive outer optimizers take roots of values
// that are not computed yet. Call 56 is `shared`: Ringleader uses a gradient in several steps, which would each compute
// it again. Call 57 is `model_weight`: FedNova multiplies by a mean of the workers' step counts with these weights.
// Call 58 is `has_ended`: ACCO's workers compute until an all-reduce is over. Call 59 is `tentatively`: ACCO
// computes gradients after a step that it takes back, and all workers share that step's model. Call 60 is `distances`,
// a distance for each tensor; it was an overload of `distance` with a tag.
TEST(Calls, OfWorkerAndServerAreFew) {
  constexpr std::size_t most = 60;
  std::size_t count = 0;
  for (const auto& [header, name] : classes) count += calls_of(header, name).size();
  EXPECT_LE(count, most) << "a new call needs a good reason; see whether another one can do without its like";
  EXPECT_GT(count, 30u) << "the headers were read";
}

TEST(Calls, AreReadFromTheHeadersAsTheyStand) {
  EXPECT_THAT(calls_of("server.hpp", "Server"), testing::IsSupersetOf({"receive", "send_model", "accept", "descend"}));
  EXPECT_THAT(calls_of("worker.hpp", "Worker"), testing::IsSupersetOf({"all_gather", "micro_batch_time", "start"}));
  EXPECT_THAT(calls_of("worker.hpp", "Worker"), testing::Not(testing::Contains("current")));
  EXPECT_THAT(calls_of("worker.hpp", "Participant"), testing::IsSupersetOf({"rank", "publish", "budget_left"}));
  EXPECT_EQ(calls_of("worker.hpp", "ResetOnOutage").size(), 1u);
}

// Calls for collectives that continue while a worker computes. Overlapping methods are built on them.
const std::set<std::string> without_a_method_yet = {"start", "finish"};

TEST(Calls, HaveAMethodThatNeedsThem) {
  std::string methods;
  for (const auto& entry : fs::recursive_directory_iterator(source / "algorithms"))
    if (entry.path().extension() == ".cpp" || entry.path().extension() == ".hpp") methods += text_of(entry.path());
  for (const auto& [header, name] : classes)
    for (const std::string& call : calls_of(header, name)) {
      if (call.starts_with("operator") || without_a_method_yet.contains(call)) continue;
      const bool is_called = methods.find("." + call + "(") != std::string::npos;
      EXPECT_TRUE(is_called) << name << "::" << call << " is called by no method: it goes";
    }
}

}  // namespace
}  // namespace syncopate
