// Faults of a configuration: collected, so that one pass reports all of them.
#pragma once

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "workers/settings/toml_tree.hpp"

namespace syncopate {

class FaultList {
 public:
  // The same fault at the same place counts once; the command line is one place.
  void add(const SourcePlace& place, std::string text);
  void add(const FaultList& others);
  // Those that are not known yet, of keys that begin with `prefix` under another name: what is known by `prefix` there
  // is called `name` here. Where a key of what is written has a fault under another name already, these are not told.
  void add(const FaultList& others, const std::string& prefix, const std::string& name);

  // Adds to each fault's text what `reason` says of it.
  void explain(const std::function<std::string(const std::string& text)>& reason);

  bool empty() const { return faults_.empty(); }
  std::size_t size() const { return faults_.size(); }

  // One fault per line, "place: text"; those of the file in the order of its lines, then the command line's. Of very
  // many the first ones, and how many more there are.
  std::string report() const;

 private:
  struct Fault {
    SourcePlace place;
    std::string text;
    auto operator<=>(const Fault&) const = default;
  };
  std::vector<Fault> faults_;  // in the order in which they were found
  std::set<Fault> known_;
};

}  // namespace syncopate
