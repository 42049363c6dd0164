#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "store/object_store.h"

namespace millrace {

/// Bytes of part `number` (from 1) of an object whose length is not known beforehand. If the store limits the pieces:
/// 8 MiB, doubled every 1,000 parts up to 1 GiB, so that the 10,000 parts of S3 hold 3.9 TiB. Else 64 KiB, doubled
/// every 256 parts up to 1 MiB.
uint64_t PartSize(int number, PieceLimits limits);

/// How many parts of that size are written at a time.
int PartsInFlight(uint64_t part_size);

/// Writes an object of any length: one part by a Put, more by a PieceWriter. Holds at most five parts of up to 8 MiB,
/// or three of a larger size (on S3, from 8 GiB on).
class StreamWriter final : public ObjectWriter {
 public:
  static absl::StatusOr<std::unique_ptr<ObjectWriter>> Open(ObjectStore& store, std::string key, PutOptions options);
  ~StreamWriter() override;

  absl::Status Append(ByteSpan bytes) override;
  absl::StatusOr<ObjectInfo> Commit() override;

 private:
  StreamWriter(ObjectStore& store, std::string key, PutOptions options);

  absl::Status BeginPart();
  absl::Status SendPart();
  absl::Status WaitFor(int at_most);
  Buffer TakeBuffer(uint64_t size);

  ObjectStore& store_;
  const std::string key_;
  PutOptions options_;
  std::stop_source stop_;  // of the parts
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;

  Buffer part_;  // being filled
  size_t filled_ = 0;
  uint64_t written_ = 0;
  uint64_t sent_ = 0;
  size_t parts_ = 0;  // sent

  std::mutex mutex_;
  std::condition_variable landed_;
  int in_flight_ = 0;
  absl::Status status_;  // the first error; kept
  std::vector<Buffer> spare_;
  std::unique_ptr<PieceWriter> writer_;
};

}  // namespace millrace
