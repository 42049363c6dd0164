#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "base/in_flight.h"
#include "net/runtime.h"
#include "net/sure_answer.h"
#include "s3/client.h"
#include "store/object_store.h"

namespace millrace {

/// Is one bucket. The client does the work, and is shared by all buckets: counters() counts for all of them.
///
/// The destructor waits for the callbacks; what is in flight is cancelled by the end of the client, which may come
/// first.
class S3Store final : public ObjectStore {
 public:
  /// `endpoint` is the URL under which the client reaches S3; "" for AWS. `principal` is that of its credentials.
  /// Buckets of the same client, which are those of one endpoint with the same credentials, copy objects of each other.
  S3Store(Runtime& runtime, S3Client& client, std::string bucket, std::string endpoint = {},
          std::string principal = {});
  ~S3Store() override;

  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override;
  void Head(std::string key, HeadOptions options, HeadCallback done) override;
  void Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) override;
  void Copy(const ObjectStore& from, ObjectInfo source, std::string key, CopyOptions options,
            PutCallback done) override;
  void Delete(std::vector<std::string> keys, DeleteCallback done) override;
  void DeleteVersion(std::string key, std::string etag, DoneCallback done) override;
  void List(ListOptions options, ListCallback done) override;
  absl::StatusOr<std::unique_ptr<PieceWriter>> WritePieces(std::string key, PutOptions options) override;
  const RequestCounters& counters() const override;

 private:
  template <typename Result, typename Call>
  void Begin(absl::AnyInvocable<void(Result)> done, size_t results, Call call) noexcept;
  template <typename Result>
  SureAnswer<Result> Tracked(absl::AnyInvocable<void(Result)> done, size_t results);
  void DeleteAll(std::vector<std::string>& keys, DeleteCallback done);
  template <typename Callback>
  void Fail(absl::Status status, Callback done);

  Runtime& runtime_;
  S3Client& client_;
  const std::string& bucket_;                 // in the traits
  std::atomic<bool> deletes_singly_ = false;  // the store does not know DeleteObjects
  InFlight calls_;
};

}  // namespace millrace
