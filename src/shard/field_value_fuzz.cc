#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "shard/field_value.h"
#include "shard/npy.h"

// The input is an encoding, a NUL, and stored bytes.

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = std::min(input.find('\0'), size);
  const std::string encoding(input.substr(0, end));
  const std::string stored(input.substr(std::min(end + 1, size)));
  std::string scratch;
  const auto value = FieldValue(encoding, AsBytes(stored), &scratch);
  (void)ParseNpy(AsBytes(stored));
  if (!value.ok()) return 0;
  // An array is one that can be read back.
  if (TypeOfEncoding(encoding) == FieldType::kNdarray && !ParseNpy(*value)) std::abort();
  return 0;
}
