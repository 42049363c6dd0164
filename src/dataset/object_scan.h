#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/memory_budget.h"
#include "base/status.h"
#include "shard/shard_scanner.h"

namespace millrace {

/// Finds the samples of objects while their bytes come, one object after the other, and hands them on; of raw objects
/// it makes the checksum only. What it holds, samples and the beginning of a record, comes out of the budget. Not
/// thread-safe.
class ObjectScan {
 public:
  /// Gets each sample once, and its key, which is made of its place if it has none; valid during the call. An error
  /// ends the scan of that object.
  using Sink = std::function<absl::Status(const ShardSample&, std::string_view key)>;

  ObjectScan(MemoryBudget& memory, Sink sink) : memory_(memory), sink_(std::move(sink)) {}

  /// `scanner` is null for a raw object. With `hold` its samples are kept back until Release(), so that it can be begun
  /// again; if there is no memory for them, they are handed on, and holds() becomes false.
  void Begin(std::string object_key, std::unique_ptr<ShardScanner> scanner, bool hold);

  /// The same for an object that is known to be bad beforehand.
  void BeginDamaged(std::string object_key, absl::Status damage);

  /// The next bytes. After a failure they are ignored.
  void Feed(ByteSpan bytes);
  /// If it turns out that all samples are doubtful, those that were kept back are dropped.
  void Finish();

  /// Hands on the samples that were kept back, whatever status() is.
  absl::Status Release();

  bool holds() const { return holds_; }
  const absl::Status& status() const { return status_; }
  /// Whether status() says that the object itself is bad: not a sample of it that the sink refused, nor want of memory.
  bool damaged() const;
  uint64_t samples() const { return samples_; }
  SkippedMembers skipped_members() const {
    return scanner_ == nullptr ? SkippedMembers() : scanner_->skipped_members();
  }
  uint32_t crc() const { return crc_; }  // of all bytes of a raw object

 private:
  absl::Status Take(const ShardSample& sample);
  bool Hold(const ShardSample& sample, std::string_view key);
  absl::Status ReserveRecord();
  void Explain();

  MemoryBudget& memory_;
  const Sink sink_;
  std::string object_key_;
  std::unique_ptr<ShardScanner> scanner_;
  Reservation record_memory_;  // of what the scanner holds
  std::string head_;           // the first bytes of a shard
  absl::Status status_;
  bool refused_ = false;  // status_ is the sink's
  uint64_t samples_ = 0;
  uint32_t crc_ = 0;
  bool holds_ = false;
  std::vector<ShardSample> held_;
  uint64_t held_bytes_ = 0;
  Reservation held_memory_;
};

}  // namespace millrace
