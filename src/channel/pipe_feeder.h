#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "base/memory_budget.h"
#include "base/unique_fd.h"
#include "channel/channel.h"
#include "channel/channel_items.h"

namespace millrace {

/// Describes the part of one epoch of a channel that a program has got.
struct FedEpoch {
  uint64_t epoch = 0;
  uint64_t items = 0;  // that were written whole
  uint64_t of = 0;     // items of this host
  uint64_t bytes = 0;  // that were written
  bool whole() const { return items == of; }
};

struct PipeFeederOptions {
  std::string path;                  // of the FIFOs, which are called PATH_0, PATH_1, ...
  uint64_t rank = 0;                 // of this host among `world`, if the channel is sharded
  uint64_t world = 1;                // likewise
  uint64_t epochs = 1;               // that the program may begin with: 0 to epochs - 1
  uint64_t memory_bytes = 64 << 20;  // that are read ahead, at most
  /// Called on the feeder's thread for each epoch when the program has read it, or has closed it. Called once for an
  /// error, after which nothing more is written. The FIFO stays open then, so that the program does not take the bytes
  /// that it has got for all.
  std::function<void(const FedEpoch&)> fed;
  std::function<void(const absl::Status&)> failed;
};

/// Feeds the FIFOs of a channel in Pipe mode, on a thread of its own. The FIFO of the next epoch exists. When a program
/// opens it, it is removed, and that of the following epoch is made. So at the end of an epoch the next one can be
/// opened at once. A program that opens no FIFO, or stops reading, holds up only its channel.
///
/// Epoch e holds the items in the order of Plan(items, order, seed, e). `order` is global if there is a shuffle seed,
/// else none. Host r of a sharded channel gets the positions that are r modulo the number of hosts. The stream of an
/// item is that of its parts, one behind the other. Each part is a record if the channel wraps them.
class PipeFeeder {
 public:
  /// Makes the first FIFOs, in place of older ones. The store of the items, and they themselves, must outlive it.
  /// FailedPrecondition if there is something else than a FIFO of that name.
  static absl::StatusOr<std::unique_ptr<PipeFeeder>> Make(ObjectStore& store, const Channel& channel,
                                                          const ChannelItems& items, PipeFeederOptions options);
  /// Stops the thread and removes the FIFOs.
  ~PipeFeeder();
  PipeFeeder(const PipeFeeder&) = delete;
  PipeFeeder& operator=(const PipeFeeder&) = delete;

 private:
  class EpochWriter;

  PipeFeeder(ObjectStore& store, const Channel& channel, const ChannelItems& items, PipeFeederOptions options);
  std::string Fifo(uint64_t epoch) const;
  absl::Status MakeFifo(uint64_t epoch) const;
  void RemoveFifos(uint64_t begin, uint64_t end) const;
  void Run();
  absl::StatusOr<UniqueFd> WaitForReader(uint64_t* epoch);
  absl::Status Feed(EpochWriter& writer);

  ObjectStore& store_;
  const Channel& channel_;
  const ChannelItems& items_;
  const PipeFeederOptions options_;
  MemoryBudget memory_;
  uint64_t first_ = 0;  // FIFOs from here
  uint64_t end_ = 0;    // to here are there
  UniqueFd stopped_;    // readable after a stop
  std::stop_source stop_;
  std::thread thread_;
};

/// Removes the FIFOs of earlier jobs for this channel, and what AWS's reader for TensorFlow keeps beside them. Anything
/// else stays.
void RemoveStalePipes(const std::string& path);

}  // namespace millrace
