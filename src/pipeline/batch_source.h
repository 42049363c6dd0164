#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/crypto.h"
#include "base/status.h"
#include "cache/cached_store.h"
#include "pipeline/batch_field.h"
#include "pipeline/stall_ledger.h"
#include "plan/position.h"

namespace millrace {

/// Represents an array of a batch.
struct ArrayShape {
  std::string name;   // as Python's batches have it: "image", "tokens" ...
  std::string dtype;  // "uint8", "float32", "int32", "int64", "bool"
  std::vector<uint64_t> dims;
  friend bool operator==(const ArrayShape&, const ArrayShape&) = default;
};
using BatchShape = std::vector<ArrayShape>;

/// A sample that could not be used, and its replacement.
struct QuarantinedSample {
  std::string uri;  // of the object, and the sample's key
  std::string reason;
  std::string replacement;  // key; "" for padding
  uint64_t epoch = 0;
};

struct BatchArray {
  std::string name;
  MutableByteSpan bytes;
};

/// Represents bytes of any length, one for each row.
struct BatchValues {
  std::string name;  // of the entry
  BatchField::Kind kind = BatchField::Kind::kBytes;
  std::vector<std::string> rows;  // [batch]; "" for padding
};

/// Represents a batch without its arrays.
struct BatchFacts {
  uint64_t size = 0;  // rows: `batch` below; those of its shape, or fewer in a short last batch
  std::vector<BatchValues> values;
  uint64_t value_bytes = 0;       // of them
  std::vector<std::string> keys;  // [batch]; "" for padding
  uint64_t valid = 0;             // of the rows, the first ones, which count as samples of the epoch (neither
                                  // padding nor repeats)
  uint64_t epoch = 0;
  bool last_of_epoch = false;
  Position position;                           // after this batch
  Uint128 digest;                              // of the valid rows, when asked for
  uint64_t token_count = 0;                    // in the valid rows
  std::vector<QuarantinedSample> quarantined;  // in order of the rows
  uint64_t odd_images = 0;                     // with warnings of their codec, which are shown as Pillow shows them
};

/// Represents one batch of one rank, with all that its receiver needs to account for it. A batch of two images, for
/// example, has the arrays `image` [2, 224, 224, 3], `label` [2], `valid` [2] and `sample` [2]. Move-only; its memory
/// returns to its source when it and all copies of `memory` are gone, also after the source itself is gone. Its values
/// are the consumer's from the start: the source does not count them any more. Rows without a sample are padding: label
/// -100, pad_token, values without bytes.
///
/// Arrays of samples are images and labels that are integers. They have the names of their fields, or "image" and
/// "label" if no fields are given. Rows of tokens have these arrays:
/// - "tokens" (of token_type) and "token_mask" (1 = a token);
/// - "position_ids" and "segment_ids", if they are known: a token's place in its piece, and the piece, from 1 on;
/// - "row" (its number in its table).
///
/// All batches have "valid" (1 = a sample) and "sample", an ordinal in the index. If a replacement was made, it is that
/// of the replacement. For a row of tokens, it is that of the sample that the row begins with, and so is the key.
/// Batches of several parts have "part".
struct Batch : BatchFacts {
  size_t shape = 0;                // which of BatchSource::shapes() it has
  uint64_t length = 0;             // of a row of tokens; 0: there are none
  std::shared_ptr<void> memory;    // keeps the arrays alive
  MutableByteSpan slot;            // whole pages that they are parts of; later batches come in the same slots
  std::vector<BatchArray> arrays;  // those of its shape, in its order

  /// Returns the array of that name; empty if there is none.
  MutableByteSpan Bytes(std::string_view name) const;
  template <typename T>
  std::span<T> Array(std::string_view name) const {
    const MutableByteSpan bytes = Bytes(name);
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

/// Reports the work of one worker of the data service for this consumer.
struct WorkerReport {
  std::string worker;        // HOST:PORT, or "local": this process
  uint64_t rows = 0;         // of the batches that were received, with padding
  uint64_t failures = 0;     // times that a stream had to be opened again
  std::string last_failure;  // why; "" without failures
};

/// Reports the users of a loader's memory: bytes that the system has given.
struct MemoryReport {
  uint64_t budget_bytes = 0;   // its own, or the one that it shares
  uint64_t loaders = 0;        // that share it; 1: only this one
  uint64_t item_bytes = 0;     // of fetched items
  uint64_t landing_bytes = 0;  // of runs of neighbours in flight
  uint64_t batch_bytes = 0;    // of batches, those of the program too
  uint64_t kept_bytes = 0;     // of these, the program's
  uint64_t account_bytes = 0;  // at most: of the largest sample, keys, states and values of rows, tables of rows
};

/// Reports all that the consumer has received so far, and its costs.
struct LoaderReport {
  static constexpr size_t kMaxQuarantineEntries = 1000;

  uint64_t samples = 0;                // valid rows
  uint64_t tokens = 0;                 // of them
  uint64_t token_places = 0;           // of all rows of the batches: places without tokens are padding
  Uint128 digest;                      // of the valid rows, when asked for
  Position position;                   // after the last batch that was received
  std::vector<uint64_t> part_samples;  // valid rows of each part of the source
  StallReport stalls;
  std::vector<QuarantinedSample> quarantine;  // in order of delivery; the first ones
  uint64_t quarantined = 0;
  uint64_t odd_images = 0;
  std::optional<CacheReport> cache;  // if there is one
  MemoryReport memory;
  std::vector<WorkerReport> workers;  // in the order in which they were named, and this process; empty without any

  /// Adds a batch that was received. part_samples has room for its parts.
  void Add(const Batch& batch);
};

/// Represents a source of batches, in order and each once: a Loader, or another machine's. Next and WaitReady may be
/// called from any one thread at a time, all others from any thread.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  /// Returns the next batch, nullopt after the last one of the last epoch. Blocks. An error is final and returned
  /// again, except ResourceExhausted. That error means that the program holds so many batches that no memory is left
  /// for another. The program may release some and continue.
  virtual absl::StatusOr<std::optional<Batch>> Next() = 0;

  /// Waits until Next() would not block, at most `limit`; returns true if so. For callers that must look at signals
  /// meanwhile.
  virtual bool WaitReady(std::chrono::nanoseconds limit) = 0;

  virtual LoaderReport report() const = 0;

  /// Returns the shapes of batches. Every batch has one of them, since its memory is laid out by it. With
  /// LastBatch::kShort the last batch of an epoch may have fewer rows.
  virtual const std::vector<BatchShape>& shapes() const = 0;
  /// Returns the number of batches of an epoch, for this and every rank.
  virtual uint64_t steps_per_epoch() const = 0;
  /// Returns the number of samples, or rows, of an epoch, of all ranks.
  virtual uint64_t samples_per_epoch() const = 0;
};

}  // namespace millrace
