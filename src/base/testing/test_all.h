#pragma once

#include <absl/base/config.h>

#include <cstdlib>

namespace millrace {

/// Returns whether this is a run of `make test-all`. Tests repeat less often in others:
///
///   const int sizes = TestAll() ? 1000 : 200;
inline bool TestAll() {
  const char* const all = std::getenv("MILLRACE_TEST_ALL");
  return all != nullptr && *all != '\0';
}

/// Is true if a sanitizer watches this program, which then takes several times as long. Faults of memory and threads
/// show in the first repeats, so tests of counts and chances repeat less often:
///
///   for (int round = 0; round < (kSanitized ? 30 : 300); ++round) {
#if defined(ABSL_HAVE_ADDRESS_SANITIZER) || defined(ABSL_HAVE_THREAD_SANITIZER)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace millrace
