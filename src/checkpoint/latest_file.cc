#include "checkpoint/latest_file.h"

#include <fmt/format.h>

#include <utility>

#include "store/blocking.h"

namespace millrace {

namespace {

constexpr uint64_t kMaxLatestBytes = 64 << 20;
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
    : store_(store), key_(folder + "LATEST"), document_(store, key_, kMaxLatestBytes) {}

absl::StatusOr<LatestRecord> LatestFile::Read(const std::stop_token& stop) const {
  ASSIGN_OR_RETURN(VersionedDocument::Version read, document_.Read(stop));
  if (read.version.empty()) return LatestRecord();
  ASSIGN_OR_RETURN(CheckpointCatalog catalog, Parse(Uri(), read.text));
  return LatestRecord{std::move(catalog), std::move(read.version)};
}

absl::Status LatestFile::Replace(const CheckpointCatalog& catalog, const std::string& version) {
  const std::string text = catalog.ToJson();
  return conditional_ || document_.numbered() ? document_.Replace(text, version) : ReplaceUnguarded(text, version);
}

absl::Status LatestFile::ReplaceUnguarded(const std::string& text, const std::string& version) const {
  ASSIGN_OR_RETURN(const LatestRecord before, Read({}));
  if (before.version != version) return Lost(Uri());
  RETURN_IF_ERROR(PutBlocking(store_, key_, AsBytes(text), {.content_type = kJson}).status());
  ASSIGN_OR_RETURN(const LatestRecord after, Read({}));
  return after.catalog && after.catalog->ToJson() == text ? absl::OkStatus() : Lost(Uri());
}

absl::StatusOr<bool> LatestFile::FindOutConditions(const CheckpointCatalog& catalog) {
  if (document_.numbered()) return true;
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
