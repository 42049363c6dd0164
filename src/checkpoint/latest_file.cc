#include "checkpoint/latest_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "base/crypto.h"
#include "store/blocking.h"
#include "transfer/key_pattern.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxLatestBytes = 64 << 20;
constexpr const char* kJson = "application/json";
constexpr const char* kProbeEnding = ".conditions";  // behind LATEST
constexpr std::string_view kProbeText =
    "Millrace asks by this object whether the store holds the conditions of writes.\n";

absl::StatusOr<CheckpointCatalog> Parse(const std::string& uri, std::string_view text) {
  absl::StatusOr<CheckpointCatalog> catalog = CheckpointCatalog::FromJson(text);
  if (!catalog.ok()) return Annotate(catalog.status(), uri);
  return catalog;
}

// A copy is named "000000000003-000000000012-0123456789abcdef": the epoch, and the number among all copies. So the last
// key decides, and a process of an earlier epoch writes none that does.
constexpr size_t kDigits = 12;
constexpr size_t kIdBytes = 8;
constexpr size_t kKeptCopies = 3;
constexpr int kMaxReads = 20;  // each time newer copies were written before one was read

// Returns 0 for what is no copy.
uint64_t NumberOf(std::string_view name) {
  uint64_t epoch = 0;
  uint64_t number = 0;
  if (name.size() <= 2 * kDigits + 1 || name[kDigits] != '-') return 0;
  if (!absl::SimpleAtoi(ToAbsl(name.substr(0, kDigits)), &epoch)) return 0;
  return absl::SimpleAtoi(ToAbsl(name.substr(kDigits + 1, kDigits)), &number) ? number : 0;
}

}  // namespace

LatestFile::LatestFile(ObjectStore& store, const std::string& folder)
    : store_(store), key_(folder + "LATEST"), copies_(key_ + ".copies/"), document_(store, key_, kMaxLatestBytes) {}

absl::Status LatestFile::Lost() const {
  return absl::FailedPreconditionError(fmt::format("{}: another process has replaced it", Uri()));
}

absl::StatusOr<LatestRecord> LatestFile::Read(const std::stop_token& stop) const {
  ASSIGN_OR_RETURN(VersionedDocument::Version read, document_.Read(stop));
  if (read.version.empty()) return LatestRecord();
  ASSIGN_OR_RETURN(CheckpointCatalog catalog, Parse(Uri(), read.text));
  LatestRecord latest{std::move(catalog), std::move(read.version)};
  if (document_.numbered() || latest.catalog->conditional_writes) return latest;
  return NewestOf(std::move(latest), stop);
}

absl::StatusOr<std::vector<std::string>> LatestFile::ListCopies(const std::stop_token& stop) const {
  std::vector<std::string> keys;
  const auto take = [&](const ObjectInfo& object) {
    if (NumberOf(std::string_view(object.key).substr(copies_.size())) > 0) keys.push_back(object.key);
    return absl::OkStatus();
  };
  RETURN_IF_ERROR(ForEachObject(store_, copies_, take, stop));
  std::sort(keys.begin(), keys.end());  // not all stores list in order
  return keys;
}

// A version of Millrace that knows no copies has claimed the checkpoints if LATEST has a later epoch than they have.
absl::StatusOr<LatestRecord> LatestFile::NewestOf(LatestRecord latest, const std::stop_token& stop) const {
  for (int tries = 1;; ++tries) {
    ASSIGN_OR_RETURN(const std::vector<std::string> keys, ListCopies(stop));
    if (keys.empty()) return latest;
    const absl::StatusOr<std::string> text = ReadAll(store_, keys.back(), kMaxLatestBytes);
    if (absl::IsNotFound(text.status()) && tries < kMaxReads) continue;
    RETURN_IF_ERROR(text.status());
    ASSIGN_OR_RETURN(CheckpointCatalog copy, Parse(store_.Uri(keys.back()), *text));
    if (copy.writer.epoch < latest.catalog->writer.epoch) return latest;
    return LatestRecord{std::move(copy), keys.back()};
  }
}

absl::Status LatestFile::Replace(const CheckpointCatalog& catalog, const std::string& version) {
  if (!catalog.conditional_writes && !document_.numbered()) return ReplaceUnguarded(catalog, version);
  ASSIGN_OR_RETURN(const std::string object_version, ObjectVersion(version));
  return document_.Replace(catalog.ToJson(), object_version);
}

// Returns the version of LATEST if the given one is that of a copy: the store holds conditions by now.
absl::StatusOr<std::string> LatestFile::ObjectVersion(const std::string& version) const {
  if (!version.starts_with(copies_)) return version;
  ASSIGN_OR_RETURN(const VersionedDocument::Version object, document_.Read({}));
  ASSIGN_OR_RETURN(const LatestRecord now, Read({}));
  if (now.version != version) return Lost();
  return object.version;
}

absl::Status LatestFile::ReplaceUnguarded(const CheckpointCatalog& catalog, const std::string& version) {
  const std::string text = catalog.ToJson();
  ASSIGN_OR_RETURN(const LatestRecord before, Read({}));
  if (before.version != version) return Lost();
  ASSIGN_OR_RETURN(const std::vector<std::string> copies, ListCopies({}));
  for (const std::string& key : copies)
    copy_number_ = std::max(copy_number_, NumberOf(std::string_view(key).substr(copies_.size())));
  const std::string copy = fmt::format("{}{:0{}}-{:0{}}-{}", copies_, catalog.writer.epoch, kDigits, ++copy_number_,
                                       kDigits, RandomHex(kIdBytes));
  for (const std::string& key : {copy, key_}) {
    RETURN_IF_ERROR(PutBlocking(store_, key, AsBytes(text), {.content_type = kJson}).status());
  }
  ASSIGN_OR_RETURN(const LatestRecord after, Read({}));
  if (!after.catalog || after.catalog->ToJson() != text) return Lost();
  for (size_t i = 0; i + kKeptCopies <= copies.size(); ++i) DeleteBlocking(store_, copies[i]).IgnoreError();
  return absl::OkStatus();
}

absl::StatusOr<bool> LatestFile::FindOutConditions() const {
  if (document_.numbered()) return true;
  const std::string key = key_ + kProbeEnding;
  const auto put = [&](PutOptions options) {
    options.content_type = "text/plain";
    return PutBlocking(store_, key, AsBytes(kProbeText), std::move(options)).status();
  };
  absl::Status first = put({.only_if_absent = true});
  if (first.ok()) first = put({.only_if_absent = true});  // now there is one
  const absl::Status second = put({.if_match = "00000000000000000000000000000000"});
  for (const absl::Status& status : {first, second}) {
    // A store that knows no conditions may refuse them with HTTP 400 or 501.
    if (status.ok() || absl::IsInvalidArgument(status)) return false;
    const bool held = absl::IsAlreadyExists(status) || absl::IsFailedPrecondition(status) || absl::IsNotFound(status);
    if (!held) return status;
  }
  return true;
}

}  // namespace millrace
