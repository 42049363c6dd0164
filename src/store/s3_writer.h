#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/buffer.h"
#include "s3/checksum.h"
#include "s3/client.h"
#include "store/object_store.h"

namespace millrace {

/// S3 takes at most this many parts of an object.
inline constexpr int kMaxParts = 10'000;

/// Bytes of part `number` (from 1) of an upload whose length is not known beforehand: 8 MiB, doubled every 1,000 parts
/// up to 1 GiB, so that 10,000 parts hold 3.9 TiB.
uint64_t PartSize(int number);

/// How many parts of that size are uploaded at a time.
int PartsInFlight(uint64_t part_size);

/// Writes an object of any length: up to 8 MiB by one PUT, beyond by a multipart upload that is aborted unless
/// committed. Its end cancels what is under way and waits a few seconds for the abort. Holds at most five parts of 8
/// MiB, or three of a larger size (from 8 GiB on).
class S3Writer final : public ObjectWriter {
 public:
  S3Writer(S3Client& client, std::string bucket, std::string key, PutOptions options);
  ~S3Writer() override;

  absl::Status Append(ByteSpan bytes) override;
  absl::StatusOr<ObjectInfo> Commit() override;

 private:
  absl::Status StartPart();
  absl::Status CreateUpload();
  absl::Status WaitForParts(int at_most);
  Buffer TakeBuffer(uint64_t size);
  absl::StatusOr<ObjectInfo> PutWhole();
  absl::Status CheckCondition();
  absl::StatusOr<ObjectInfo> Complete();
  std::string Uri() const;

  S3Client& client_;
  const std::string bucket_;
  const std::string key_;
  const PutOptions options_;

  Buffer part_;  // being filled
  size_t filled_ = 0;
  uint64_t written_ = 0;
  std::optional<DigestStream> digest_;  // of what is written; absent: uploads have no checksums
  std::string upload_id_;               // empty: no upload to be completed or aborted

  std::stop_source stop_;  // of the parts
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;

  std::mutex mutex_;
  std::condition_variable landed_;
  int in_flight_ = 0;
  absl::Status status_;                    // the first error; kept
  std::vector<std::string> etags_;         // of the parts begun
  std::vector<ObjectChecksum> checksums_;  // of them
  std::vector<Buffer> spare_;
};

}  // namespace millrace
