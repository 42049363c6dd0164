// Any bytes as a profile file: no crash, and settings come out trimmed and in lower case.
#include <cstdint>
#include <cstdlib>

#include "aws/settings.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const auto profiles = ParseProfiles({reinterpret_cast<const char*>(data), size});
  if (!profiles.ok()) return 0;
  for (const auto* sections : {&profiles->profiles, &profiles->sso_sessions}) {
    for (const auto& [section, settings] : *sections) {
      for (const auto& [name, value] : settings) {
        if (name.empty() || name.find_first_of("=\nABCDEFGHIJKLMNOPQRSTUVWXYZ") != std::string::npos) std::abort();
        if (value.find('\n') != std::string::npos || value.starts_with(' ') || value.ends_with(' ')) std::abort();
      }
    }
  }
  return 0;
}
