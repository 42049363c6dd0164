#include "store/s3_copy.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "aws/sigv4.h"
#include "base/log.h"
#include "s3/error.h"
#include "store/checks.h"
#include "store/s3_upload.h"

namespace millrace {

namespace {

absl::Status CheckSame(const S3CopySource& from, const ObjectInfo& now) {
  return CheckMatch(fmt::format("s3://{}/{}", from.bucket, from.key), from.etag, now.etag);
}

// Writes them as a query: "team=a%20b&stage=train".
std::string TagsHeader(const ObjectTags& tags) {
  std::string header;
  for (const auto& [name, value] : tags) {
    if (!header.empty()) header.push_back('&');
    header.append(UriEncode(name, /*keep_slash=*/false)).append("=").append(UriEncode(value, /*keep_slash=*/false));
  }
  return header;
}

/// The callbacks of its requests hold it.
class PartsCopy : public std::enable_shared_from_this<PartsCopy> {
 public:
  PartsCopy(S3Client& client, S3CopySource from, std::string bucket, std::string key, CopyOptions options,
            const S3CopyParts& parts, PutCallback done)
      : client_(client),
        from_(std::move(from)),
        bucket_(std::move(bucket)),
        key_(std::move(key)),
        options_(std::move(options)),
        only_if_absent_(options_.only_if_absent),
        part_(CopyPartSize(from_.size, parts)),
        at_once_(parts.at_once),
        etags_((from_.size + part_ - 1) / part_),
        done_(std::move(done)) {}

  void Begin() {
    client_.Describe(from_.bucket, from_.key, [self = shared_from_this()](absl::StatusOr<ObjectDescription> source) {
      if (!source.ok()) return self->done_(std::move(source).status());
      if (self->from_.etag.empty()) self->from_.etag = source->info.etag;
      absl::Status same = CheckSame(self->from_, source->info);
      if (!same.ok()) return self->done_(std::move(same));
      self->AddTags(*std::move(source));
    });
  }

 private:
  // CopyObject takes them along; an upload is given them when it is begun.
  void AddTags(ObjectDescription source) {
    client_.Tags(from_.bucket, from_.key,
                 [self = shared_from_this(), source = std::move(source)](absl::StatusOr<ObjectTags> tags) mutable {
                   // Without the permission to read them it is also unknown whether there are any.
                   if (absl::IsPermissionDenied(tags.status())) {
                     Log(LogLevel::kWarning, "store",
                         fmt::format("{}: copied without tags, if s3://{}/{} has any: these credentials may not read "
                                     "them (s3:GetObjectTagging)",
                                     self->Uri(), self->from_.bucket, self->from_.key));
                     tags = ObjectTags();
                   }
                   if (!tags.ok()) return self->done_(std::move(tags).status());
                   if (!tags->empty()) source.headers.emplace_back("x-amz-tagging", TagsHeader(*tags));
                   self->Create(std::move(source));
                 });
  }

  void Create(ObjectDescription source) {
    // The request has no stop: an upload whose id does not arrive cannot be aborted.
    client_.CreateMultipart(
        bucket_, key_,
        {.content_type = std::move(source.content_type), .headers = std::move(source.headers), .checksum = false},
        [self = shared_from_this()](absl::StatusOr<std::string> id) {
          if (!id.ok()) return self->done_(std::move(id).status());
          self->upload_id_ = *std::move(id);
          self->StartParts();
        });
  }

  void StartParts() {
    std::unique_lock lock(mutex_);
    GoOn(std::move(lock));
  }

  void OnPart(size_t index, absl::StatusOr<ObjectInfo> copied) {
    if (copied.ok() && options_.moved) options_.moved(copied->size);
    std::unique_lock lock(mutex_);
    --in_flight_;
    if (copied.ok()) {
      etags_[index] = std::move(copied->etag);
    } else {
      status_.Update(copied.status());
    }
    GoOn(std::move(lock));
  }

  // Starts as many parts as may be in flight. The lock is held from the end of a part on, so that just one of them sees
  // that it was the last.
  void GoOn(std::unique_lock<std::mutex> lock) {
    if (status_.ok() && options_.stop.stop_requested())
      status_ = absl::CancelledError(fmt::format("{}: the copy was cancelled", Uri()));
    std::vector<size_t> begun;
    while (status_.ok() && next_ < etags_.size() && in_flight_ < at_once_) {
      begun.push_back(next_++);
      ++in_flight_;
    }
    const bool ended = in_flight_ == 0;
    lock.unlock();
    if (ended) return status_.ok() ? Confirm() : Abort();
    for (const size_t index : begun) Start(index);
  }

  void Start(size_t index) {
    const uint64_t offset = index * part_;
    client_.UploadPartCopy(
        bucket_, key_, upload_id_, static_cast<int>(index) + 1, from_,
        ByteRange{offset, std::min(part_, from_.size - offset)},
        [self = shared_from_this(), index](absl::StatusOr<ObjectInfo> copied) {
          self->OnPart(index, std::move(copied));
        },
        options_.stop);
  }

  // Not every store holds the condition of the parts: of two versions a mixture would come out.
  void Confirm() {
    client_.Head(from_.bucket, from_.key, [self = shared_from_this()](const absl::StatusOr<ObjectInfo>& source) {
      self->status_ = source.ok() ? CheckSame(self->from_, *source) : source.status();
      return self->status_.ok() ? self->Complete() : self->Abort();
    });
  }

  void Complete() {
    client_.CompleteMultipart(
        bucket_, key_, upload_id_, etags_,
        [self = shared_from_this()](absl::StatusOr<ObjectInfo> info) {
          if (std::exchange(self->only_if_absent_, false) && S3CodeOf(info.status()) == "NotImplemented")
            return self->Complete();
          if (!info.ok()) {
            self->status_ = std::move(info).status();
            return self->Abort();
          }
          info->size = self->from_.size;
          self->done_(std::move(info));
        },
        CompleteOptions{.only_if_absent = only_if_absent_});
  }

  void Abort() {
    client_.AbortMultipart(bucket_, key_, upload_id_, [self = shared_from_this()](const absl::Status& aborted) {
      if (!aborted.ok()) {
        Log(LogLevel::kWarning, "store",
            fmt::format("{}: the parts of an unfinished copy stay in the bucket until it is aborted: {}", self->Uri(),
                        ToStd(aborted.message())));
      }
      self->done_(self->status_);
    });
  }

  std::string Uri() const { return fmt::format("s3://{}/{}", bucket_, key_); }

  S3Client& client_;
  S3CopySource from_;
  const std::string bucket_;
  const std::string key_;
  const CopyOptions options_;
  bool only_if_absent_;
  const uint64_t part_;
  const int at_once_;
  std::string upload_id_;

  std::mutex mutex_;  // while parts are in flight; before and after one callback has it alone
  size_t next_ = 0;
  int in_flight_ = 0;
  absl::Status status_;
  std::vector<std::string> etags_;
  PutCallback done_;
};

}  // namespace

uint64_t CopyPartSize(uint64_t size, const S3CopyParts& parts) {
  return std::max(parts.part, (size + kMaxParts - 1) / kMaxParts);
}

void CopyOnS3(S3Client& client, S3CopySource from, std::string bucket, std::string key, CopyOptions options,
              const S3CopyParts& parts, PutCallback done) {
  if (from.size > parts.largest_whole) {
    std::make_shared<PartsCopy>(client, std::move(from), std::move(bucket), std::move(key), std::move(options), parts,
                                std::move(done))
        ->Begin();
    return;
  }
  std::stop_token stop = options.stop;
  auto finish = [moved = std::move(options.moved), done = std::move(done)](absl::StatusOr<ObjectInfo> info) mutable {
    if (info.ok() && moved) moved(info->size);
    done(std::move(info));
  };
  client.Copy(
      std::move(bucket), std::move(key), from,
      [&client, from, finish = std::move(finish)](absl::StatusOr<ObjectInfo> info) mutable {
        // The copy of an object of one piece has the ETag of its source. Other copies have another one, and a store may
        // ignore the condition. In these cases, HEAD of the source shows whether it is still the same.
        if (!info.ok() || from.etag.empty() || info->etag == from.etag) return finish(std::move(info));
        client.Head(from.bucket, from.key,
                    [from, copied = *std::move(info),
                     finish = std::move(finish)](const absl::StatusOr<ObjectInfo>& source) mutable {
                      const absl::Status same = source.ok() ? CheckSame(from, *source) : source.status();
                      finish(same.ok() ? absl::StatusOr<ObjectInfo>(std::move(copied)) : same);
                    });
      },
      std::move(stop), options.only_if_absent);
}

}  // namespace millrace
