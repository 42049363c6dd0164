#include "channel/record_framer.h"

#include <algorithm>

namespace millrace {

RecordFramer::RecordFramer(std::optional<uint64_t> length, uint64_t max_part_bytes, uint64_t held_bytes)
    : max_part_bytes_(max_part_bytes), held_limit_(held_bytes), left_(length) {}

absl::Status RecordFramer::BeginPart(uint64_t bytes, bool last, Sink out) {
  const RecordIoPart kind = began_ ? (last ? RecordIoPart::kLast : RecordIoPart::kMiddle)
                                   : (last ? RecordIoPart::kWhole : RecordIoPart::kFirst);
  began_ = true;
  part_bytes_ = bytes;
  part_left_ = bytes;
  std::string head;
  AppendLe(head, kRecordIoMagic);
  AppendLe(head, static_cast<uint32_t>(kind) << kRecordIoLengthBits | static_cast<uint32_t>(bytes));
  return out(AsBytes(head));
}

absl::Status RecordFramer::AppendKnown(ByteSpan bytes, Sink out) {
  if (bytes.size() > *left_) return absl::DataLossError("an object is longer than its store said");
  while (!bytes.empty()) {
    if (part_left_ == 0) {
      const uint64_t part = std::min(*left_, max_part_bytes_);
      RETURN_IF_ERROR(BeginPart(part, part == *left_, out));
    }
    const ByteSpan now = bytes.first(std::min<uint64_t>(bytes.size(), part_left_));
    RETURN_IF_ERROR(out(now));
    part_left_ -= now.size();
    *left_ -= now.size();
    bytes = bytes.subspan(now.size());
  }
  return absl::OkStatus();
}

absl::Status RecordFramer::Append(ByteSpan bytes, Sink out) {
  if (left_) return AppendKnown(bytes, out);
  while (!bytes.empty()) {
    if (held_.size() == held_limit_) {
      RETURN_IF_ERROR(BeginPart(held_.size(), false, out));
      RETURN_IF_ERROR(out(AsBytes(held_)));
      held_.clear();
    }
    const ByteSpan now = bytes.first(std::min<uint64_t>(bytes.size(), held_limit_ - held_.size()));
    held_.append(AsText(now));
    bytes = bytes.subspan(now.size());
  }
  return absl::OkStatus();
}

absl::Status RecordFramer::End(Sink out) {
  if (left_ && *left_ != 0) return absl::DataLossError("an object is shorter than its store said");
  if (!left_) {
    RETURN_IF_ERROR(BeginPart(held_.size(), true, out));
    RETURN_IF_ERROR(out(AsBytes(held_)));
  } else if (!began_) {
    RETURN_IF_ERROR(BeginPart(0, true, out));
  }
  // The other parts are multiples of the alignment.
  constexpr std::byte kZeros[kRecordIoAlignment] = {};
  return out(ByteSpan(kZeros, RecordIoPadded(part_bytes_) - part_bytes_));
}

}  // namespace millrace
