// Fragments: the parts of a model that are synchronised apart from each other, each at its own time of a round.
// Source:  Douillard et al. 2025, "Streaming DiLoCo with overlapping communication: Towards a Distributed Free Lunch".
// Shapes:  fragment p of P: the parameters from floor(p d / P) to floor((p + 1) d / P) of the flat vector of d, one at
//          least. BatchNorm statistics go with the first.   Units: offsets in local steps, 1 to H.
// Cost:    a collective on a fragment moves 1 / P of the model.
// Differs: the papers' fragments are whole layers, three transformer blocks each, side by side or strided over the
//          depth. Here they are equal slices, whose borders may lie within a tensor, so that each takes the same time;
//          the flat vector has the tensors that weight decay acts on first. Under a plain mean
//          all parameters are averaged alike, so that where the borders lie changes when a parameter is synchronised,
//          and nothing else. The merge rule `rda` goes by tensors: of one that a border cuts each part has a length
//          and a direction of its own, and what is merged depends on the borders. So does a compression, which
//          takes each fragment by itself.
// Checks:  the slices cover the vector once; offsets are p H / P where P divides H, and never further apart than
//          ceil(H / P).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "workers/participant.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

class Fragments {
 public:
  // `written` says where the number stands in a file, for what is found out with the model.
  explicit Fragments(int count, std::string written = {}) : count_(count), written_(std::move(written)) {}

  int count() const { return count_; }
  Slice slice(int fragment) const { return {.index = fragment, .count = count_}; }
  // After how many steps of a round of so many the fragment's turn is: ceil((p + 1) H / P), so that the last one's is
  // at the end. With more fragments than steps several have the same.
  Step offset(int fragment, Step round) const;
  // Fails where the model has fewer parameters than fragments.
  void check(const Participant& participant) const;

 private:
  int count_;
  std::string written_;
};

// Reads `fragments`, which must be given if there is no usual number of them. `parameters`: the model's, if known.
Fragments read_fragments(Settings& settings, std::optional<int> usual = {},
                         std::optional<std::int64_t> parameters = {});

}  // namespace syncopate
