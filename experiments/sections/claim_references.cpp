#include "experiments/sections/claim_references.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "workers/settings/nearest_name.hpp"
#include "workers/settings/settings_document.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;

constexpr const char* folder = "results/reference";

std::optional<fs::path> reference_folder(const std::string& file) {
  std::error_code error;
  for (fs::path above = fs::absolute(file, error).parent_path(); !above.empty(); above = above.parent_path()) {
    if (fs::is_directory(above / folder, error)) return above / folder;
    if (above == above.parent_path()) break;
  }
  return fs::is_directory(folder, error) ? std::optional<fs::path>(folder) : std::nullopt;
}

// Names of the papers that have a file there.
std::vector<std::string> papers_in(const fs::path& directory) {
  std::vector<std::string> papers;
  for (const fs::directory_entry& entry : fs::directory_iterator(directory))
    if (entry.path().extension() == ".toml") papers.push_back(entry.path().stem().string());
  std::ranges::sort(papers);
  return papers;
}

class References {
 public:
  References(const std::string& file, FaultList& faults) : folder_(reference_folder(file)), faults_(faults) {
    if (folder_) papers_ = papers_in(*folder_);
  }

  // None after a fault at `written`, whose key is `name`.
  std::optional<TomlNode> find(const std::string& reference, const TomlNode& written, const std::string& name) {
    const auto fault = [&](const std::string& what) {
      faults_.add(written.place, fmt::format("{} = \"{}\"; {}", name, reference, what));
      return std::nullopt;
    };
    if (!folder_) return fault(fmt::format("no folder {} above the experiment file or the working directory", folder));
    const std::size_t point = reference.find('.');
    if (point == reference.npos) return fault("must be a paper and a figure of it, such as \"dropcompute.figure-1\"");
    const std::string paper = reference.substr(0, point), entry = reference.substr(point + 1);
    if (std::ranges::find(papers_, paper) == papers_.end())
      return fault(fmt::format("must begin with one of {}, as {} has them{}", fmt::join(papers_, ", "),
                               folder_->string(), suggestion(paper, papers_)));
    const TomlNode* const entries = entries_of(paper);
    if (!entries) return std::nullopt;
    std::vector<std::string> known;
    for (const TomlNode::Member& member : entries->table()) known.push_back(member.key);
    const TomlNode* const found = entries->find(entry);
    if (!found || !found->is_table())
      return fault(
          fmt::format("{} has no such figure{}", (*folder_ / (paper + ".toml")).string(), suggestion(entry, known)));
    return published(*found, reference);
  }

 private:
  // Null after a fault.
  const TomlNode* entries_of(const std::string& paper) {
    const auto [known, is_new] = files_.emplace(paper, std::nullopt);
    if (is_new) try {
        known->second = load_toml((*folder_ / (paper + ".toml")).string());
      } catch (const TomlSyntaxFault& fault) {
        faults_.add(fault.place, fault.problem.empty() ? fault.what() : fault.problem);
      }
    return known->second ? &*known->second : nullptr;
  }

  // What a claim has of it as its table `paper`.
  TomlNode published(const TomlNode& entry, const std::string& reference) {
    TomlNode paper{TomlNode::Table{}, entry.place};
    constexpr std::array taken = {"figure", "source", "certainty", "value"};
    for (const TomlNode::Member& member : entry.table()) {
      if (std::ranges::find(taken, member.key) != taken.end())
        paper.set(member.key, member.place, member.value);
      else if (member.key != "unit" && member.key != "note")
        faults_.add(member.place, fmt::format("{}.{}; must be one of figure, source, certainty, value, unit, note",
                                              reference, member.key));
    }
    return paper;
  }

  std::optional<fs::path> folder_;
  FaultList& faults_;
  std::vector<std::string> papers_;
  std::map<std::string, std::optional<TomlNode>> files_;
};

}  // namespace

void apply_references(TomlNode& root, const std::string& file, FaultList& faults) {
  TomlNode* const claims = root.find("claim");
  if (!claims || !claims->is_array()) return;
  std::optional<References> references;  // most files have none
  for (std::size_t i = 0; i < claims->array().size(); ++i) {
    TomlNode& claim = claims->array()[i];
    if (!claim.is_table()) continue;
    const TomlNode* const written = claim.find("reference");
    const auto* const text = written ? std::get_if<std::string>(&written->value) : nullptr;
    if (!text) continue;
    const std::string name = fmt::format("claim.{}.reference", i);
    if (claim.find("paper")) {
      faults.add(written->place, fmt::format("{}; must stand without paper, which says the same", name));
      continue;
    }
    if (!references) references.emplace(file, faults);
    if (auto paper = references->find(*text, *written, name)) {
      const SourcePlace place = written->place;
      claim.erase("reference");
      claim.set("paper", place, *std::move(paper));
    }
  }
}

}  // namespace syncopate
