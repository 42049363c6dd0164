#include "base/size.h"

#include <fmt/format.h>

#include <array>
#include <cmath>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"

namespace millrace {

namespace {

struct Unit {
  std::string_view name;
  double bytes;
};

constexpr double kKi = 1024.0;
constexpr std::array<Unit, 14> kUnits{{{"", 1},
                                       {"b", 1},
                                       {"k", kKi},
                                       {"kib", kKi},
                                       {"kb", 1e3},
                                       {"m", kKi* kKi},
                                       {"mib", kKi* kKi},
                                       {"mb", 1e6},
                                       {"g", kKi* kKi* kKi},
                                       {"gib", kKi* kKi* kKi},
                                       {"gb", 1e9},
                                       {"t", kKi* kKi* kKi* kKi},
                                       {"tib", kKi* kKi* kKi* kKi},
                                       {"tb", 1e12}}};

}  // namespace

absl::StatusOr<uint64_t> ParseSize(std::string_view text) {
  const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
  const std::string unit = absl::AsciiStrToLower(absl::StripAsciiWhitespace(ToAbsl(text.substr(digits))));
  double number = 0;
  if (digits > 0 && absl::SimpleAtod(ToAbsl(text.substr(0, digits)), &number)) {
    for (const Unit& known : kUnits) {
      const double bytes = number * known.bytes;
      if (unit == known.name && bytes < 9e18) return static_cast<uint64_t>(std::llround(bytes));
    }
  }
  return absl::InvalidArgumentError(fmt::format("'{}' is not a size; write for example 512MiB, 1.5GiB or 100MB", text));
}

std::string FormatSize(uint64_t bytes) {
  constexpr std::array<const char*, 5> kNames{"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < kNames.size()) {
    value /= 1024;
    ++unit;
  }
  return fmt::format("{:.1f} {}", value, kNames[unit]);
}

}  // namespace millrace
