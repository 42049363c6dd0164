#include "checkpoint/latest_file.h"

#include <fmt/format.h>

#include <utility>

#include "store/blocking.h"

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

absl::Status Lost(const std::string& uri) {
  return absl::FailedPreconditionError(fmt::format("{}: another process has replaced it", uri));
}

}  // namespace

LatestFile::LatestFile(ObjectStore& store, const std::string& folder)
    : store_(store), key_(folder + "LATEST"), document_(store, key_, kMaxLatestBytes) {}

absl::StatusOr<LatestRecord> LatestFile::Read(const std::stop_token& stop) const {
  ASSIGN_OR_RETURN(VersionedDocument::Version read, document_.Read(stop));
  if (read.version.empty()) return LatestRecord();
  ASSIGN_OR_RETURN(CheckpointCatalog catalog, Parse(Uri(), read.text));
  return LatestRecord{std::move(catalog), std::move(read.version)};
}

absl::Status LatestFile::Replace(const CheckpointCatalog& catalog, const std::string& version) {
  const std::string text = catalog.ToJson();
  if (conditional_ || document_.numbered()) {
    const absl::Status replaced = document_.Replace(text, version);
    // A store that knows no conditions may refuse them with HTTP 400 or 501.
    if (!absl::IsInvalidArgument(replaced) || document_.numbered()) return replaced;
    conditional_ = false;
  }
  return ReplaceUnguarded(text, version);
}

absl::Status LatestFile::ReplaceUnguarded(const std::string& text, const std::string& version) const {
  ASSIGN_OR_RETURN(const LatestRecord before, Read({}));
  if (before.version != version) return Lost(Uri());
  RETURN_IF_ERROR(PutBlocking(store_, key_, AsBytes(text), {.content_type = kJson}).status());
  ASSIGN_OR_RETURN(const LatestRecord after, Read({}));
  return after.catalog && after.catalog->ToJson() == text ? absl::OkStatus() : Lost(Uri());
}

absl::StatusOr<bool> LatestFile::FindOutConditions() const {
  if (document_.numbered()) return true;
  if (!conditional_) return false;
  const std::string key = key_ + kProbeEnding;
  const auto put = [&](PutOptions options) {
    options.content_type = "text/plain";
    return PutBlocking(store_, key, AsBytes(kProbeText), std::move(options)).status();
  };
  absl::Status first = put({.only_if_absent = true});
  if (first.ok()) first = put({.only_if_absent = true});  // now there is one
  const absl::Status second = put({.if_match = "00000000000000000000000000000000"});
  for (const absl::Status& status : {first, second}) {
    if (status.ok() || absl::IsInvalidArgument(status)) return false;
    const bool held = absl::IsAlreadyExists(status) || absl::IsFailedPrecondition(status) || absl::IsNotFound(status);
    if (!held) return status;
  }
  return true;
}

}  // namespace millrace
