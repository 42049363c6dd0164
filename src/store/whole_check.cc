#include "store/whole_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "s3/checksum.h"

namespace millrace {

WholeCheck::WholeCheck(std::string uri, const ObjectInfo& object, Pieces pieces)
    : uri_(std::move(uri)), pieces_(pieces), part_bytes_(object.part_bytes), expected_(object.checksum) {
  if (!expected_) return;
  // That an ETag is no MD5 shows only in a second read of the same.
  const bool doubtful = expected_->kind == ObjectChecksum::Kind::kMd5;
  // Checksums of parts can be made of pieces that are within them.
  const bool cut_otherwise = expected_->parts > 0 && (part_bytes_ == 0 || pieces_.largest() > part_bytes_ ||
                                                      (object.size - 1) / part_bytes_ + 1 != expected_->parts);
  if (doubtful || cut_otherwise) expected_.reset();
}

bool WholeCheck::Add(size_t piece, ByteSpan bytes) {
  if (!expected_) return true;
  const uint64_t crc = CrcOf(expected_->kind, bytes);
  if (crcs_.size() <= piece) crcs_.resize(piece + 1);
  const bool differs = crcs_[piece] && crcs_[piece] != crc;
  changed_ = changed_ || differs;
  return std::exchange(crcs_[piece], crc) == std::nullopt || differs;
}

uint64_t WholeCheck::CrcOfPieces(size_t first, size_t end) const {
  uint64_t crc = 0;
  for (size_t i = first; i < end; ++i)
    crc = CombineCrcs(expected_->kind, crc, crcs_[i].value_or(0), pieces_.At(i).length);
  return crc;
}

bool WholeCheck::Matches() const {
  if (!expected_ || crcs_.size() < pieces_.count()) return false;
  const ObjectChecksum::Kind kind = expected_->kind;
  if (expected_->parts == 0) return CrcDigest(kind, CrcOfPieces(0, crcs_.size())) == expected_->digest;
  std::string digests;
  for (size_t first = 0; first < crcs_.size();) {
    const uint64_t end = std::min(pieces_.At(first).offset + part_bytes_, pieces_.object_bytes());
    const size_t next = end < pieces_.object_bytes() ? pieces_.IndexOf(end) : crcs_.size();
    digests += CrcDigest(kind, CrcOfPieces(first, next));
    first = next;
  }
  return DigestOf(kind, AsBytes(digests)) == expected_->digest;
}

absl::Status WholeCheck::Damaged(std::string_view how_often) const {
  return absl::DataLossError(fmt::format(
      "{}: what arrived{} does not match the {} that the store keeps for it; it was damaged on the way or in "
      "the store. Try again; if that does not help, restore the object",
      uri_, how_often, ChecksumKindName(expected_->kind)));
}

absl::Status WholeCheck::Finish() const {
  // The end is known for the first part only, so it is no proof that checksums of parts do not match.
  if (!expected_ || expected_->parts > 0 || Matches()) return absl::OkStatus();
  return Damaged("");
}

bool WholeCheck::Disagrees() {
  changed_ = false;
  return expected_ && !Matches();
}

absl::Status WholeCheck::FinishAgain() const {
  // If a piece is the same twice, it is what the store has; so its parts are not as they seemed.
  if (!expected_ || Matches() || (expected_->parts > 0 && !changed_)) return absl::OkStatus();
  return Damaged(", twice in a row,");
}

absl::Status WholeCheck::Settle(absl::FunctionRef<absl::Status()> again) {
  if (!Disagrees()) return absl::OkStatus();
  RETURN_IF_ERROR(again());
  return FinishAgain();
}

}  // namespace millrace
