#include "workers/mpi/standstill.hpp"

#include <algorithm>

namespace syncopate {
namespace {

bool no_letter_is_under_way(const std::vector<WaitReport>& reports) {
  std::int64_t under_way = 0;
  for (const WaitReport& report : reports) under_way += report.letters_sent - report.letters_received;
  return under_way == 0;
}

// Messages of MPI's own collectives are no letters: one to which all have come is completed, whoever has noticed.
bool will_take_place(const WaitReport& wait, const std::vector<WaitReport>& reports) {
  switch (wait.what) {
    case WaitReport::For::letters:
      return false;
    case WaitReport::For::meeting:
      return std::ranges::all_of(reports, [&](const WaitReport& other) {
        return other.meetings == WaitReport::needed_at_no_meeting || other.meetings >= wait.meeting;
      });
    case WaitReport::For::the_end:
      return std::ranges::all_of(reports,
                                 [](const WaitReport& other) { return other.what == WaitReport::For::the_end; });
  }
  return false;
}

}  // namespace

bool nobody_can_go_on(const std::vector<WaitReport>& before, const std::vector<WaitReport>& after) {
  return before == after && no_letter_is_under_way(after) &&
         std::ranges::none_of(after, [&](const WaitReport& wait) { return will_take_place(wait, after); });
}

}  // namespace syncopate
