#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "store/object_store.h"
#include "store/s3_upload.h"

namespace millrace {

/// Bytes of part `number` (from 1) of an upload whose length is not known beforehand: 8 MiB, doubled every 1,000 parts
/// up to 1 GiB, so that 10,000 parts hold 3.9 TiB.
uint64_t PartSize(int number);

/// How many parts of that size are uploaded at a time.
int PartsInFlight(uint64_t part_size);

/// Writes an object of any length: up to 8 MiB by one PUT, beyond by a multipart upload that is aborted unless
/// committed. Its end cancels what is in flight and waits a few seconds for the abort. Holds at most five parts of 8
/// MiB, or three of a larger size (from 8 GiB on).
class S3Writer final : public ObjectWriter {
 public:
  S3Writer(S3Client& client, std::string bucket, std::string key, PutOptions options);

  absl::Status Append(ByteSpan bytes) override;
  absl::StatusOr<ObjectInfo> Commit() override;

 private:
  absl::Status StartPart();
  Buffer TakeBuffer(uint64_t size);
  absl::StatusOr<ObjectInfo> PutWhole();
  std::string Uri() const;

  S3Client& client_;
  const std::string bucket_;
  const std::string key_;
  const PutOptions options_;

  Buffer part_;  // being filled
  size_t filled_ = 0;
  uint64_t written_ = 0;
  size_t parts_ = 0;  // begun
  absl::Status status_;

  std::mutex mutex_;
  std::vector<Buffer> spare_;
  S3Upload upload_;  // last: its callbacks end before the rest goes
};

}  // namespace millrace
