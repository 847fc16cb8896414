// Collectives of an MPI rank where all ranks stand still, and after that in another process.
#include <algorithm>
#include <utility>

#include "workers/mpi/mpi_collectives.hpp"
#include "workers/training/state_archive.hpp"

namespace syncopate {

void MpiCollectives::drive() {
  advance_all();
  drive(all_);
  for (auto& [members, assembly] : groups_) drive(assembly);
}

// Ranks that have not stopped stand in it, or will: it ends for all of them.
void MpiCollectives::drive(MpiAssembly& assembly) {
  for (MpiCollective& collective : assembly.open) {
    if (collective.has_ended || !collective.is_complete || !collective.blocks) continue;
    if (collective.reduction) collective.reduction->run();
    end_collective(assembly, collective);
    return advance(assembly);
  }
}

bool MpiCollectives::have_ended(std::int64_t number) const {
  const auto is_through = [](const MpiAssembly& assembly, std::int64_t before) {
    return std::ranges::all_of(assembly.open, [before](const MpiCollective& collective) {
      return collective.has_ended || (collective.number >= before && !collective.is_complete);
    });
  };
  return is_through(all_, number) &&
         std::ranges::all_of(groups_, [&](const auto& group) { return is_through(group.second, 0); });
}

MpiReduction::Ended MpiCollectives::ended_members(const MpiAssembly& assembly, const Collective& what) const {
  return {.size = assembly.members.count,
          .is_root = static_cast<int>(assembly.members.place_of(stage_.self)) == what.root.value};
}

StartedCollective MpiCollectives::started_before(Collective&& what, Step step) {
  if (what.is_exchange() && !stage_.options.training.time_only()) stage_.options.training.begin_held();
  MpiAssembly& assembly = assembly_of(what);
  MpiCollective& collective = assembly.open.emplace_back();
  collective.number = assembly.started++;
  collective.what = std::move(what);
  const std::optional<Members> group = assembly.is_group ? std::optional(assembly.members) : std::nullopt;
  return {collective.what.kind, group, collective.number, step};
}

CollectiveResult MpiCollectives::finished_before(StartedCollective&& started, Finished told) {
  MpiAssembly& assembly = started.group ? groups_.at(*started.group) : all_;
  const auto found = std::ranges::find(assembly.open, started.number, &MpiCollective::number);
  if (found == assembly.open.end()) throw AnotherCourse("it finishes a collective that it has not started");
  CollectiveResult result;
  Collective& what = found->what;
  if (what.kind != Collective::Kind::barrier) {
    const MpiReduction::Ended members = ended_members(assembly, what);
    MpiReduction reduction(stage_.options.training, std::move(what), told.agreed, members);
    reduction.set_numbers(std::move(told.numbers));
    result = reduction.result();
  }
  result.agreement = told.agreement;
  assembly.open.erase(found);
  return result;
}

void MpiCollectives::keep(StateArchive& archive) {
  if (archive.reads() && stage_.ending >= MpiStage::Ending::of_collectives) {  // what is left of the program's is gone
    all_.open.clear();
    groups_.clear();
  }
  keep(all_, archive);
  std::uint64_t groups = groups_.size();
  archive(groups);
  if (groups != groups_.size()) throw AnotherCourse("its workers have met in other groups");
  for (auto& [members, assembly] : groups_) {
    Members same = members;
    archive(same);
    if (same != members) throw AnotherCourse("its workers have met in other groups");
    keep(assembly, archive);
  }
}

void MpiCollectives::keep(MpiAssembly& assembly, StateArchive& archive) {
  std::uint64_t open = assembly.open.size();
  archive(assembly.started, open);
  // The last one of all is none of the program's.
  if (archive.reads() && stage_.ending >= MpiStage::Ending::of_collectives) assembly.open.resize(open);
  if (open != assembly.open.size()) throw AnotherCourse("it has other collectives under way");
  for (MpiCollective& collective : assembly.open) keep(assembly, collective, archive);
}

void MpiCollectives::keep(const MpiAssembly& assembly, MpiCollective& collective, StateArchive& archive) {
  const std::int64_t number = collective.number;
  archive(collective.number, collective.own, collective.arrivals, collective.awaited, collective.is_complete,
          collective.blocks, collective.has_ended, collective.agreement, collective.row);
  const bool is_end = !collective.own.terms;
  if (archive.reads() && !is_end && collective.number != number)
    throw AnotherCourse("it has other collectives under way");
  bool has_values = collective.reduction.has_value();
  archive(has_values);
  if (!has_values) return;
  MpiReduction::Agreed agreed = archive.reads() ? MpiReduction::Agreed() : collective.reduction->agreed();
  archive(agreed);
  if (archive.reads()) {
    const MpiReduction::Ended members = ended_members(assembly, collective.what);
    collective.reduction.emplace(stage_.options.training, std::move(collective.what), agreed, members);
  }
  collective.reduction->keep(archive);
}

void MpiCollectives::go_on() {
  for (MpiCollective& collective : all_.open)
    if (!collective.is_complete) gather(collective);
}

}  // namespace syncopate
