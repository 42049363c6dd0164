#include <cstdint>
#include <cstdlib>

#include "pack/class_map.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  const auto map = ParseClassMap({reinterpret_cast<const char*>(data), size});
  constexpr size_t kMaxMessage = 2000;  // names are repeated in part only
  if (map.ok() ? map->empty() : map.status().message().size() > kMaxMessage) std::abort();
  return 0;
}
