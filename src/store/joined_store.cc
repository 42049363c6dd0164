#include "store/joined_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <mutex>

#include "store/checks.h"
#include "store/joined_objects.h"

namespace millrace {

namespace {

// Reads joined objects once, until the last of its parts has come. The store below reads a part that damaged bytes may
// be in without knowing of it, since checksums cover all parts together: so all are read once more.
struct JoinedRead : std::enable_shared_from_this<JoinedRead> {
  struct Part {
    std::string key;
    std::string etag;
    ByteRange range;  // of the object
    bool whole = false;
    MutableByteSpan into;
  };

  void Start() {
    left.store(parts.size() + 1);  // one more, so that an early answer does not end it
    all_verified.store(true);
    for (const Part& part : parts) {
      GetOptions get;
      get.range = part.range;
      get.if_match = part.etag;
      get.whole = part.whole && (options.whole || options.checksums.empty());
      get.progress = &part == parts.data() ? options.progress : nullptr;
      get.stop = options.stop;
      below->Get(part.key, part.into, std::move(get), [self = shared_from_this()](absl::StatusOr<GetResult> result) {
        if (result.ok() && !result->verified) self->all_verified.store(false);
        if (!result.ok()) self->Fail(result.status());
        self->End();
      });
    }
    End();
  }

  void Fail(const absl::Status& error) {
    const std::lock_guard lock(mutex);
    status.Update(error);
  }

  void End() {
    if (left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    if (status.ok()) status = VerifyChecksums(uri, options, into);
    if (absl::IsDataLoss(status) && !std::exchange(again, true)) {
      status = absl::OkStatus();
      if (options.damaged != nullptr) options.damaged->clear();
      return Start();
    }
    if (options.progress != nullptr) options.progress->store(RequestPhase::kDone);
    if (!status.ok()) return done(status);
    done(GetResult{.etag = etag, .object_size = object_size, .verified = options.whole && all_verified.load()});
  }

  ObjectStore* below = nullptr;
  std::string uri;
  std::string etag;
  uint64_t object_size = 0;
  MutableByteSpan into;
  GetOptions options;
  GetCallback done;
  std::vector<Part> parts;
  std::atomic<size_t> left{0};
  std::atomic<bool> all_verified{true};
  bool again = false;  // it was damaged once

  std::mutex mutex;  // guards status until `left` is 0
  absl::Status status;
};

// Makes one HEAD of joined objects.
struct JoinedHead {
  void End() {
    if (left.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
    for (size_t i = 0; i < found.size(); ++i) {
      if (!found[i].ok()) return done(found[i].status());
      if (found[i]->size != expected[i].size) {
        return done(absl::FailedPreconditionError(
            fmt::format("{}: its size was {} and is {}", uris[i], expected[i].size, found[i]->size)));
      }
      expected[i].etag = found[i]->etag;
      expected[i].modified_ms = found[i]->modified_ms;
    }
    done(JoinObjects(expected));
  }

  std::vector<ObjectInfo> expected;
  std::vector<std::string> uris;
  std::vector<absl::StatusOr<ObjectInfo>> found;
  std::atomic<size_t> left{0};
  HeadCallback done;
};

}  // namespace

absl::StatusOr<std::vector<ObjectInfo>> JoinedStore::Split(std::string_view key, std::string_view etag) const {
  absl::StatusOr<std::vector<ObjectInfo>> objects = SplitJoined(key, etag);
  if (!objects.ok()) return Annotate(objects.status(), Uri(std::string(key)));
  for (const ObjectInfo& object : *objects) {
    if (object.key.starts_with(prefix_)) continue;
    return absl::InvalidArgumentError(
        fmt::format("{}: a part of joined objects lies outside of the data set", Uri(object.key)));
  }
  return objects;
}

void JoinedStore::Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) {
  if (!IsJoinedKey(key)) return below_.Get(std::move(key), into, std::move(options), std::move(done));
  auto read = std::make_shared<JoinedRead>();
  read->uri = Uri(key);
  const absl::StatusOr<std::vector<ObjectInfo>> objects = Split(key, options.if_match);
  if (!objects.ok()) return done(objects.status());
  for (const ObjectInfo& object : *objects) read->object_size += object.size;
  absl::Status status = CheckGet(read->uri, options, into.size());
  if (status.ok()) status = CheckRange(read->uri, options.range, read->object_size);
  if (!status.ok()) return done(status);
  read->below = &below_;
  read->etag = options.if_match;
  read->into = into;
  uint64_t begin = 0;
  for (const ObjectInfo& object : *objects) {
    const uint64_t first = std::max(begin, options.range.offset);
    const uint64_t end = std::min(begin + object.size, options.range.end());
    if (first < end) {
      read->parts.push_back({.key = object.key,
                             .etag = object.etag,
                             .range = {.offset = first - begin, .length = end - first},
                             .whole = end - first == object.size,
                             .into = into.subspan(first - options.range.offset, end - first)});
    }
    begin += object.size;
  }
  read->options = std::move(options);
  read->done = std::move(done);
  read->Start();
}

void JoinedStore::Head(std::string key, HeadOptions options, HeadCallback done) {
  if (!IsJoinedKey(key)) return below_.Head(std::move(key), options, std::move(done));
  absl::StatusOr<std::vector<ObjectInfo>> objects = Split(key, "");
  if (!objects.ok()) return done(objects.status());
  auto head = std::make_shared<JoinedHead>();
  head->expected = *std::move(objects);
  head->found.resize(head->expected.size(), absl::InternalError("not asked"));
  head->left.store(head->expected.size());
  head->done = std::move(done);
  for (const ObjectInfo& object : head->expected) head->uris.push_back(below_.Uri(object.key));
  for (size_t i = 0; i < head->uris.size(); ++i) {
    // The last answer may come within this call, and takes `expected` apart then.
    below_.Head(std::string(head->expected[i].key), {}, [head, i](absl::StatusOr<ObjectInfo> info) {
      head->found[i] = std::move(info);
      head->End();
    });
  }
}

}  // namespace millrace
