#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <shared_mutex>

#include "base/buffer.h"
#include "base/crypto.h"
#include "base/memory_budget.h"
#include "base/size.h"
#include "devstore/s3_error.h"
#include "devstore/storage.h"
#include "devstore/upload_table.h"

namespace millrace {

namespace {

constexpr size_t kBlockBytes = size_t{1} << 20;

/// This is a piece of a content. Contents share blocks: a multipart object is made of those of its parts.
struct Block {
  Buffer bytes;
  size_t used = 0;
  Reservation reservation;
};

class MemContent final : public Content {
 public:
  explicit MemContent(std::vector<std::shared_ptr<const Block>> blocks) : blocks_(std::move(blocks)) {
    for (const auto& block : blocks_) {
      ends_.push_back(size_ += block->used);
    }
  }

  uint64_t size() const override { return size_; }
  const std::vector<std::shared_ptr<const Block>>& blocks() const { return blocks_; }

  absl::Status Read(uint64_t offset, MutableByteSpan into) const override {
    ForEachPiece({offset, into.size()}, [&into](const std::shared_ptr<const Block>&, ByteSpan piece) {
      std::memcpy(into.data(), piece.data(), piece.size());
      into = into.subspan(piece.size());
    });
    return absl::OkStatus();
  }

  void AppendSteps(ByteRange range, std::vector<ReplyStep>* out) const override {
    ForEachPiece(range, [out](const std::shared_ptr<const Block>& block, ByteSpan piece) {
      out->push_back(SendBytes{piece, block});
    });
  }

 private:
  template <typename F>
  void ForEachPiece(ByteRange range, F each) const {
    size_t i = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), range.offset) - ends_.begin());
    uint64_t skip = range.offset - (i == 0 ? 0 : ends_[i - 1]);
    for (uint64_t left = range.length; left > 0; ++i, skip = 0) {
      const Block& block = *blocks_[i];
      const size_t n = static_cast<size_t>(std::min<uint64_t>(block.used - skip, left));
      each(blocks_[i], block.bytes.span().subspan(skip, n));
      left -= n;
    }
  }

  std::vector<std::shared_ptr<const Block>> blocks_;
  std::vector<uint64_t> ends_;  // offset after each block
  uint64_t size_ = 0;
};

class MemBlobWriter final : public BlobWriter {
 public:
  MemBlobWriter(MemoryBudget& budget, uint64_t size) : budget_(budget), expected_(size) {}

  absl::Status Append(ByteSpan bytes) override {
    while (!bytes.empty()) {
      if (!block_ || block_->used == block_->bytes.size()) RETURN_IF_ERROR(AddBlock());
      const size_t n = std::min(bytes.size(), block_->bytes.size() - block_->used);
      std::memcpy(block_->bytes.data() + block_->used, bytes.data(), n);
      block_->used += n;
      taken_ += n;
      bytes = bytes.subspan(n);
    }
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<Content>> Finish() override {
    return std::make_shared<MemContent>(std::move(blocks_));
  }

 private:
  absl::Status AddBlock() {
    // Grows with the bytes that really come, whatever the request announced.
    const uint64_t left = expected_ > taken_ ? expected_ - taken_ : kBlockBytes;
    const size_t size = static_cast<size_t>(std::min<uint64_t>(left, kBlockBytes));
    Reservation reservation = budget_.TryReserve(size);
    if (!reservation) {
      return S3Error(s3code::kInternalError,
                     fmt::format("devstore's memory ({}) is full: delete objects, or serve a folder instead of mem:",
                                 FormatSize(budget_.limit())));
    }
    block_ = std::make_shared<Block>(Block{Buffer(size), 0, std::move(reservation)});
    blocks_.push_back(block_);
    return absl::OkStatus();
  }

  MemoryBudget& budget_;
  const uint64_t expected_;
  uint64_t taken_ = 0;
  std::shared_ptr<Block> block_;  // the last of blocks_
  std::vector<std::shared_ptr<const Block>> blocks_;
};

struct Bucket {
  int64_t created_ns = 0;
  mutable std::shared_mutex mutex;
  bool deleted = false;
  std::map<std::string, StoredObject, std::less<>> objects;
};

class MemWalk final : public KeyWalk {
 public:
  explicit MemWalk(std::shared_ptr<const Bucket> bucket) : bucket_(std::move(bucket)) {}
  absl::StatusOr<std::optional<std::string>> FirstFrom(std::string_view from) override {
    std::shared_lock lock(bucket_->mutex);
    const auto found = bucket_->objects.lower_bound(from);
    if (found == bucket_->objects.end()) return std::nullopt;
    return found->first;
  }

 private:
  const std::shared_ptr<const Bucket> bucket_;
};

class MemStorage final : public Storage {
 public:
  explicit MemStorage(uint64_t limit_bytes) : budget_(limit_bytes) {}

  absl::StatusOr<std::vector<BucketInfo>> Buckets() override {
    std::shared_lock lock(mutex_);
    std::vector<BucketInfo> all;
    for (const auto& [name, bucket] : buckets_) all.push_back({name, bucket->created_ns / 1'000'000'000});
    return all;
  }

  absl::Status CreateBucket(const std::string& name) override {
    auto bucket = std::make_shared<Bucket>();
    bucket->created_ns = NowNs();
    std::lock_guard lock(mutex_);
    if (!buckets_.try_emplace(name, std::move(bucket)).second) {
      return S3Error(s3code::kBucketAlreadyOwnedByYou,
                     "Your previous request to create the named bucket succeeded and you already own it.",
                     {{"BucketName", name}});
    }
    return absl::OkStatus();
  }

  absl::Status DeleteBucket(const std::string& name) override {
    {
      std::lock_guard lock(mutex_);
      const auto found = buckets_.find(name);
      if (found == buckets_.end()) return NoSuchBucket(name);
      const std::shared_ptr<Bucket> bucket = found->second;
      std::lock_guard bucket_lock(bucket->mutex);
      if (!bucket->objects.empty()) {
        return S3Error(s3code::kBucketNotEmpty, "The bucket you tried to delete is not empty", {{"BucketName", name}});
      }
      bucket->deleted = true;  // for a Put that has found it already
      buckets_.erase(found);
    }
    for (const Upload& upload : uploads_.List(name)) uploads_.Remove(upload.id).IgnoreError();
    return absl::OkStatus();
  }

  absl::Status CheckBucket(const std::string& name) override { return FindBucket(name).status(); }

  absl::StatusOr<StoredObject> Open(const std::string& name, const std::string& key) override {
    ASSIGN_OR_RETURN(const std::shared_ptr<Bucket> bucket, FindBucket(name));
    std::shared_lock lock(bucket->mutex);
    const auto found = bucket->objects.find(key);
    if (found == bucket->objects.end()) return NoSuchKey(key);
    return found->second;
  }

  absl::StatusOr<std::shared_ptr<const ObjectRecord>> Describe(const std::string& name,
                                                               const std::string& key) override {
    ASSIGN_OR_RETURN(StoredObject object, Open(name, key));
    return std::move(object.record);
  }

  absl::StatusOr<std::unique_ptr<KeyWalk>> Walk(const std::string& name) override {
    ASSIGN_OR_RETURN(std::shared_ptr<Bucket> bucket, FindBucket(name));
    return std::make_unique<MemWalk>(std::move(bucket));
  }

  absl::StatusOr<std::unique_ptr<BlobWriter>> NewBlob(uint64_t size) override {
    return std::make_unique<MemBlobWriter>(budget_, size);
  }

  absl::StatusOr<std::shared_ptr<Content>> Concatenate(
      const std::vector<std::shared_ptr<const Content>>& contents) override {
    std::vector<std::shared_ptr<const Block>> blocks;
    for (const auto& content : contents) {
      const auto& more = static_cast<const MemContent&>(*content).blocks();
      blocks.insert(blocks.end(), more.begin(), more.end());
    }
    return std::make_shared<MemContent>(std::move(blocks));
  }

  absl::StatusOr<std::shared_ptr<const ObjectRecord>> Put(const std::string& name, const std::string& key,
                                                          std::shared_ptr<Content> content, ObjectAttributes attributes,
                                                          std::string etag, Check check) override {
    ASSIGN_OR_RETURN(const std::shared_ptr<Bucket> bucket, FindBucket(name));
    auto record = std::make_shared<const ObjectRecord>(
        ObjectRecord{std::move(attributes), std::move(etag), content->size(), NowNs()});
    StoredObject replaced;  // destroyed without the lock
    std::lock_guard lock(bucket->mutex);
    if (bucket->deleted) return NoSuchBucket(name);
    const auto found = bucket->objects.find(key);
    RETURN_IF_ERROR(check(found == bucket->objects.end() ? nullptr : found->second.record.get()));
    replaced = std::exchange(bucket->objects[key], StoredObject{record, std::move(content)});
    return record;
  }

  absl::Status Delete(const std::string& name, const std::string& key, Check check) override {
    ASSIGN_OR_RETURN(const std::shared_ptr<Bucket> bucket, FindBucket(name));
    StoredObject removed;  // destroyed without the lock
    std::lock_guard lock(bucket->mutex);
    const auto found = bucket->objects.find(key);
    RETURN_IF_ERROR(check(found == bucket->objects.end() ? nullptr : found->second.record.get()));
    if (found == bucket->objects.end()) return absl::OkStatus();
    removed = std::move(found->second);
    bucket->objects.erase(found);
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> CreateUpload(Upload upload) override {
    RETURN_IF_ERROR(CheckBucket(upload.bucket));
    upload.id = RandomHex(16);
    upload.initiated_ns = NowNs();
    std::string id = upload.id;
    uploads_.Insert(std::move(upload));
    return id;
  }

  absl::Status PutPart(const std::string& upload_id, int number, std::shared_ptr<Content> content,
                       UploadPart part) override {
    part.modified_ns = NowNs();
    part.content = std::move(content);
    return uploads_.PutPart(upload_id, number, std::move(part)).status();
  }

  absl::StatusOr<Upload> FindUpload(const std::string& bucket, const std::string& key,
                                    const std::string& upload_id) override {
    return uploads_.Find(bucket, key, upload_id);
  }

  std::vector<Upload> Uploads(const std::string& bucket) override { return uploads_.List(bucket); }
  absl::Status RemoveUpload(const std::string& upload_id) override { return uploads_.Remove(upload_id); }

 private:
  absl::StatusOr<std::shared_ptr<Bucket>> FindBucket(const std::string& name) {
    std::shared_lock lock(mutex_);
    const auto found = buckets_.find(name);
    if (found == buckets_.end()) return NoSuchBucket(name);
    return found->second;
  }

  MemoryBudget budget_;  // outlives the blocks below
  std::shared_mutex mutex_;
  std::map<std::string, std::shared_ptr<Bucket>> buckets_;
  UploadTable uploads_;
};

}  // namespace

std::unique_ptr<Storage> MakeMemStorage(uint64_t limit_bytes) {
  return std::make_unique<MemStorage>(limit_bytes);
}

}  // namespace millrace
