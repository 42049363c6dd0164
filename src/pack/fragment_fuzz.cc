#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/crypto.h"
#include "pack/fragment.h"

// The input is a fragment without its checksum, which is added: a fuzzer cannot guess it.

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;  // NOLINT
  std::string bytes(reinterpret_cast<const char*>(data), size);
  AppendLe(bytes, Crc32c(AsBytes(bytes)));
  uint64_t samples = 0;
  const auto fragment = ReadFragment(AsBytes(bytes), [&samples](const ShardSample& sample) {
    if (sample.fields.size() > kMaxSampleFields) std::abort();
    ++samples;
    return absl::OkStatus();
  });
  if (fragment.ok() && fragment->samples != samples) std::abort();
  return 0;
}
