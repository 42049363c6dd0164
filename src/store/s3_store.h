#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "net/event_loop.h"
#include "s3/client.h"
#include "store/object_store.h"

namespace millrace {

/// One bucket. The client does the work, and is shared by all buckets: counters() counts for all of them.
///
/// The destructor waits for the callbacks; what is in flight is cancelled by the end of the client, which may come
/// first.
class S3Store final : public ObjectStore {
 public:
  /// `endpoint` is the URL under which the client reaches S3; "" for AWS.
  S3Store(EventLoops& loops, S3Client& client, std::string bucket, std::string endpoint = {});
  ~S3Store() override;

  std::string Uri(std::string_view key) const override;
  std::string Identity() const override { return endpoint_; }
  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override;
  void Head(std::string key, HeadCallback done) override;
  void HeadParts(std::string key, HeadCallback done) override;
  void Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) override;
  /// True for buckets of the same client, which are those of one endpoint with the same credentials.
  bool CopiesFrom(const ObjectStore& other) const override;
  void Copy(const ObjectStore& from, ObjectInfo source, std::string key, CopyOptions options,
            PutCallback done) override;
  void Delete(std::string key, DoneCallback done) override;
  void DeleteMany(std::vector<std::string> keys, DeleteManyCallback done) override;
  void List(ListOptions options, ListCallback done) override;
  /// 30 ms, shared by the 256 requests of a loader, at a gigabyte a second are about 120 KB; half of it, since a
  /// request does not cost that much everywhere.
  uint64_t BytesWorthARequest() const override { return uint64_t{64} << 10; }
  int ListsAtOnce() const override { return 32; }
  absl::StatusOr<std::unique_ptr<ObjectWriter>> Write(std::string key, PutOptions options) override;
  absl::StatusOr<std::unique_ptr<PieceWriter>> WritePieces(std::string key, Pieces pieces, PutOptions options) override;
  PieceLimits piece_limits() const override;
  const RequestCounters& counters() const override;

 private:
  template <typename Callback>
  auto Tracked(Callback done);
  template <typename Callback>
  void Fail(absl::Status status, Callback done);

  EventLoops& loops_;
  S3Client& client_;
  const std::string bucket_;
  const std::string endpoint_;
  std::mutex mutex_;
  std::condition_variable idle_;
  uint64_t in_flight_ = 0;
};

}  // namespace millrace
