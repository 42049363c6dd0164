// Any bytes as rules of restart: no crash, and what is accepted can be looked at.
#include <cstdint>
#include <cstdlib>

#include "supervisor/exit_rules.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const ExitFacts facts{.code = 137, .reason = "Signal: SIGKILL"};
  if (const auto rule = ParseExitRule(text); rule.ok()) rule->Matches(facts);
  if (const auto strategy = ParseRetryStrategy(text); strategy.ok()) {
    if (strategy->attempts && *strategy->attempts < 1) std::abort();
    FindExitRule(strategy->rules, facts);
  }
  return 0;
}
