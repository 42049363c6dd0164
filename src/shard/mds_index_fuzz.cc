#include <cstdint>

#include "shard/mds_format.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  (void)millrace::ParseMdsIndex(text).ok();
  (void)millrace::ParseMdsColumns(text).ok();
  return 0;
}
