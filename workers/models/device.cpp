#include "workers/models/device.hpp"

#include <regex>

#include "workers/config/settings.hpp"

namespace syncopate {

Arithmetic read_arithmetic(Settings& training) {
  Arithmetic arithmetic;
  const std::string device = training.text({"device",
                                            "Where gradients are computed: \"cpu\", \"cuda\", \"cuda:1\", ..., "
                                            "\"mps\". Virtual time does not depend on it."},
                                           "cpu");
  if (std::regex_match(device, std::regex("cpu(:copy)?|cuda(:[0-9]{1,2})?|mps")))
    arithmetic.device = device;
  else
    training.fault("device",
                   "must be \"cpu\", \"cuda\", \"cuda:1\" for the second GPU, \"mps\", or, for tests, \"cpu:copy\"");
  arithmetic.bfloat16 = training.choice(
      {"precision", "Precision of forward and backward passes; parameters and losses are always float32."},
      {{"float32", false}, {"bfloat16", true}}, false);
  arithmetic.batch_samples = training.optional_integer(
      {"device_batch", "Number of samples that the device computes together; left out: the model's number for a core.",
       "samples"},
      1, 1 << 20);
  arithmetic.deterministic = training.flag(
      {"deterministic", "On a GPU: only operators with reproducible results, which may be slower."}, false);

  if (arithmetic.is_processor() && arithmetic.deterministic)
    training.fault("deterministic", "has no effect: results on the processor are always reproducible");
  if (arithmetic.bfloat16 && arithmetic.device == "mps")
    training.fault("precision", "must be \"float32\" with device = \"mps\"");
  if (!arithmetic.copies()) {
    arithmetic.batch_samples.reset();
    training.leave_out("device_batch");
  }
  for (const char* const key : {"device", "precision", "deterministic"})
    if (!training.has(key)) training.leave_out(key);
  return arithmetic;
}

}  // namespace syncopate
