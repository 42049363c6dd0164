#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "plan/position.h"

/// There is one way to write a position: whatever is accepted is written back the same.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto position = millrace::Position::Parse(text);
  if (position.ok() && position->ToString() != text) std::abort();
  return 0;
}
