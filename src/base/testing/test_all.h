#pragma once

#include <cstdlib>

namespace millrace {

/// Returns whether this is a run of `make test-all`. Tests repeat less often in others:
///
///   const int sizes = TestAll() ? 1000 : 200;
inline bool TestAll() {
  const char* const all = std::getenv("MILLRACE_TEST_ALL");
  return all != nullptr && *all != '\0';
}

}  // namespace millrace
