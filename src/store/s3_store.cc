#include "store/s3_store.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "s3/xml.h"
#include "store/checks.h"
#include "store/s3_copy.h"
#include "store/s3_piece_writer.h"
#include "store/s3_writer.h"
#include "store/status_gatherer.h"

namespace millrace {

S3Store::S3Store(EventLoops& loops, S3Client& client, std::string bucket, std::string endpoint)
    : loops_(loops), client_(client), bucket_(std::move(bucket)), endpoint_(std::move(endpoint)) {}

S3Store::~S3Store() {
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return in_flight_ == 0; });
}

std::string S3Store::Uri(std::string_view key) const {
  return absl::StrCat("s3://", bucket_, "/", ToAbsl(key));
}

// Counts the call until its callback has run.
template <typename Callback>
auto S3Store::Tracked(Callback done) {
  {
    std::lock_guard lock(mutex_);
    ++in_flight_;
  }
  return [this, done = std::move(done)](auto result) mutable {
    std::move(done)(std::move(result));
    std::lock_guard lock(mutex_);
    if (--in_flight_ == 0) idle_.notify_all();  // under the lock: the waiting destructor may free it right after
  };
}

// Callbacks never run inside the call, not even for what is refused at once.
template <typename Callback>
void S3Store::Fail(absl::Status status, Callback done) {
  loops_.Next().Post([status = std::move(status), done = std::move(done)]() mutable { done(std::move(status)); });
}

void S3Store::Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) {
  auto tracked = Tracked(std::move(done));
  absl::Status bad = CheckKey(Uri(""), key);
  if (bad.ok()) bad = CheckGet(Uri(key), options, into.size());
  if (!bad.ok()) return Fail(std::move(bad), std::move(tracked));
  client_.Get(bucket_, std::move(key), into, std::move(options), std::move(tracked));
}

void S3Store::Head(std::string key, HeadCallback done) {
  auto tracked = Tracked(std::move(done));
  absl::Status bad = CheckKey(Uri(""), key);
  if (!bad.ok()) return Fail(std::move(bad), std::move(tracked));
  client_.Head(bucket_, std::move(key), std::move(tracked));
}

void S3Store::HeadParts(std::string key, HeadCallback done) {
  auto tracked = Tracked(std::move(done));
  absl::Status bad = CheckKey(Uri(""), key);
  if (!bad.ok()) return Fail(std::move(bad), std::move(tracked));
  client_.HeadParts(bucket_, std::move(key), std::move(tracked));
}

void S3Store::Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) {
  auto tracked = Tracked(std::move(done));
  absl::Status bad = CheckKey(Uri(""), key);
  if (bad.ok()) bad = CheckPut(Uri(key), options);
  if (!bad.ok()) return Fail(std::move(bad), std::move(tracked));
  client_.Put(bucket_, std::move(key), body, std::move(options), std::move(tracked));
}

bool S3Store::CopiesFrom(const ObjectStore& other) const {
  const auto* bucket = dynamic_cast<const S3Store*>(&other);
  return bucket != nullptr && &bucket->client_ == &client_;
}

void S3Store::Copy(const ObjectStore& from, ObjectInfo source, std::string key, CopyOptions options, PutCallback done) {
  auto tracked = Tracked(std::move(done));
  absl::Status bad = CheckKey(Uri(""), key);
  if (bad.ok()) bad = CheckKey(from.Uri(""), source.key);
  if (bad.ok() && !CopiesFrom(from))
    bad = absl::UnimplementedError(fmt::format("{}: cannot be copied from {}", Uri(key), from.Uri(source.key)));
  if (!bad.ok()) return Fail(std::move(bad), std::move(tracked));
  S3CopySource object{.bucket = static_cast<const S3Store&>(from).bucket_,
                      .key = std::move(source.key),
                      .size = source.size,
                      .etag = std::move(source.etag)};
  CopyOnS3(client_, std::move(object), bucket_, std::move(key), std::move(options), {}, std::move(tracked));
}

void S3Store::Delete(std::string key, DoneCallback done) {
  auto tracked = Tracked(std::move(done));
  absl::Status bad = CheckKey(Uri(""), key);
  if (!bad.ok()) return Fail(std::move(bad), std::move(tracked));
  client_.Delete(bucket_, std::move(key), std::move(tracked));
}

void S3Store::DeleteMany(std::vector<std::string> keys, DeleteManyCallback done) {
  auto gather = std::make_shared<StatusGatherer>(keys.size(), Tracked(std::move(done)));
  std::vector<std::string> together;
  std::vector<size_t> places;
  for (size_t i = 0; i < keys.size(); ++i) {
    absl::Status bad = CheckKey(Uri(""), keys[i]);
    if (!bad.ok()) {
      Fail(std::move(bad), [gather, i](absl::Status status) { gather->Set(i, std::move(status)); });
    } else if (XmlCanCarry(keys[i])) {
      together.push_back(std::move(keys[i]));
      places.push_back(i);
    } else {
      // In the XML of the common request it would name another object.
      client_.Delete(bucket_, std::move(keys[i]), [gather, i](absl::Status status) { gather->Set(i, status); });
    }
  }
  if (together.empty()) return;
  client_.DeleteMany(bucket_, std::move(together),
                     [gather, places = std::move(places)](std::vector<absl::Status> statuses) {
                       for (size_t i = 0; i < places.size(); ++i) gather->Set(places[i], std::move(statuses[i]));
                     });
}

void S3Store::List(ListOptions options, ListCallback done) {
  auto tracked = Tracked(std::move(done));
  absl::Status bad = CheckList(Uri(""), options);
  if (!bad.ok()) return Fail(std::move(bad), std::move(tracked));
  client_.List(bucket_, std::move(options), std::move(tracked));
}

absl::StatusOr<std::unique_ptr<ObjectWriter>> S3Store::Write(std::string key, PutOptions options) {
  RETURN_IF_ERROR(CheckKey(Uri(""), key));
  RETURN_IF_ERROR(CheckPut(Uri(key), options));
  return std::make_unique<S3Writer>(client_, bucket_, std::move(key), std::move(options));
}

absl::StatusOr<std::unique_ptr<PieceWriter>> S3Store::WritePieces(std::string key, Pieces pieces, PutOptions options) {
  RETURN_IF_ERROR(CheckKey(Uri(""), key));
  RETURN_IF_ERROR(CheckPieces(Uri(key), pieces, piece_limits()));
  return S3PieceWriter::Create(client_, bucket_, std::move(key), pieces, std::move(options));
}

PieceLimits S3Store::piece_limits() const {
  return S3PieceWriter::kLimits;
}

const RequestCounters& S3Store::counters() const {
  return client_.counters();
}

}  // namespace millrace
