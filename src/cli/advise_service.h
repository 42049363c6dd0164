#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/status.h"
#include "cli/command_line.h"
#include "diagnose/advise.h"
#include "diagnose/service_advice.h"

/// Implements `millrace advise --service`: whether CPU machines beside the training machine pay.

namespace millrace::cli {

/// A given value takes the place of the measured one.
struct ServiceAdviceFlags {
  bool on = false;
  std::string worker_machine;       // "": each of the price list without accelerators
  std::optional<uint64_t> workers;  // absent: as many as are needed
  // 0 or "": not given.
  double vcpus_each = 0;
  double cpu_ms = 0;
  double before_ms = 0;
  double after_ms = 0;
  double network_gbit = 0;
  std::string store_rate;
  std::string sample_size;
};

void AddServiceAdviceOptions(const Command& advise, ServiceAdviceFlags* flags);

/// Builds the question without looking at data: `settings` has machine, prices, batch and the time of the model. A
/// usage error names the option with a number that makes no sense.
absl::StatusOr<ServiceQuestion> TakeServiceQuestion(const ServiceAdviceFlags& flags, const AdviseSettings& settings);

/// Fills in what was measured and not given.
void TakeMeasured(const Advice& advice, const ServiceAdviceFlags& flags, ServiceQuestion* question);

/// Returns the result: as text for people, with the arithmetic, and as one JSON object in one line.
std::string ServiceAdviceText(const ServiceAdvice& advice, const ServiceQuestion& question, const PriceList& prices);
std::string ServiceAdviceJson(const ServiceAdvice& advice, const ServiceQuestion& question, const PriceList& prices);

}  // namespace millrace::cli
