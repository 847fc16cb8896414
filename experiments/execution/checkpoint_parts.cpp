#include "experiments/execution/checkpoint_parts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "experiments/execution/checkpoint_identity.hpp"
#include "results/directory/disk_fault.hpp"
#include "workers/process/interrupt.hpp"

namespace syncopate {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t any_number = std::numeric_limits<std::int64_t>::max();
constexpr std::chrono::seconds patience{5};
constexpr const char* nobody = "none";
constexpr const char* is_it_one = "is the results directory one for all?";

void put(ByteSink& out, std::uint64_t number) { out.write(&number, sizeof(number)); }

std::uint64_t take(ByteSource& in) {
  std::uint64_t number = 0;
  in.read(&number, sizeof(number));
  return number;
}

// What processes tell each other: some numbers, and a text behind them.
DividedWork::Numbers with_text(DividedWork::Numbers numbers, const std::string& text) {
  numbers.insert(numbers.end(), text.begin(), text.end());
  return numbers;
}

std::string text_behind(const DividedWork::Numbers& told, std::ptrdiff_t numbers) {
  return {told.begin() + numbers, told.end()};
}

// Of the first process that has one behind its numbers, with its name unless all have it; empty: nobody has.
std::string first_problem(const std::vector<DividedWork::Numbers>& told, std::ptrdiff_t numbers) {
  std::vector<std::string> texts;
  for (const auto& of_one : told) texts.push_back(text_behind(of_one, numbers));
  const auto first = std::ranges::find_if(texts, [](const std::string& text) { return !text.empty(); });
  if (first == texts.end()) return {};
  const bool is_of_all = std::ranges::all_of(texts, [&](const std::string& text) { return text == *first; });
  return is_of_all ? *first : fmt::format("process {}: {}", first - texts.begin(), *first);
}

bool is_there(const fs::path& file) {
  std::error_code none;
  return fs::exists(file, none);
}

// Who has written it may be on another machine, and the file system late.
bool comes_to_be_there(const fs::path& file, std::chrono::seconds within) {
  const auto end = std::chrono::steady_clock::now() + within;
  while (!is_there(file)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

}  // namespace

CheckpointParts::CheckpointParts(const Run& run, const fs::path& file, const fs::path& below, DividedWork& divided)
    : run_(run), file_(file), below_(below), divided_(divided) {}

CheckpointIdentity CheckpointParts::identity(const std::string& process) const {
  const CheckpointIdentity besides = {{"number of processes", fmt::format("{}", divided_.processes())},
                                      {"process", process}};
  return checkpoint_identity(run_, besides, process == nobody);
}

CheckpointIdentity CheckpointParts::own_identity() const { return identity(fmt::format("{}", divided_.self())); }

fs::path CheckpointParts::own_part(std::int64_t number) const {
  return part_of_checkpoint(file_, number, divided_.self());
}

std::unique_ptr<CheckpointReader> CheckpointParts::open(bool is_taken_up, std::string& problem) {
  std::unique_ptr<CheckpointReader> part;
  Parts parts;
  std::string own;
  try {
    if (is_taken_up && is_there(file_)) part = find(parts);
  } catch (const CheckpointFault& fault) {
    own = fault.what();
  }
  problem = problem_of_all(parts.number, own);
  if (!problem.empty()) part = nullptr;
  return part;
}

std::unique_ptr<CheckpointReader> CheckpointParts::find(Parts& parts) const {
  CheckpointReader common(file_, identity(nobody));
  parts.number = static_cast<std::int64_t>(take(common));
  for (int process = 0; process < divided_.processes(); ++process) parts.digests.push_back(take(common));
  if (!is_there(own_part(parts.number))) throw CheckpointFault("its part is not there");
  auto reader = std::make_unique<CheckpointReader>(own_part(parts.number), own_identity());
  if (reader->digest() != parts.digests[static_cast<std::size_t>(divided_.self())])
    throw CheckpointFault("its part is of another one");
  return reader;
}

// Why they do not go on from one; empty: they do, or none of them finds any. `number`: which one this process finds.
std::string CheckpointParts::problem_of_all(std::int64_t number, const std::string& own) const {
  const auto told =
      divided_.exchanged_numbers(divided_.all(), [&] { return with_text({static_cast<double>(number)}, own); });
  const std::string problem = first_problem(told, 1);
  if (!problem.empty()) return problem;
  const bool find_the_same = std::ranges::all_of(told, [&](const auto& of_one) { return of_one == told.front(); });
  return find_the_same ? "" : fmt::format("some processes do not find it: {}", is_it_one);
}

std::unique_ptr<CheckpointWriter> CheckpointParts::part(std::int64_t number) const {
  if (divided_.self() != 0 && !below_.empty() && !is_there(below_))
    throw std::runtime_error(fmt::format("{} is not there: {}", below_.string(), is_it_one));
  return std::make_unique<CheckpointWriter>(own_part(number), own_identity(), below_);
}

std::string CheckpointParts::publish(std::int64_t number, std::uint64_t digest, const std::string& problem) {
  constexpr int half = 32;
  constexpr std::uint64_t low = 0xffffffff;  // a number holds 53 bits
  const auto told = divided_.exchanged_numbers(divided_.all(), [&] {
    return with_text({static_cast<double>(digest >> half), static_cast<double>(digest & low)}, problem);
  });
  std::string of_all = first_problem(told, 2);
  if (of_all.empty()) {
    Parts parts{.number = number};
    for (const auto& of_one : told)
      parts.digests.push_back((static_cast<std::uint64_t>(of_one[0]) << half) | static_cast<std::uint64_t>(of_one[1]));
    const auto named = divided_.exchanged_numbers(ProcessSet::only(0), [&] { return with_text({}, name(parts)); });
    of_all = text_behind(named.front(), 0);
  }
  std::error_code ignored;
  if (!of_all.empty()) fs::remove(own_part(number), ignored);  // else it would stay, and the next one beside it
  return of_all;
}

std::string CheckpointParts::name(const Parts& parts) {
  std::optional<CheckpointWriter> writer;
  try {
    for (int process = 0; process < divided_.processes(); ++process) {
      is_patient_ = comes_to_be_there(part_of_checkpoint(file_, parts.number, process),
                                      is_patient_ ? patience : std::chrono::seconds(0));
      if (!is_patient_)
        return fmt::format("the part of process {} is not to be seen by process 0: {}", process, is_it_one);
    }
    writer.emplace(file_, identity(nobody), below_);
    put(*writer, static_cast<std::uint64_t>(parts.number));
    for (const std::uint64_t digest : parts.digests) put(*writer, digest);
    writer->finish();
    writer->publish();
    remove_parts(file_, any_number, parts.number);  // nobody writes another one before all have heard of this
    return {};
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception& problem) {
    // It names these parts: they stay, and the older ones too, in case the disk has the older file.
    return writer && writer->is_published() ? "" : disk_problem(problem);
  }
}

}  // namespace syncopate
