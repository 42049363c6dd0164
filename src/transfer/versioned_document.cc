#include "transfer/versioned_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "base/number.h"
#include "store/blocking.h"

namespace millrace {

namespace {

constexpr int kMaxDocumentReads = 20;  // each time it was replaced between finding and reading it
// So many listings in a row without a version of it: then there is none. A listing that is interrupted while another
// process makes the next version and removes the last one shows neither.
constexpr int kEmptyListings = 3;

}  // namespace

VersionedDocument::VersionedDocument(ObjectStore& store, std::string key, uint64_t max_bytes)
    : store_(store),
      key_(std::move(key)),
      max_bytes_(max_bytes),
      numbered_(store.traits().is_folder() || !store.traits().holds_if_match) {}

absl::Status VersionedDocument::Lost() const {
  return absl::FailedPreconditionError(fmt::format("{}: another process has replaced it", Uri()));
}

absl::StatusOr<std::vector<VersionedDocument::Numbered>> VersionedDocument::ListNumbered(
    const std::stop_token& stop) const {
  std::vector<Numbered> found;
  const std::string prefix = key_ + ".";
  const auto take = [&](const ListPage& page) {
    for (const ObjectInfo& object : page.objects) {
      const std::string_view digits = std::string_view(object.key).substr(prefix.size());
      Numbered entry{.object = object};
      if (ParseNumber(digits, &entry.number)) found.push_back(std::move(entry));
    }
    return absl::OkStatus();
  };
  const absl::Status listed = ForEachPage(store_, prefix, "/", take, stop);
  if (!listed.ok() && !absl::IsNotFound(listed)) return listed;
  std::sort(found.begin(), found.end(), [](const Numbered& a, const Numbered& b) { return a.number < b.number; });
  return found;
}

// The answer to a HEAD has no body that could distinguish a missing bucket from a missing object; that to a LIST has. A
// name that was mistyped must not look like a place where nothing was written yet.
absl::Status VersionedDocument::CheckBucket(const std::stop_token& stop) const {
  ListOptions options;
  options.prefix = key_.substr(0, key_.rfind('/') + 1);  // directory buckets take no other prefixes
  options.max_keys = 1;
  const absl::Status listed = ListBlocking(store_, std::move(options), stop).status();
  // Credentials need not be allowed to list.
  return absl::IsPermissionDenied(listed) ? absl::OkStatus() : listed;
}

absl::StatusOr<VersionedDocument::Version> VersionedDocument::ReadOnce(const std::stop_token& stop) const {
  ObjectInfo object;
  Version read;
  if (numbered_) {
    ASSIGN_OR_RETURN(const std::vector<Numbered> all, ListNumbered(stop));
    if (all.empty()) return Version();
    object = all.back().object;
    read.version = std::to_string(all.back().number);
  } else {
    absl::StatusOr<ObjectInfo> head = HeadBlocking(store_, key_, stop);
    if (absl::IsNotFound(head.status())) {
      RETURN_IF_ERROR(CheckBucket(stop));
      return Version();
    }
    if (!head.ok()) return head.status();
    object = *std::move(head);
    read.version = object.etag;
  }
  absl::StatusOr<std::string> text = ReadAll(store_, object, max_bytes_);
  if (absl::IsNotFound(text.status())) return Lost();
  if (!text.ok()) return text.status();
  read.text = *std::move(text);
  return read;
}

absl::StatusOr<VersionedDocument::Version> VersionedDocument::Read(const std::stop_token& stop) const {
  int absent = 0;
  for (int i = 1;; ++i) {
    absl::StatusOr<Version> read = ReadOnce(stop);
    if (numbered_ && read.ok() && read->version.empty() && ++absent < kEmptyListings) continue;
    if (!absl::IsFailedPrecondition(read.status()) || i == kMaxDocumentReads) return read;
  }
}

absl::Status VersionedDocument::Replace(const std::string& text, const std::string& version) const {
  if (numbered_) return ReplaceNumbered(text, version);
  PutOptions options{.content_type = "application/json", .only_if_absent = version.empty(), .if_match = version};
  const absl::Status put = PutBlocking(store_, key_, AsBytes(text), std::move(options)).status();
  // If-Match on an object that is gone is NotFound, if the bucket is there: reading says what holds.
  const bool lost = absl::IsAlreadyExists(put) || (absl::IsNotFound(put) && !version.empty());
  return lost ? Lost() : put;
}

absl::Status VersionedDocument::ReplaceNumbered(const std::string& text, const std::string& version) const {
  uint64_t number = 0;
  std::from_chars(version.data(), version.data() + version.size(), number);
  ++number;
  const std::string key = fmt::format("{}.{:012}", key_, number);
  const absl::Status put = PutBlocking(store_, key, AsBytes(text), {.only_if_absent = true}).status();
  if (absl::IsAlreadyExists(put)) return Lost();
  RETURN_IF_ERROR(put);
  ASSIGN_OR_RETURN(const std::vector<Numbered> all, ListNumbered({}));
  if (all.empty() || all.back().number != number) return Lost();
  // They are needed no more, and cost nothing but names if they stay.
  for (const Numbered& old : all) {
    if (old.number < number) DeleteBlocking(store_, old.object.key).IgnoreError();
  }
  return absl::OkStatus();
}

}  // namespace millrace
