#include "dataset/build_report.h"

#include <charconv>
#include <string_view>
#include <system_error>
#include <utility>

namespace millrace {

DamagedShard DamagedShardOf(std::string key, const absl::Status& error, uint64_t samples) {
  constexpr std::string_view kOffset = "offset ";
  std::string_view why = ToStd(error.message());
  DamagedShard damaged{.key = std::move(key), .offset = std::nullopt, .why = {}, .samples = samples};
  if (why.starts_with(kOffset)) {
    uint64_t offset = 0;
    const auto [end, failed] = std::from_chars(why.data() + kOffset.size(), why.data() + why.size(), offset);
    const std::string_view rest = why.substr(static_cast<size_t>(end - why.data()));
    if (failed == std::errc() && rest.starts_with(": ")) {
      damaged.offset = offset;
      why = rest.substr(2);
    }
  }
  damaged.why = why;
  return damaged;
}

}  // namespace millrace
