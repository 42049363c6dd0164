#include "s3/calls.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "s3/bucket_name.h"
#include "s3/checksum.h"

namespace millrace {

namespace {

template <typename Result>
class CallExchange final : public S3Exchange {
 public:
  enum class About { kAccount, kBucket, kObject };
  struct Call {
    std::string_view verb;
    About about = About::kObject;
    absl::Status arguments = {};                                    // what is wrong with them
    Draft draft = {};                                               // the request
    std::function<absl::StatusOr<Result>(std::string_view)> parse;  // if it fails, the call is made again
    std::function<absl::Status(const Result&)> check = {};          // if it fails, so does the call
    std::function<bool(const Failure&)> means_none = {};            // an error that says that there is nothing
    bool session = true;                                            // signed by that of a directory bucket
  };

  CallExchange(S3Context& context, std::string bucket, std::string key, Call call,
               absl::AnyInvocable<void(absl::StatusOr<Result>)> done)
      : S3Exchange(context, call.verb, std::move(bucket), std::move(key)),
        call_(std::move(call)),
        done_(std::move(done)) {}

 private:
  bool NeedsBucket() const override { return call_.about != About::kAccount; }
  bool NeedsKey() const override { return call_.about == About::kObject; }
  bool UsesSession() const override { return call_.session; }
  absl::Status CheckArguments() override { return call_.arguments; }
  Draft MakeDraft() override { return call_.draft; }

  S3Step OnSuccess(HttpResult result, absl::Time now) override {
    absl::StatusOr<Result> parsed = call_.parse(result.text);
    if (!parsed.ok()) return RetryGarbled(parsed.status(), now);
    result_ = *std::move(parsed);
    const absl::Status sane = call_.check ? call_.check(result_) : absl::OkStatus();
    return sane.ok() ? Succeed() : Fail(sane.code(), ToStd(sane.message()));
  }

  std::optional<S3Step> OnFailure(const Failure& failure, absl::Time) override {
    if (call_.means_none && call_.means_none(failure)) return Succeed();
    return std::nullopt;
  }

  void Deliver(absl::Status status) override {
    if (!status.ok()) return done_(std::move(status));
    done_(std::move(result_));
  }

  const Call call_;
  absl::AnyInvocable<void(absl::StatusOr<Result>)> done_;
  Result result_;
};

using ListCall = CallExchange<ListPage>;
using ListBucketsCall = CallExchange<BucketPage>;
using ListUploadsCall = CallExchange<UploadPage>;
using TagsCall = CallExchange<ObjectTags>;
using CreateMultipartCall = CallExchange<std::string>;
using CreateSessionCall = CallExchange<ExpiringCredentials>;

absl::Status NotBelow(std::string_view what, std::string_view name, const std::string& prefix) {
  return absl::DataLossError(
      fmt::format("the store lists {} \"{}\", which does not begin with the requested prefix \"{}\"; nothing "
                  "of this page is used; check the store and any proxy in front of it",
                  what, name.substr(0, 1024), prefix));
}

// A name beyond the prefix would be read, overwritten or removed as if it were below it.
absl::Status CheckNames(const ListPage& page, const ListOptions& options) {
  for (const ObjectInfo& object : page.objects) {
    if (!object.key.starts_with(options.prefix)) return NotBelow("the key", object.key, options.prefix);
    const absl::Status sane = CheckObjectBytes(object.size);
    if (!sane.ok()) return Annotate(sane, object.key);
  }
  for (const std::string& prefix : page.common_prefixes) {
    if (!prefix.starts_with(options.prefix)) return NotBelow("the prefix", prefix, options.prefix);
    // A walk through folders cuts off the prefix and the delimiter.
    if (prefix.size() > options.prefix.size() && prefix.ends_with(options.delimiter)) continue;
    return absl::DataLossError(
        fmt::format("the store lists \"{}\" as a folder below the prefix \"{}\", which it is not; check the store "
                    "and any proxy in front of it",
                    prefix.substr(0, 1024), options.prefix));
  }
  return absl::OkStatus();
}

/// Returns the prefix of a request for a listing. Prefixes in directory buckets are folders.
std::string PrefixAsked(const std::string& bucket, const std::string& prefix) {
  return IsDirectoryBucket(bucket) ? prefix.substr(0, prefix.rfind('/') + 1) : prefix;
}

/// Parses a page of a folder, without names that do not begin with the prefix.
absl::StatusOr<ListPage> ParseWithin(std::string_view text, const std::string& prefix) {
  ASSIGN_OR_RETURN(ListPage page, ParseListXml(text));
  std::erase_if(page.objects, [&](const ObjectInfo& object) { return !object.key.starts_with(prefix); });
  std::erase_if(page.common_prefixes, [&](const std::string& folder) { return !folder.starts_with(prefix); });
  return page;
}

absl::Status CheckUploads(const UploadPage& page, const std::string& prefix, const UploadMarker& after) {
  for (const UnfinishedUpload& upload : page.uploads) {
    if (!upload.key.starts_with(prefix)) return NotBelow("an upload of", upload.key, prefix);
  }
  if (!page.more || page.next.key > after.key ||
      (page.next.key == after.key && page.next.upload_id != after.upload_id)) {
    return absl::OkStatus();
  }
  return absl::DataLossError("the store lists the same page of uploads again and again");
}

}  // namespace

std::unique_ptr<S3Exchange> NewListExchange(S3Context& context, std::string bucket, ListOptions options,
                                            ListCallback done) {
  ListCall::Call call{.verb = "LIST", .about = ListCall::About::kBucket, .parse = ParseListXml};
  if (options.max_keys < 1) call.arguments = absl::InvalidArgumentError("max_keys must be at least 1");
  call.draft.method = "GET";
  call.draft.counter = &context.counters.list;
  auto& query = call.draft.query;
  query = {
      {"list-type", "2"}, {"encoding-type", "url"}, {"max-keys", std::to_string(std::min(options.max_keys, 1000))}};
  const std::string asked = PrefixAsked(bucket, options.prefix);
  if (!asked.empty()) query.emplace_back("prefix", asked);
  if (asked != options.prefix)
    call.parse = [prefix = options.prefix](std::string_view text) { return ParseWithin(text, prefix); };
  if (IsDirectoryBucket(bucket)) options.start_after.clear();  // its keys come in no order
  if (!options.delimiter.empty()) query.emplace_back("delimiter", options.delimiter);
  if (!options.continuation.empty()) {
    query.emplace_back("continuation-token", options.continuation);
  } else if (!options.start_after.empty()) {
    query.emplace_back("start-after", options.start_after);
  }
  std::string prefix = options.prefix;
  call.check = [options = std::move(options)](const ListPage& page) { return CheckNames(page, options); };
  return std::make_unique<ListCall>(context, std::move(bucket), std::move(prefix), std::move(call), std::move(done));
}

std::unique_ptr<S3Exchange> NewListBucketsExchange(S3Context& context, std::string continuation, BucketsCallback done) {
  ListBucketsCall::Call call{.verb = "LIST", .about = ListBucketsCall::About::kAccount, .parse = ParseBucketsXml};
  call.draft.method = "GET";
  call.draft.counter = &context.counters.list;
  // Without a size of pages S3 lists all; a store that has pages all the same is asked for the next one.
  if (!continuation.empty()) call.draft.query = {{"continuation-token", continuation}};
  call.check = [continuation = std::move(continuation)](const BucketPage& page) {
    if (page.continuation.empty() || page.continuation != continuation) return absl::OkStatus();
    return absl::DataLossError("the store lists the same page of buckets again and again");
  };
  return std::make_unique<ListBucketsCall>(context, "", "", std::move(call), std::move(done));
}

std::unique_ptr<S3Exchange> NewListUploadsExchange(S3Context& context, std::string bucket, std::string prefix,
                                                   UploadMarker after, UploadsCallback done) {
  ListUploadsCall::Call call{.verb = "LIST", .about = ListUploadsCall::About::kBucket, .parse = ParseUploadsXml};
  call.draft.method = "GET";
  call.draft.counter = &context.counters.list;
  // The request does not have encoding-type: Ceph RADOS Gateway encodes the keys then, and does not say so.
  call.draft.query = {{"uploads", ""}, {"max-uploads", "1000"}};
  const std::string asked = PrefixAsked(bucket, prefix);
  if (!asked.empty()) call.draft.query.emplace_back("prefix", asked);
  if (asked != prefix) {
    call.parse = [prefix](std::string_view text) -> absl::StatusOr<UploadPage> {
      ASSIGN_OR_RETURN(UploadPage page, ParseUploadsXml(text));
      std::erase_if(page.uploads, [&](const UnfinishedUpload& upload) { return !upload.key.starts_with(prefix); });
      return page;
    };
  }
  if (!after.key.empty()) {
    call.draft.query.emplace_back("key-marker", after.key);
    if (!after.upload_id.empty()) call.draft.query.emplace_back("upload-id-marker", after.upload_id);
  }
  call.check = [prefix, after = std::move(after)](const UploadPage& page) { return CheckUploads(page, prefix, after); };
  return std::make_unique<ListUploadsCall>(context, std::move(bucket), std::move(prefix), std::move(call),
                                           std::move(done));
}

std::unique_ptr<S3Exchange> NewTagsExchange(S3Context& context, std::string bucket, std::string key,
                                            TagsCallback done) {
  TagsCall::Call call{.verb = "GetObjectTagging", .parse = [](std::string_view text) -> absl::StatusOr<ObjectTags> {
                        if (text.empty()) return ObjectTags();
                        return ParseTaggingXml(text);
                      }};
  call.draft.method = "GET";
  call.draft.counter = &context.counters.head;  // about an object, not of its bytes
  call.draft.query = {{"tagging", ""}};
  call.means_none = [](const auto& failure) {
    const bool unknown =
        failure.http_status == 501 || failure.http_status == 405 || failure.body.code == "NotImplemented";
    return unknown || failure.body.code == "NoSuchTagSet";
  };
  return std::make_unique<TagsCall>(context, std::move(bucket), std::move(key), std::move(call), std::move(done));
}

std::unique_ptr<S3Exchange> NewCreateSessionExchange(S3Context& context, std::string bucket,
                                                     CreateSessionCallback done) {
  CreateSessionCall::Call call{
      .verb = "CreateSession", .about = CreateSessionCall::About::kBucket, .parse = ParseCreateSessionXml};
  call.draft.method = "GET";
  call.draft.counter = &context.counters.list;
  call.draft.query = {{"session", ""}};
  AddEncryption(call.draft.headers, context.config);
  call.session = false;
  return std::make_unique<CreateSessionCall>(context, std::move(bucket), "", std::move(call), std::move(done));
}

std::unique_ptr<S3Exchange> NewCreateMultipartExchange(S3Context& context, std::string bucket, std::string key,
                                                       UploadOptions options,
                                                       absl::AnyInvocable<void(absl::StatusOr<std::string>)> done) {
  CreateMultipartCall::Call call{.verb = "CreateMultipartUpload", .parse = ParseInitiateMultipartXml};
  call.draft.method = "POST";
  call.draft.counter = &context.counters.put;
  call.draft.query = {{"uploads", ""}};
  HttpHeaders& headers = call.draft.headers;
  if (!options.content_type.empty()) headers.Add("Content-Type", options.content_type);
  for (const auto& [name, value] : options.headers) headers.Add(name, value);
  AddEncryption(headers, context.config, bucket);
  if (options.checksum && context.config.checksum_uploads) {
    headers.Add("x-amz-checksum-algorithm", std::string(ChecksumKindName(context.config.upload_checksum)));
    headers.Add("x-amz-checksum-type", "FULL_OBJECT");
  }
  return std::make_unique<CreateMultipartCall>(context, std::move(bucket), std::move(key), std::move(call),
                                               std::move(done));
}

}  // namespace millrace
