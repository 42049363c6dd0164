#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "base/memory_budget.h"
#include "base/status.h"
#include "dataset/dataset_place.h"
#include "dataset/mds_check.h"
#include "dataset/sample_objects.h"
#include "shard/shard_sample.h"
#include "store/calls_in_flight.h"

namespace millrace {

/// Finds the samples of shards from notes of other programs, and from a few bytes of the shards, without reading all of
/// them:
///
///   tar  NAME.idx or NAME.tar.idx of DALI's wds2idx beside NAME.tar (shard/tar_outline.h)
///   MDS  the index.json beside it, and the head of the shard
///
/// The reads of some shards are in flight at a time. Their memory comes out of the budget, of which it is a sixteenth
/// at most, except for one shard. Blocking; not thread-safe; the place, the budget and the listing must outlive it.
class ShardOutlines {
 public:
  ShardOutlines(const DatasetPlace& data, MemoryBudget& memory, const ObjectSource& listing, std::stop_token stop);
  ~ShardOutlines();

  struct Outline;

  /// Begins with a shard, if there is a note on it and reading the shard would take four times the bytes. Null
  /// otherwise. It also returns null if several shards were refused and none was accepted. Shards are taken in order of
  /// keys.
  std::shared_ptr<Outline> Begin(DataKind kind, const IndexedObject& shard);

  /// Waits for the reads of a shard that was begun, and checks whether the note fits it. If it does not, the error says
  /// why: the shard must be read. The same applies if `classes` are wanted and only reading the shard tells them.
  /// Cancelled means that the stop was requested. Shards are asked for in the order in which they were begun.
  absl::Status Check(Outline& outline, bool classes);

  /// Calls `each`, after Check, with the samples as a scanner of the shard finds them, but without CRCs and labels.
  absl::Status Samples(const Outline& outline, ShardSink each) const;

 private:
  std::shared_ptr<Outline> BeginTar(const IndexedObject& shard);
  std::shared_ptr<Outline> BeginMds(const IndexedObject& shard);
  bool Start(const std::shared_ptr<Outline>& outline);
  void StartWaiting();

  const DatasetPlace& data_;
  MemoryBudget& memory_;
  const ObjectSource& listing_;
  const std::stop_token stop_;
  MdsIndexes mds_indexes_;
  std::deque<std::shared_ptr<Outline>> waiting_;  // for memory
  uint64_t held_bytes_ = 0;                       // of those that were started
  uint64_t used_ = 0;
  uint64_t refused_ = 0;
  CallsInFlight calls_;  // last: what answers use outlives them
};

}  // namespace millrace
