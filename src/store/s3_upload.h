#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "s3/client.h"
#include "store/pieces.h"

namespace millrace {

/// S3 takes at most this many parts of an object, and of all but the last at least this much.
inline constexpr int kMaxParts = 10'000;
inline constexpr uint64_t kMinPartBytes = 5 << 20;

/// A multipart upload: its parts are sent in any order, several at a time. Its end cancels what is in flight and,
/// unless it was completed, aborts it, for which it waits a few seconds. Calls come from one thread.
class S3Upload {
 public:
  /// Of the options `stop` is about all calls.
  S3Upload(S3Client& client, std::string bucket, std::string key, PutOptions options);
  ~S3Upload();
  S3Upload(const S3Upload&) = delete;
  S3Upload& operator=(const S3Upload&) = delete;

  /// Blocking; before anything else.
  absl::Status Create();
  bool created() const { return !upload_id_.empty(); }

  /// Sends part `index`, counted from 0; sent again after its callback, the later one counts. `body` must live until
  /// `landed`, which runs on an event loop.
  void Send(size_t index, ByteSpan body, DoneCallback landed);

  /// Blocks until no more than that many parts are on their way. Gives the first error of all so far.
  absl::Status WaitFor(int at_most);

  /// Waits for the parts, all of which must have been sent up to the last one, and makes them the object. Blocking.
  absl::StatusOr<ObjectInfo> Complete();

 private:
  struct Part {
    std::string etag;
    std::optional<ObjectChecksum> checksum;
    uint64_t crc = 0;  // the same as a number, where uploads have checksums
    uint64_t bytes = 0;
  };
  absl::Status CheckCondition();
  std::string Uri() const;

  S3Client& client_;
  const std::string bucket_;
  const std::string key_;
  const PutOptions options_;
  std::string upload_id_;  // empty: nothing to be completed or aborted

  std::stop_source stop_;  // of the parts
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;

  std::mutex mutex_;
  std::condition_variable landed_;
  int in_flight_ = 0;
  absl::Status status_;      // the first error; kept
  std::vector<Part> parts_;  // by index
};

}  // namespace millrace
