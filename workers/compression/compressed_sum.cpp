#include "workers/compression/compressed_sum.hpp"

#include <algorithm>
#include <utility>

#include "workers/training/gradient_sum.hpp"

namespace syncopate {
namespace {

// p = of_memory x memory + of_gradient x gradient, in the memory's place.
void take_in(const GradientSum& sum, double of_gradient, float of_memory, std::span<float> memory) {
  constexpr std::size_t block_size = 2048;
  float block[block_size];
  for (std::size_t at = 0; at < memory.size(); at += block_size) {
    const std::size_t size = std::min(block_size, memory.size() - at);
    write_block(sum, of_gradient, at, {block, size});
    float* const p = memory.data() + at;
    if (of_memory == 0)
      std::copy_n(block, size, p);
    else if (of_memory == 1)
      for (std::size_t i = 0; i < size; ++i) p[i] += block[i];
    else
      for (std::size_t i = 0; i < size; ++i) p[i] = of_memory * p[i] + block[i];
  }
}

// u = momentum x u + gradient, p += u; u stands after p.
void accumulate(const GradientSum& sum, double of_gradient, float momentum, std::span<float> p_and_u) {
  const std::size_t size = p_and_u.size() / 2;
  const std::span<float> p = p_and_u.first(size), u = p_and_u.last(size);
  take_in(sum, of_gradient, momentum, u);
  for (std::size_t i = 0; i < size; ++i) p[i] += u[i];
}

std::size_t words_of(const Exchange& exchange) { return static_cast<std::size_t>(exchange.packet.value()) / 4; }

std::vector<std::shared_ptr<Task>> producers_of(const SharedPackets& packets) {
  std::vector<std::shared_ptr<Task>> producers;
  for (const Packet& packet : *packets) producers.push_back(producer(packet.words));
  return producers;
}

// What tasks see of an exchange, for as long as they hold it.
std::vector<const float*> words_of(const SharedPackets& packets) {
  std::vector<const float*> words;
  for (const Packet& packet : *packets) words.push_back(std::as_const(packet.words->value).data());
  return words;
}

}  // namespace

// The sums of normalisation statistics go with the first packet, after its words.
Packet CompressedSum::first_packet(const Gradient& gradient, Step step, double rate) {
  const Exchange& exchange = exchanges().front();
  Packet packet{.words = {}, .size = exchange.packet};
  if (training_.time_only()) return packet;
  packet.carried = training_.travelling(gradient);
  const CompressionOptions& options = compressor_->options();
  float of_memory = options.error_feedback ? 1 : static_cast<float>(options.momentum);
  const double of_gradient = options.error_feedback ? 1 : 1 - options.momentum;
  const bool changes_units = options.error_feedback && options.units == CompressionOptions::Units::step;
  if (changes_units && rate_ != 0 && rate != 0) of_memory = static_cast<float>(rate_ / rate);
  if (rate != 0) rate_ = rate;
  const bool is_first = !memory_;
  if (is_first) memory_ = std::make_shared<Cell>();
  std::vector<std::shared_ptr<Task>> prerequisites = {memory_->producer};
  if (common_) prerequisites.push_back(producer(common_->front().words));

  packet.words = std::make_shared<Cell>();
  const std::size_t words = words_of(exchange), parameters = training_.objective().parameters();
  const std::size_t buffers = training_.objective().buffers();
  const std::size_t remembered = compressor_->vectors() * parameters;
  const auto momentum = static_cast<float>(options.momentum);
  const auto encode = [=, compressor = compressor_, memory = memory_, common = common_, worker = worker_,
                       out = packet.words](const GradientSum& sum, double scale) {
    if (is_first) memory->value = FlatVector(remembered);
    if (is_first) std::ranges::fill(memory->value.span(), 0.0f);
    if (compressor->vectors() > 1)
      accumulate(sum, scale, momentum, memory->value.span());
    else
      take_in(sum, scale * of_gradient, of_memory, memory->value.span());
    FlatVector values(words + buffers);
    compressor->encode(worker, step, common ? std::as_const(common->front().words->value).data() : nullptr,
                       memory->value.span(), values.data());
    const std::span<float> statistics = values.span().subspan(words);
    std::ranges::fill(statistics, 0.0f);
    if (buffers > 0) add_buffers(sum, statistics);
    out->value = std::move(values);
  };
  memory_->producer = packet.words->producer = training_.submit_on(gradient, std::move(prerequisites), encode);
  return packet;
}

CellPtr CompressedSum::between(const SharedPackets& first) const {
  if (training_.time_only()) return nullptr;
  auto cell = std::make_shared<Cell>();
  const CellPtr sum = first->front().words;
  const auto prepare = [compressor = compressor_, sum, cell] {
    FlatVector values(sum->value.size());
    std::ranges::copy(sum->value.span(), values.data());
    compressor->prepare(values.data());
    cell->value = std::move(values);
  };
  const std::shared_ptr<Task> prerequisites[] = {sum->producer};
  cell->producer = training_.executor().submit(prepare, prerequisites);
  return cell;
}

Packet CompressedSum::second_packet(std::vector<MicroBatch> carried, const CellPtr& between) {
  const Exchange& exchange = exchanges().back();
  Packet packet{.words = {}, .size = exchange.packet, .carried = std::move(carried)};
  if (training_.time_only()) return packet;
  packet.words = std::make_shared<Cell>();
  const auto encode = [compressor = compressor_, memory = memory_, between, words = words_of(exchange),
                       out = packet.words] {
    FlatVector values(words);
    compressor->encode_second(std::as_const(between->value).data(), memory->value.span(), values.data());
    out->value = std::move(values);
  };
  const std::shared_ptr<Task> prerequisites[] = {memory_->producer, between->producer};
  memory_->producer = packet.words->producer = training_.executor().submit(encode, prerequisites);
  return packet;
}

Gradient CompressedSum::sum(const Exchanged& exchanged, int workers) const {
  if (training_.time_only()) return Gradient(nullptr, exchanged.micro_batches);
  const auto& [packets, between, micro_batches, step] = exchanged;
  std::vector<MicroBatch> carried;
  for (const Packet& packet : *packets) carried.insert(carried.end(), packet.carried.begin(), packet.carried.end());
  std::vector<std::shared_ptr<Task>> prerequisites = producers_of(packets);
  if (between) prerequisites.push_back(between->producer);
  const std::size_t parameters = training_.objective().parameters(), buffers = training_.objective().buffers();
  const auto fill = [compressor = compressor_, all = exchanged, workers, parameters, buffers](float* out) {
    std::fill_n(out, parameters + buffers, 0.0f);
    const std::vector<const float*> words = words_of(all.packets);
    compressor->decode({.packets = words,
                        .between = all.between ? std::as_const(all.between->value).data() : nullptr,
                        .workers = workers,
                        .micro_batches = all.micro_batches,
                        .step = all.step},
                       {out, parameters});
    const auto add_statistics = [&](const Cell& first) {
      const auto statistics = first.value.span().last(buffers);
      for (std::size_t i = 0; i < buffers; ++i) out[parameters + i] += statistics[i];
    };
    if (all.between) return add_statistics(*all.between);
    for (const Packet& packet : *all.packets) add_statistics(*packet.words);
  };
  return training_.promised(micro_batches, std::move(carried), prerequisites, fill);
}

void CompressedSum::end(const Exchanged& exchanged, int workers) {
  if (exchanges().size() == 1 || training_.time_only()) return;
  common_ = exchanged.packets;
  if (!compressor_->corrects_residual()) return;
  const auto correct = [compressor = compressor_, memory = memory_, all = exchanged, workers] {
    const std::vector<const float*> words = words_of(all.packets);
    compressor->correct({.packets = words,
                         .between = std::as_const(all.between->value).data(),
                         .workers = workers,
                         .micro_batches = all.micro_batches,
                         .step = all.step},
                        memory->value.span());
  };
  std::vector<std::shared_ptr<Task>> prerequisites = producers_of(exchanged.packets);
  prerequisites.push_back(memory_->producer);
  prerequisites.push_back(exchanged.between->producer);
  memory_->producer = training_.executor().submit(correct, prerequisites);
}

}  // namespace syncopate
