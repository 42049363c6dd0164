#include "checkpoint/latest_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>
#include <vector>

#include "store/blocking.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxLatestBytes = 64 << 20;
constexpr int kMaxReads = 20;  // each time it was replaced between finding and reading it
constexpr const char* kJson = "application/json";

absl::StatusOr<CheckpointCatalog> Parse(const std::string& uri, std::string_view text) {
  absl::StatusOr<CheckpointCatalog> catalog = CheckpointCatalog::FromJson(text);
  if (!catalog.ok()) return Annotate(catalog.status(), uri);
  return catalog;
}

absl::Status Lost(const std::string& uri) {
  return absl::FailedPreconditionError(fmt::format("{}: another process has replaced it", uri));
}

}  // namespace

LatestFile::LatestFile(ObjectStore& store, const std::string& folder)
    : store_(store),
      key_(folder + "LATEST"),
      numbered_(store.traits().medium == StoreTraits::Medium::kFolder || !store.traits().holds_if_match) {}

absl::StatusOr<std::vector<LatestFile::Numbered>> LatestFile::ListNumbered(const std::stop_token& stop) const {
  std::vector<Numbered> found;
  const std::string prefix = key_ + ".";
  const absl::Status listed = ForEachPage(
      store_, prefix, "/",
      [&](const ListPage& page) {
        for (const ObjectInfo& object : page.objects) {
          const std::string_view digits = std::string_view(object.key).substr(prefix.size());
          Numbered entry{.object = object};
          const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), entry.number);
          if (error == std::errc() && end == digits.data() + digits.size()) found.push_back(std::move(entry));
        }
        return absl::OkStatus();
      },
      stop);
  if (!listed.ok() && !absl::IsNotFound(listed)) return listed;
  std::sort(found.begin(), found.end(), [](const Numbered& a, const Numbered& b) { return a.number < b.number; });
  return found;
}

absl::StatusOr<LatestRecord> LatestFile::ReadOnce(const std::stop_token& stop) const {
  ObjectInfo object;
  std::string version;
  if (numbered_) {
    ASSIGN_OR_RETURN(const std::vector<Numbered> all, ListNumbered(stop));
    if (all.empty()) return LatestRecord();
    object = all.back().object;
    version = std::to_string(all.back().number);
  } else {
    absl::StatusOr<ObjectInfo> head = HeadBlocking(store_, key_, stop);
    if (absl::IsNotFound(head.status())) return LatestRecord();
    if (!head.ok()) return head.status();
    object = *std::move(head);
    version = object.etag;
  }
  absl::StatusOr<std::string> text = ReadAll(store_, object, kMaxLatestBytes);
  if (absl::IsNotFound(text.status())) return Lost(store_.Uri(object.key));
  if (!text.ok()) return text.status();
  ASSIGN_OR_RETURN(CheckpointCatalog catalog, Parse(store_.Uri(object.key), *text));
  return LatestRecord{std::move(catalog), std::move(version)};
}

absl::StatusOr<LatestRecord> LatestFile::Read(const std::stop_token& stop) const {
  for (int i = 1;; ++i) {
    absl::StatusOr<LatestRecord> record = ReadOnce(stop);
    if (!absl::IsFailedPrecondition(record.status()) || i == kMaxReads) return record;
  }
}

absl::Status LatestFile::Replace(const CheckpointCatalog& catalog, const std::string& version) {
  const std::string text = catalog.ToJson();
  if (numbered_) return ReplaceNumbered(text, version);
  return conditional_ ? ReplaceObject(text, version) : ReplaceUnguarded(text, version);
}

absl::Status LatestFile::ReplaceObject(const std::string& text, const std::string& version) const {
  PutOptions options{.content_type = kJson, .only_if_absent = version.empty(), .if_match = version};
  const absl::Status put = PutBlocking(store_, key_, AsBytes(text), std::move(options)).status();
  // If-Match on an object that is gone is NotFound, if the bucket is there: reading says what holds.
  const bool lost = absl::IsAlreadyExists(put) || (absl::IsNotFound(put) && !version.empty());
  return lost ? Lost(Uri()) : put;
}

absl::Status LatestFile::ReplaceNumbered(const std::string& text, const std::string& version) const {
  uint64_t number = 0;
  std::from_chars(version.data(), version.data() + version.size(), number);
  ++number;
  const std::string key = fmt::format("{}.{:012}", key_, number);
  const absl::Status put = PutBlocking(store_, key, AsBytes(text), {.only_if_absent = true}).status();
  if (absl::IsAlreadyExists(put)) return Lost(Uri());
  RETURN_IF_ERROR(put);
  ASSIGN_OR_RETURN(const std::vector<Numbered> all, ListNumbered({}));
  if (all.empty() || all.back().number != number) return Lost(Uri());
  // They are needed no more, and cost nothing but names if they stay.
  for (const Numbered& old : all) {
    if (old.number < number) DeleteBlocking(store_, old.object.key).IgnoreError();
  }
  return absl::OkStatus();
}

absl::Status LatestFile::ReplaceUnguarded(const std::string& text, const std::string& version) const {
  ASSIGN_OR_RETURN(const LatestRecord before, Read({}));
  if (before.version != version) return Lost(Uri());
  RETURN_IF_ERROR(PutBlocking(store_, key_, AsBytes(text), {.content_type = kJson}).status());
  ASSIGN_OR_RETURN(const LatestRecord after, Read({}));
  return after.catalog && after.catalog->ToJson() == text ? absl::OkStatus() : Lost(Uri());
}

absl::StatusOr<bool> LatestFile::FindOutConditions(const CheckpointCatalog& catalog) {
  if (numbered_) return true;
  const std::string text = catalog.ToJson();
  PutOptions absent{.content_type = kJson, .only_if_absent = true};
  const absl::Status first = PutBlocking(store_, key_, AsBytes(text), std::move(absent)).status();
  PutOptions other{.content_type = kJson, .if_match = "00000000000000000000000000000000"};
  const absl::Status second = PutBlocking(store_, key_, AsBytes(text), std::move(other)).status();
  if (first.ok() || second.ok()) return false;
  if (!absl::IsAlreadyExists(first) && !absl::IsFailedPrecondition(first)) return first;
  if (!absl::IsFailedPrecondition(second) && !absl::IsNotFound(second)) return second;
  return true;
}

}  // namespace millrace
