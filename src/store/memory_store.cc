#include "store/memory_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/time/clock.h"
#include "s3/key_order.h"
#include "store/checks.h"
#include "store/piece_copier.h"
#include "store/piece_ledger.h"

namespace millrace {

namespace {

absl::Status ClosedMemory() {
  return absl::CancelledError("the memory store is being closed");
}

void SetMemoryPhase(const GetOptions& options, RequestPhase phase) {
  if (options.progress != nullptr) options.progress->store(phase, std::memory_order_relaxed);
}

}  // namespace

MemoryStore::MemoryStore(const std::string& name)
    : ObjectStore({.medium = StoreTraits::Medium::kMemory, .root = fmt::format("mem://{}/", name)}),
      thread_(1, "mem-store") {}

MemoryStore::~MemoryStore() {
  stopping_ = true;
}

absl::StatusOr<std::shared_ptr<const MemoryStore::Object>> MemoryStore::Find(const std::string& key) const {
  RETURN_IF_ERROR(CheckKey(Uri(""), key));
  std::lock_guard lock(mutex_);
  const auto found = objects_.find(key);
  if (found == objects_.end()) return absl::NotFoundError(fmt::format("{}: there is no such object", Uri(key)));
  return found->second;
}

absl::StatusOr<GetResult> MemoryStore::Read(const std::string& key, MutableByteSpan into, const GetOptions& options) {
  const std::string uri = Uri(key);
  RETURN_IF_ERROR(CheckGet(uri, options, into.size()));
  if (options.stop.stop_requested()) return absl::CancelledError(fmt::format("{}: GET was cancelled", uri));
  ASSIGN_OR_RETURN(const std::shared_ptr<const Object> object, Find(key));
  RETURN_IF_ERROR(CheckMatch(uri, options.if_match, object->info.etag));
  RETURN_IF_ERROR(CheckRange(uri, options.range, object->info.size));
  SetMemoryPhase(options, RequestPhase::kBody);
  if (!into.empty()) std::memcpy(into.data(), object->bytes.data() + options.range.offset, into.size());
  counters_.bytes_read += into.size();
  RETURN_IF_ERROR(VerifyChecksums(uri, options, into));
  return GetResult{object->info.etag, object->info.size};
}

void MemoryStore::Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) {
  SetMemoryPhase(options, RequestPhase::kQueued);
  thread_.Submit([this, key = std::move(key), into, options = std::move(options), done = std::move(done)]() mutable {
    ++counters_.get;
    absl::StatusOr<GetResult> result = stopping_ ? ClosedMemory() : Read(key, into, options);
    SetMemoryPhase(options, RequestPhase::kDone);
    std::move(done)(std::move(result));
  });
}

void MemoryStore::Head(std::string key, HeadOptions, HeadCallback done) {
  thread_.Submit([this, key = std::move(key), done = std::move(done)]() mutable {
    ++counters_.head;
    if (stopping_) return std::move(done)(ClosedMemory());
    const auto object = Find(key);
    if (!object.ok()) return std::move(done)(object.status());
    std::move(done)((*object)->info);
  });
}

absl::StatusOr<ObjectInfo> MemoryStore::Store(const std::string& key, std::string bytes, const PutOptions& options) {
  RETURN_IF_ERROR(CheckKey(Uri(""), key));
  RETURN_IF_ERROR(CheckPut(Uri(key), options));
  auto object = std::make_shared<Object>();
  object->info.key = key;
  object->info.size = bytes.size();
  object->info.modified_ms = absl::ToUnixMillis(absl::Now());
  object->bytes = std::move(bytes);
  std::lock_guard lock(mutex_);
  if (options.only_if_absent && objects_.contains(key)) {
    return absl::AlreadyExistsError(fmt::format("{}: there is an object of that key already", Uri(key)));
  }
  if (!options.if_match.empty()) {
    const auto there = objects_.find(key);
    if (there == objects_.end()) return absl::NotFoundError(fmt::format("{}: the object does not exist", Uri(key)));
    RETURN_IF_ERROR(CheckMatch(Uri(key), options.if_match, there->second->info.etag));
  }
  object->info.etag = fmt::format("{:016x}", ++writes_);
  objects_.insert_or_assign(key, object);
  return object->info;
}

void MemoryStore::Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) {
  thread_.Submit([this, key = std::move(key), body, options = std::move(options), done = std::move(done)]() mutable {
    ++counters_.put;
    if (stopping_) return std::move(done)(ClosedMemory());
    if (options.stop.stop_requested()) {
      return std::move(done)(absl::CancelledError(fmt::format("{}: PUT was cancelled", Uri(key))));
    }
    std::move(done)(Store(key, std::string(AsText(body)), options));
  });
}

absl::Status MemoryStore::Remove(const std::string& key) {
  RETURN_IF_ERROR(CheckKey(Uri(""), key));
  std::lock_guard lock(mutex_);
  objects_.erase(key);
  return absl::OkStatus();
}

void MemoryStore::Delete(std::vector<std::string> keys, DeleteCallback done) {
  thread_.Submit([this, keys = std::move(keys), done = std::move(done)]() mutable {
    std::vector<absl::Status> statuses;
    for (const std::string& key : keys) {
      ++counters_.del;
      statuses.push_back(stopping_ ? ClosedMemory() : Remove(key));
    }
    std::move(done)(std::move(statuses));
  });
}

absl::Status MemoryStore::RemoveVersion(const std::string& key, const std::string& etag) {
  RETURN_IF_ERROR(CheckKey(Uri(""), key));
  RETURN_IF_ERROR(CheckVersion(Uri(key), etag));
  std::lock_guard lock(mutex_);
  const auto there = objects_.find(key);
  if (there == objects_.end()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckMatch(Uri(key), etag, there->second->info.etag));
  objects_.erase(there);
  return absl::OkStatus();
}

void MemoryStore::DeleteVersion(std::string key, std::string etag, DoneCallback done) {
  thread_.Submit([this, key = std::move(key), etag = std::move(etag), done = std::move(done)]() mutable {
    ++counters_.del;
    std::move(done)(stopping_ ? ClosedMemory() : RemoveVersion(key, etag));
  });
}

ListPage MemoryStore::Page(const ListOptions& options) const {
  const size_t limit = static_cast<size_t>(std::min(options.max_keys, kMaxPage));
  ListPage page;
  std::string from = options.prefix;  // the next key is at least this one
  // A continuation is the least key that may follow.
  if (!options.continuation.empty()) {
    from = std::max(from, options.continuation);
  } else if (!options.start_after.empty()) {
    from = std::max(from, options.start_after + '\0');  // no key is shorter and greater
  }
  std::lock_guard lock(mutex_);
  auto at = objects_.lower_bound(from);
  while (at != objects_.end() && at->first.starts_with(options.prefix)) {
    const std::string& key = at->first;
    if (page.objects.size() + page.common_prefixes.size() == limit) {
      page.continuation = key;
      break;
    }
    const size_t slash = options.delimiter.empty() ? key.npos : key.find('/', options.prefix.size());
    if (slash == key.npos) {
      page.objects.push_back(at->second->info);
      ++at;
      continue;
    }
    page.common_prefixes.push_back(key.substr(0, slash + 1));
    at = objects_.lower_bound(*AfterPrefix(page.common_prefixes.back()));  // ends with '/', so there is one
  }
  return page;
}

void MemoryStore::List(ListOptions options, ListCallback done) {
  thread_.Submit([this, options = std::move(options), done = std::move(done)]() mutable {
    ++counters_.list;
    if (stopping_) return std::move(done)(ClosedMemory());
    if (absl::Status bad = CheckList(Uri(""), options); !bad.ok()) return std::move(done)(std::move(bad));
    std::move(done)(Page(options));
  });
}

class MemoryStore::Writer final : public PieceCopier {
 public:
  Writer(MemoryStore& store, std::string key, PutOptions options)
      : store_(store),
        key_(std::move(key)),
        options_(std::move(options)),
        ledger_(store.Uri(key_), store.traits().pieces) {}

  void Write(size_t index, uint64_t offset, ByteSpan bytes, std::optional<uint32_t> /*crc32c*/,
             DoneCallback done) override {
    absl::Status bad = ledger_.Admit(index, {offset, bytes.size()});
    if (!bad.ok()) return std::move(done)(std::move(bad));
    store_.thread_.Submit([this, index, offset, bytes, done = std::move(done)]() mutable {
      if (store_.stopping_ || options_.stop.stop_requested()) return std::move(done)(ClosedMemory());
      bytes_.resize(std::max<uint64_t>(bytes_.size(), offset + bytes.size()));
      std::memcpy(bytes_.data() + offset, bytes.data(), bytes.size());
      ledger_.Enter(index);
      std::move(done)(absl::OkStatus());
    });
  }

  void Copy(size_t index, uint64_t offset, const ObjectInfo& source, ByteRange range, DoneCallback done) override {
    absl::Status bad = ledger_.Admit(index, {offset, range.length});
    if (!bad.ok()) return std::move(done)(std::move(bad));
    store_.thread_.Submit([this, index, offset, source, range, done = std::move(done)]() mutable {
      if (store_.stopping_ || options_.stop.stop_requested()) return std::move(done)(ClosedMemory());
      bytes_.resize(std::max<uint64_t>(bytes_.size(), offset + range.length));
      const GetOptions options{.range = range, .if_match = source.etag};
      const MutableByteSpan into = AsWritableBytes(bytes_).subspan(offset, range.length);
      const absl::StatusOr<GetResult> read = store_.Read(source.key, into, options);
      if (read.ok()) ledger_.Enter(index);
      std::move(done)(read.status());
    });
  }

  void Commit(uint64_t object_bytes, PutCallback done) override {
    store_.thread_.Submit([this, object_bytes, done = std::move(done)]() mutable {
      const absl::Status whole = ledger_.CheckAll(object_bytes);
      if (!whole.ok()) return std::move(done)(whole);
      ++store_.counters_.put;
      std::move(done)(store_.Store(key_, std::move(bytes_), options_));
    });
  }

 private:
  MemoryStore& store_;
  const std::string key_;
  const PutOptions options_;
  PieceLedger ledger_;
  std::string bytes_;  // of the store's thread
};

absl::StatusOr<std::unique_ptr<PieceWriter>> MemoryStore::WritePieces(std::string key, PutOptions options) {
  RETURN_IF_ERROR(CheckKey(Uri(""), key));
  RETURN_IF_ERROR(CheckPut(Uri(key), options));
  return std::make_unique<Writer>(*this, std::move(key), std::move(options));
}

}  // namespace millrace
