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

/// Finds the samples of objects while their bytes come, one object after the other, and passes them to the sink. For
/// raw objects it only computes the checksum. The memory of samples that it keeps, and of the beginning of a record,
/// comes out of the budget. Not thread-safe.
class ObjectScan {
 public:
  /// Gets each sample once, and its key, which is valid during the call. If a sample has no key, one is made of its
  /// place. An error ends the scan of that object.
  using Sink = std::function<absl::Status(const ShardSample&, std::string_view key)>;

  ObjectScan(MemoryBudget& memory, Sink sink) : memory_(memory), sink_(std::move(sink)) {}

  /// Begins an object. `scanner` is null for a raw object. With `hold` its samples are kept back until Release(), so
  /// that the object can be begun again. If there is no memory for them, they are passed on, and holds() becomes false.
  void Begin(std::string object_key, std::unique_ptr<ShardScanner> scanner, bool hold);

  /// Begins an object that is already known to be damaged.
  void BeginDamaged(std::string object_key, absl::Status damage);

  /// Takes the next bytes. After a failure they are ignored.
  void Feed(ByteSpan bytes);
  /// Ends the object. If all samples turn out to be doubtful, those that were kept back are dropped.
  void Finish();

  /// Passes on the samples that were kept back, whatever status() is.
  absl::Status Release();

  bool holds() const { return holds_; }
  const absl::Status& status() const { return status_; }
  /// True if status() says that the object itself is bad. It is false if the sink refused a sample, or if memory was
  /// lacking.
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
