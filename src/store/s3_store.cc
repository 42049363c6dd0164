#include "store/s3_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "base/log_exception.h"
#include "s3/bucket_name.h"
#include "s3/error.h"
#include "s3/xml.h"
#include "store/checks.h"
#include "store/s3_copy.h"
#include "store/s3_upload.h"
#include "store/status_gatherer.h"

namespace millrace {

namespace {

// Returns true if the store does not know DeleteObjects, such as Google Cloud Storage, which takes it for another
// request.
bool IsUnknownRequest(const absl::Status& status) {
  const std::string code = S3CodeOf(status);
  return code == "NotImplemented" || code == "MethodNotAllowed" || code == "InvalidArgument";
}

// 30 ms, shared by the 256 requests of a loader, at a gigabyte a second are about 120 KB; half of it, since a request
// does not cost that much everywhere.
constexpr uint64_t kGapBytes = uint64_t{64} << 10;
constexpr int kListsAtOnce = 32;

}  // namespace

S3Store::S3Store(Runtime& runtime, S3Client& client, std::string bucket, std::string endpoint, std::string principal)
    : ObjectStore({.medium = StoreTraits::Medium::kS3,
                   .root = fmt::format("s3://{}/", bucket),
                   .bucket = bucket,
                   .identity = std::move(endpoint),
                   .principal = std::move(principal),
                   .gap_bytes = kGapBytes,
                   .lists_at_once = IsDirectoryBucket(bucket) ? 1 : kListsAtOnce,
                   .pieces = S3Upload::kLimits,
                   .copies_among = &client}),
      runtime_(runtime),
      client_(client),
      bucket_(traits_.bucket) {}

S3Store::~S3Store() {
  calls_.Wait();
}

// Counts the call until its callback has run.
template <typename Result>
SureAnswer<Result> S3Store::Tracked(absl::AnyInvocable<void(Result)> done, size_t results) {
  EventLoop& loop = runtime_.loops().Next();
  SureAnswer<Result> sure(loop, std::move(done), results);
  absl::AnyInvocable<void(Result)> counted = [this, sure = std::move(sure)](Result result) mutable {
    sure(std::move(result));
    calls_.End();
  };
  calls_.Begin();
  return {loop, std::move(counted), results};
}

// Makes a call of the store. If it throws, the callback answers.
template <typename Result, typename Call>
void S3Store::Begin(absl::AnyInvocable<void(Result)> done, size_t results, Call call) noexcept {
  try {
    call(Tracked(std::move(done), results));
  } catch (const std::exception& error) {
    LogException("store", error);
  }
}

// Callbacks never run inside the call, not even for what is refused at once.
template <typename Callback>
void S3Store::Fail(absl::Status status, Callback done) {
  runtime_.loops().Next().Post(
      [status = std::move(status), done = std::move(done)]() mutable { done(std::move(status)); });
}

void S3Store::Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) {
  Begin(std::move(done), 1, [&](auto tracked) {
    absl::Status bad = CheckKey(Uri(""), key);
    if (bad.ok()) bad = CheckGet(Uri(key), options, into.size());
    if (!bad.ok()) return Fail(std::move(bad), std::move(tracked));
    client_.Get(bucket_, std::move(key), into, std::move(options), std::move(tracked));
  });
}

void S3Store::Head(std::string key, HeadOptions options, HeadCallback done) {
  Begin(std::move(done), 1, [&](auto tracked) {
    absl::Status bad = CheckKey(Uri(""), key);
    if (!bad.ok()) return Fail(std::move(bad), std::move(tracked));
    if (options.parts) return client_.HeadParts(bucket_, std::move(key), std::move(tracked));
    client_.Head(bucket_, std::move(key), std::move(tracked));
  });
}

void S3Store::Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) {
  Begin(std::move(done), 1, [&](auto tracked) {
    absl::Status bad = CheckKey(Uri(""), key);
    if (bad.ok()) bad = CheckPut(Uri(key), options);
    if (!bad.ok()) return Fail(std::move(bad), std::move(tracked));
    client_.Put(bucket_, std::move(key), body, std::move(options), std::move(tracked));
  });
}

void S3Store::Copy(const ObjectStore& from, ObjectInfo source, std::string key, CopyOptions options, PutCallback done) {
  Begin(std::move(done), 1, [&](auto tracked) {
    absl::Status bad = CheckKey(Uri(""), key);
    if (bad.ok()) bad = CheckKey(from.Uri(""), source.key);
    if (bad.ok() && !CopiesFrom(from))
      bad = absl::UnimplementedError(fmt::format("{}: cannot be copied from {}", Uri(key), from.Uri(source.key)));
    if (!bad.ok()) return Fail(std::move(bad), std::move(tracked));
    S3CopySource object{.bucket = from.traits().bucket,
                        .key = std::move(source.key),
                        .size = source.size,
                        .etag = std::move(source.etag)};
    CopyOnS3(client_, std::move(object), bucket_, std::move(key), std::move(options), {}, std::move(tracked));
  });
}

void S3Store::Delete(std::vector<std::string> keys, DeleteCallback done) {
  Begin(std::move(done), keys.size(), [&](auto tracked) { DeleteAll(keys, std::move(tracked)); });
}

void S3Store::DeleteAll(std::vector<std::string>& keys, DeleteCallback done) {
  auto gather = std::make_shared<StatusGatherer>(keys.size(), std::move(done));
  std::vector<std::string> together;
  std::vector<size_t> places;
  for (size_t i = 0; i < keys.size(); ++i) {
    absl::Status bad = CheckKey(Uri(""), keys[i]);
    if (!bad.ok()) {
      Fail(std::move(bad), [gather, i](absl::Status status) { gather->Set(i, std::move(status)); });
    } else if (keys.size() > 1 && XmlCanCarry(keys[i])) {
      together.push_back(std::move(keys[i]));
      places.push_back(i);
    } else {
      // One needs no common request, and in its XML some keys would name another object.
      client_.Delete(bucket_, std::move(keys[i]), [gather, i](absl::Status status) { gather->Set(i, status); });
    }
  }
  if (together.empty()) return;
  auto singly = [this, gather, together, places] {
    for (size_t i = 0; i < places.size(); ++i) {
      client_.Delete(bucket_, together[i],
                     [gather, place = places[i]](absl::Status status) { gather->Set(place, std::move(status)); });
    }
  };
  if (deletes_singly_) return singly();
  client_.DeleteMany(
      bucket_, std::move(together),
      [this, gather, places = std::move(places), singly = std::move(singly)](std::vector<absl::Status> statuses) {
        if (std::all_of(statuses.begin(), statuses.end(), IsUnknownRequest)) {
          deletes_singly_ = true;
          return singly();
        }
        for (size_t i = 0; i < places.size(); ++i) gather->Set(places[i], std::move(statuses[i]));
      });
}

void S3Store::DeleteVersion(std::string key, std::string etag, DoneCallback done) {
  Begin(std::move(done), 1, [&](auto tracked) {
    absl::Status bad = CheckKey(Uri(""), key);
    if (bad.ok()) bad = CheckVersion(Uri(key), etag);
    if (!bad.ok()) return Fail(std::move(bad), std::move(tracked));
    client_.Delete(bucket_, std::move(key), std::move(tracked), std::move(etag));
  });
}

void S3Store::List(ListOptions options, ListCallback done) {
  Begin(std::move(done), 1, [&](auto tracked) {
    absl::Status bad = CheckList(Uri(""), options);
    if (!bad.ok()) return Fail(std::move(bad), std::move(tracked));
    client_.List(bucket_, std::move(options), std::move(tracked));
  });
}

absl::StatusOr<std::unique_ptr<PieceWriter>> S3Store::WritePieces(std::string key, PutOptions options) {
  RETURN_IF_ERROR(CheckKey(Uri(""), key));
  RETURN_IF_ERROR(CheckPut(Uri(key), options));
  return std::make_unique<S3Upload>(runtime_, client_, bucket_, std::move(key), std::move(options));
}

const RequestCounters& S3Store::counters() const {
  return client_.counters();
}

}  // namespace millrace
