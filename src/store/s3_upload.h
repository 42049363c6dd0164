#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "net/runtime.h"
#include "net/sure_answer.h"
#include "s3/client.h"
#include "store/piece_copier.h"
#include "store/piece_ledger.h"

namespace millrace {

/// S3 takes at most this many parts of an object, and requires at least this much of all but the last.
inline constexpr int kMaxParts = 10'000;
inline constexpr uint64_t kMinPartBytes = 5 << 20;

/// Makes a multipart upload, whose parts are sent straight from the caller's buffers. The first piece begins it; pieces
/// that come before the store has answered wait for that; the first one also says whether pieces are copied. Checksums
/// and hashes are made on the CPU pool. The destructor aborts the upload unless it was committed, and waits a few
/// seconds for that.
class S3Upload final : public PieceCopier {
 public:
  static constexpr PieceLimits kLimits{.least_bytes = kMinPartBytes, .most_pieces = kMaxParts};

  /// The option `stop` applies to all calls but Commit.
  S3Upload(Runtime& runtime, S3Client& client, std::string bucket, std::string key, PutOptions options);
  ~S3Upload() override;

  void Write(size_t index, uint64_t offset, ByteSpan bytes, std::optional<uint32_t> crc32c,
             DoneCallback done) noexcept override;
  void Copy(size_t index, uint64_t offset, const ObjectInfo& source, ByteRange range,
            DoneCallback done) noexcept override;
  void Commit(uint64_t object_bytes, PutCallback done) override;

 private:
  struct CopiedRange {
    S3CopySource source;
    ByteRange range;
  };
  struct Piece {
    size_t index = 0;
    ByteSpan bytes;
    std::optional<uint32_t> crc32c;  // if it is known
    SureAnswer<absl::Status> done;
    std::optional<CopiedRange> copied;  // in place of `bytes`

    uint64_t length() const { return copied ? copied->range.length : bytes.size(); }
  };
  struct Part {
    std::string etag;
    std::optional<ObjectChecksum> checksum;
    uint64_t bytes = 0;
  };
  enum class State { kNew, kBeginning, kBegun, kFailed, kCommitted };

  template <typename Result>
  SureAnswer<Result> Tracked(absl::AnyInvocable<void(Result)> done);
  void Add(uint64_t offset, Piece piece);
  void Begin();
  void OnBegun(absl::StatusOr<std::string> id);
  void OnStop();
  void Send(Piece piece);
  void SendCopy(Piece piece);
  void OnSent(Piece& piece, absl::StatusOr<ObjectInfo> sent);
  void EndWaiting();
  void EndAll(std::vector<Piece> pieces, const absl::Status& status);
  void CheckCondition(DoneCallback done);
  void CommitChecked(uint64_t object_bytes, SureAnswer<absl::StatusOr<ObjectInfo>> done);
  void Complete(uint64_t size, SureAnswer<absl::StatusOr<ObjectInfo>> done);
  void Abort();
  absl::Status Stopped() const;

  void Enter();
  void Leave();

  Runtime& runtime_;
  S3Client& client_;
  const std::string bucket_;
  const std::string key_;
  const PutOptions options_;
  PieceLedger ledger_;

  std::stop_source stop_;     // of the parts
  std::stop_source give_up_;  // of beginning
  std::optional<std::stop_callback<std::function<void()>>> on_stop_;

  std::mutex mutex_;
  std::condition_variable changed_;
  int in_flight_ = 0;  // callbacks and tasks that use this
  State state_ = State::kNew;
  std::string upload_id_;  // from kBegun on, and constant then
  absl::Status failure_;   // of kFailed
  std::vector<Piece> waiting_;
  bool copies_ = false;      // some piece is copied: the upload has no checksum
  std::vector<Part> parts_;  // by index
};

}  // namespace millrace
