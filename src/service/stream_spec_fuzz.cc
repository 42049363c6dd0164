#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "service/stream_spec.h"

/// A trainer's request to a worker is refused, or means the same when it is written again.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace millrace;
  const absl::StatusOr<StreamSpec> spec = ParseStreamSpec({reinterpret_cast<const std::byte*>(data), size});
  if (!spec.ok()) return 0;
  const std::string written = EncodeStreamSpec(*spec);
  const absl::StatusOr<StreamSpec> again = ParseStreamSpec(AsBytes(written));
  if (!again.ok() || EncodeStreamSpec(*again) != written) std::abort();
  for (const StreamSpec::Part& part : spec->parts) {
    if (part.samples <= 100000) MembersOf(part).status().IgnoreError();
  }
  return 0;
}
