#include "dataset/object_scan.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/crypto.h"
#include "base/foreign_bytes.h"
#include "base/size.h"
#include "shard/sample_name.h"

namespace millrace {

namespace {
constexpr uint64_t kHeldBytesStep = 1 << 20;
constexpr size_t kKindBytes = 64;
}  // namespace

void ObjectScan::Begin(std::string object_key, std::unique_ptr<ShardScanner> scanner, bool hold) {
  object_key_ = std::move(object_key);
  scanner_ = std::move(scanner);
  record_memory_ = Reservation();
  head_.clear();
  status_ = absl::OkStatus();
  refused_ = false;
  samples_ = 0;
  crc_ = 0;
  holds_ = hold;
  held_ = {};
  held_bytes_ = 0;
  held_memory_ = Reservation();
}

void ObjectScan::BeginDamaged(std::string object_key, absl::Status damage) {
  Begin(std::move(object_key), nullptr, false);
  status_ = std::move(damage);
}

void ObjectScan::Feed(ByteSpan bytes) {
  if (scanner_ == nullptr) {
    crc_ = Crc32c(bytes, crc_);
    return;
  }
  if (!status_.ok()) return;
  if (head_.size() < kKindBytes) head_ += AsText(bytes.first(std::min(bytes.size(), kKindBytes - head_.size())));
  status_ = scanner_->Feed(bytes, [this](const ShardSample& sample) { return Take(sample); });
  if (status_.ok()) status_ = ReserveRecord();
  Explain();
}

void ObjectScan::Finish() {
  if (scanner_ == nullptr || !status_.ok()) return;
  status_ = scanner_->Finish([this](const ShardSample& sample) { return Take(sample); });
  Explain();
  if (status_.ok() || !scanner_->all_doubtful()) return;
  // Samples that were passed on cannot be taken back. If there are some, it is an error in any case.
  refused_ = !holds_ && samples_ > 0;
  held_ = {};
  if (!refused_) samples_ = 0;
}

// Adds the format of the object's beginning, if it is no shard at all: no sample came, and the message does not say it
// yet.
void ObjectScan::Explain() {
  if (!damaged() || samples_ > 0) return;
  const std::string_view name = NameForeignBytes(AsBytes(head_));
  if (!name.empty() && ToStd(status_.message()).find("compressed") == std::string_view::npos)
    status_ = absl::Status(status_.code(), fmt::format("{}; it begins as {}", ToStd(status_.message()), name));
}

bool ObjectScan::damaged() const {
  return !refused_ && (absl::IsDataLoss(status_) || absl::IsInvalidArgument(status_));
}

absl::Status ObjectScan::Take(const ShardSample& sample) {
  const uint64_t number = samples_++;
  const std::string key = sample.key.empty() ? RecordKey(object_key_, number) : sample.key;
  if (holds_ && Hold(sample, key)) return absl::OkStatus();
  absl::Status status;
  // Without the samples before it, the object cannot be begun again. If it turns out to be damaged, that is an error.
  if (std::exchange(holds_, false)) status = Release();
  if (status.ok()) status = sink_(sample, key);
  refused_ = !status.ok();
  return status;
}

// Returns false if there is no memory left. The memory comes out of the budget, but is at most a sixteenth of it.
bool ObjectScan::Hold(const ShardSample& sample, std::string_view key) {
  uint64_t bytes = sizeof(ShardSample) + key.size() + sample.label.size();
  for (const ShardField& field : sample.fields) bytes += sizeof(ShardField) + field.name.size() + field.encoding.size();
  held_bytes_ += 2 * bytes;  // as vectors grow
  while (held_bytes_ > held_memory_.bytes()) {
    if (held_memory_.bytes() + kHeldBytesStep > memory_.limit() / 16) return false;
    if (!memory_.TryExtend(&held_memory_, kHeldBytesStep)) return false;
  }
  held_.push_back(sample);
  held_.back().key = key;
  return true;
}

// Reserves memory that the scanner has already taken. It is at most a piece of the object more than the reservation.
absl::Status ObjectScan::ReserveRecord() {
  const uint64_t held = scanner_->held_bytes();
  if (held <= record_memory_.bytes()) return absl::OkStatus();
  if (memory_.TryExtend(&record_memory_, held - record_memory_.bytes())) return absl::OkStatus();
  return absl::ResourceExhaustedError(fmt::format(
      "a record of it, or a list of records, takes more than {} of memory; {} of {} are in use: raise the limit",
      FormatSize(held), FormatSize(memory_.used()), FormatSize(memory_.limit())));
}

absl::Status ObjectScan::Release() {
  for (const ShardSample& sample : held_) RETURN_IF_ERROR(sink_(sample, sample.key));
  held_ = {};
  held_memory_ = Reservation();
  return absl::OkStatus();
}

}  // namespace millrace
