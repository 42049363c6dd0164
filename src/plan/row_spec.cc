#include "plan/row_spec.h"

#include "base/rng.h"
#include "fmt/format.h"

namespace millrace {
namespace {

constexpr uint64_t kRowsDomain = 0x4d522d726f77732d;  // "MR-rows-"
/// This is the version of the construction of rows. Any change that moves a token raises it (row_golden_test.cc
/// notices).
constexpr uint64_t kPackingVersion = 1;

}  // namespace

std::string_view RowLayoutName(RowLayout layout) {
  switch (layout) {
    case RowLayout::kPad:
      return "pad";
    case RowLayout::kStream:
      return "stream";
    case RowLayout::kPack:
      return "pack";
  }
  return "";
}

absl::StatusOr<LongSamples> ParseLongSamples(std::string_view text) {
  for (const LongSamples longer : {LongSamples::kSplit, LongSamples::kTruncate, LongSamples::kRefuse}) {
    if (text == LongSamplesName(longer)) return longer;
  }
  return absl::InvalidArgumentError(
      fmt::format("unknown treatment of long documents \"{}\": use split, truncate or refuse", text));
}

std::string_view LongSamplesName(LongSamples longer) {
  switch (longer) {
    case LongSamples::kSplit:
      return "split";
    case LongSamples::kTruncate:
      return "truncate";
    case LongSamples::kRefuse:
      return "refuse";
  }
  return "";
}

absl::Status RowSpec::Check() const {
  if (length < 1 || length > kMaxLength) {
    return absl::InvalidArgumentError(fmt::format("a row has 1 to {} tokens, not {}", kMaxLength, length));
  }
  if (group < 1 || group > kMaxGroup) {
    return absl::InvalidArgumentError(fmt::format("a group has 1 to {} rows, not {}", kMaxGroup, group));
  }
  if (above >= length || cut() < length || cut() > kMaxLength) {
    return absl::InvalidArgumentError(
        fmt::format("a bucket of rows of {} tokens does not fit between {} and {}", length, above, cut()));
  }
  if ((above != 0 || longest != 0) && layout != RowLayout::kPad) {
    return absl::InvalidArgumentError("rows of buckets hold one document each");
  }
  return absl::OkStatus();
}

uint64_t RowSpec::Key(uint64_t samples_fingerprint) const {
  return HashKey(kRowsDomain, {kPackingVersion, samples_fingerprint, static_cast<uint64_t>(layout), length,
                               static_cast<uint64_t>(layout == RowLayout::kStream ? LongSamples::kSplit : longer),
                               group, above, cut()});
}

double RowCounts::Fill(uint64_t length) const {
  return rows == 0 ? 1 : static_cast<double>(tokens) / (static_cast<double>(rows) * static_cast<double>(length));
}

}  // namespace millrace
