#include "workers/training/sums_apart.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "workers/training/course_log.hpp"

namespace syncopate {
namespace {

// The model at which all of the sum is taken; null: there is none, or nothing is left to do.
const Cell* only_model(const GradientSum& sum) {
  if (sum.submitted || sum.chunks.empty()) return nullptr;
  const ModelStatePtr& at = sum.chunks.front().at;
  const auto is_usual = [&](const GradientSum::Chunk& chunk) {
    return chunk.at && chunk.at->parameters == at->parameters && chunk.scale != 0 && chunk.layers.are_all();
  };
  return at && std::ranges::all_of(sum.chunks, is_usual) ? at->parameters.get() : nullptr;
}

std::int64_t micro_batches_in(const GradientSum& sum) {
  std::int64_t count = 0;
  for (const GradientSum::Chunk& chunk : sum.chunks) count += std::ssize(chunk.micro_batches);
  return count;
}

std::unique_ptr<const GradientsApart> go_through(std::span<GradientSum::Chunk* const> chunks, const ModelState& at,
                                                 const Objective& objective) {
  std::vector<std::span<const MicroBatch>> lists;
  for (const GradientSum::Chunk* chunk : chunks) lists.emplace_back(chunk->micro_batches);
  return objective.gradients_apart(at.parameters->value.data(), at.buffers ? at.buffers->value.data() : nullptr, lists);
}

// What the chunks of one pass share.
struct Pass {
  std::shared_ptr<const Objective> objective;
  std::unique_ptr<const GradientsApart> gradients{};  // once it is over
};

class KeptOfList : public KeptOfPass {
 public:
  KeptOfList(std::shared_ptr<const Pass> pass, std::size_t list) : pass_(std::move(pass)), list_(list) {}

  const std::vector<GradientSegment>& values() const override {
    std::call_once(made_, [&] { values_ = pass_->gradients->of(list_).segments; });
    return values_;
  }
  void add_to(float* out) const override { pass_->gradients->add_to(out, list_); }

 private:
  std::shared_ptr<const Pass> pass_;
  std::size_t list_;
  mutable std::once_flag made_;
  mutable std::vector<GradientSegment> values_;
};

}  // namespace

std::vector<std::vector<std::size_t>> passes_of(std::span<const std::shared_ptr<GradientSum>> sums,
                                                const Objective& objective) {
  std::vector<std::size_t> together;
  std::vector<std::vector<std::size_t>> alone;
  std::set<const GradientSum*> seen;  // several may bring one sum that they share
  for (std::size_t i = 0; i < sums.size(); ++i)
    if (seen.insert(sums[i].get()).second && only_model(*sums[i]))
      together.push_back(i);
    else
      alone.push_back({i});
  const auto first_of = [&](std::size_t i) { return sums[i]->chunks.front().micro_batches.front(); };
  std::ranges::stable_sort(together, {}, first_of);

  std::vector<std::vector<std::size_t>> at_one_model;
  std::map<const Cell*, std::size_t> place;  // looked up, never iterated
  for (const std::size_t i : together) {
    const auto [found, is_new] = place.try_emplace(only_model(*sums[i]), at_one_model.size());
    if (is_new) at_one_model.emplace_back();
    at_one_model[found->second].push_back(i);
  }

  std::vector<std::vector<std::size_t>> passes;
  for (const std::vector<std::size_t>& of_model : at_one_model) {
    std::int64_t all = 0, before = 0;
    for (const std::size_t i : of_model) all += micro_batches_in(*sums[i]);
    const std::int64_t pieces = number_of_chunks(all * objective.samples_per_micro_batch(), objective.chunk_samples());
    std::int64_t piece = -1;
    for (const std::size_t i : of_model) {
      if (std::exchange(piece, before * pieces / all) != before * pieces / all) passes.emplace_back();
      passes.back().push_back(i);
      before += micro_batches_in(*sums[i]);
    }
  }
  passes.insert(passes.end(), alone.begin(), alone.end());
  return passes;
}

void submit_pass(std::span<const std::shared_ptr<GradientSum>> sums, const std::shared_ptr<const Objective>& objective,
                 Executor& executor, const std::function<void(std::size_t)>& submitted) {
  if (sums.size() == 1) {
    submit_chunks(sums.front(), objective, executor);
    return submitted(0);
  }
  std::vector<GradientSum::Chunk*> chunks;
  for (const auto& sum : sums)
    for (GradientSum::Chunk& chunk : sum->chunks) chunks.push_back(&chunk);
  const ModelStatePtr at = held_by_task(chunks.front()->at);
  for (GradientSum::Chunk* chunk : chunks) chunk->at = nullptr;  // the task alone holds it, until it has been run
  const std::vector<std::shared_ptr<Task>> inputs = {at->parameters->producer, producer(at->buffers)};
  const auto pass = std::make_shared<Pass>(Pass{.objective = objective});
  const auto begin = [pass, chunks, at, held = std::vector(sums.begin(), sums.end())] {
    pass->gradients = go_through(chunks, *at, *pass->objective);
    for (std::size_t i = 0; i < chunks.size(); ++i) chunks[i]->result.loss_sum = pass->gradients->loss_sum(i);
  };
  for (std::size_t i = 0; i < chunks.size(); ++i) chunks[i]->kept = std::make_shared<KeptOfList>(pass, i);
  const std::shared_ptr<Task> gone_through = executor.submit(begin, inputs);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    sums[i]->submitted = true;
    sums[i]->tasks.push_back(gone_through);
    submitted(i);
  }
}

}  // namespace syncopate
