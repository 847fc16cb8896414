// The kinds of compressors. A kind's file, which related kinds share, has its options, the reader of its keys, and its
// compressor. The table in options.cpp describes each kind. The rest of the program depends on no kind.
#pragma once

#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "workers/compression/compressor.hpp"

namespace syncopate {

// The table `compression` while a kind reads its keys. Keys that several kinds share are read here.
struct CompressionKeys {
  Settings& table;
  const CompressionContext& context;
  CompressionOptions& options;
  const char* why_no_estimates = nullptr;  // why workers cannot send differences to estimates; null: they can

  // Whether each tensor is compressed separately, instead of the whole model.
  bool by_tensors(bool usual = false);
  // For packets that depend on tensors' shapes. Reports a fault of `key`, which begins with `problem`, if the model is
  // compressed in slices.
  void need_tensors(const char* key, const char* problem);
  // Reads the number of phases, one or two.
  void pattern();
  void residual(bool usual = true);
  void feedback();
  // Reports the fault `why` of the key if `is_refused` and workers send differences to estimates.
  void refuse_estimates(bool is_refused, const char* key, const char* why) const;
  void dropped();
  // Reports a fault of `key` if gradients are clipped. For kinds whose steps are along signs.
  void refuse_clipping(const char* key) const;
  // Leaves unwritten keys out of the resolved configuration, which then equals that of versions without the keys.
  void leave_out_unwritten(std::initializer_list<const char*> keys);
};

void read_top_k(CompressionKeys& keys);
void read_dgc(CompressionKeys& keys);
void read_random_k(CompressionKeys& keys);
void read_scalecom(CompressionKeys& keys);
void read_sign(CompressionKeys& keys);
void read_one_bit(CompressionKeys& keys);
void read_majority(CompressionKeys& keys);
void read_qsgd(CompressionKeys& keys);
void read_powersgd(CompressionKeys& keys);
void read_int8(CompressionKeys& keys);
void read_fp4(CompressionKeys& keys);
void read_sparse_rows(CompressionKeys& keys);
void read_bins(CompressionKeys& keys);
void read_tiles(CompressionKeys& keys);
void read_demo(CompressionKeys& keys);

// For CompressionOptions::make: returns a factory of compressors with their kind's own options.
template <typename Kind, typename Own>
auto maker_of(Own own) {
  return [own = std::move(own)](const CompressorInput& input) -> std::shared_ptr<const Compressor> {
    return std::make_shared<Kind>(own, input);
  };
}

// Packs each part of the gradient separately, and sends all in one all-gather.
class PartByPart : public Compressor {
 public:
  explicit PartByPart(const CompressorInput& input) : Compressor(input), parts_(input.parts) {}

  std::vector<Exchange> exchanges(Step step) const override;
  void encode(Rank worker, Step step, const float* common, std::span<float> p, float* packet) const override;
  void decode(const Received& received, std::span<float> sum) const override;

 protected:
  virtual std::size_t words(const Part& part, Step step) const = 0;
  virtual void encode_part(const Part& part, Rank worker, Step step, std::span<float> p, float* packet) const = 0;
  // Adds to `sum` the part's values from all packets, where they begin at word `begin`.
  virtual void decode_part(const Part& part, const Received& received, std::size_t begin,
                           std::span<float> sum) const = 0;

  std::vector<Part> parts_;
};

// Copies values that a packet contains part by part to their indices in the gradient.
void copy_parts(const float* packet, const std::vector<Part>& parts, std::span<float> sum);

inline float* append(std::span<const std::uint32_t> words, float* packet) {
  std::memcpy(packet, words.data(), 4 * words.size());
  return packet + words.size();
}

}  // namespace syncopate
