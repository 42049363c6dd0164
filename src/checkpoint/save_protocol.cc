#include "checkpoint/save_protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace millrace {

namespace {

// Each time another process was quicker, which cannot go on for long: claims are made once in a process.
constexpr int kMaxTries = 20;

absl::Status Unsure(const absl::Status& error) {
  return absl::Status(error.code(), fmt::format("{}; it is not known whether it was written", ToStd(error.message())));
}

bool Names(const CheckpointCatalog& catalog, const CheckpointEntry& entry) {
  return std::any_of(catalog.entries.begin(), catalog.entries.end(),
                     [&](const CheckpointEntry& other) { return other.attempt == entry.attempt; });
}

}  // namespace

void ClaimProtocol::End(absl::Status status) {
  status_ = std::move(status);
  step_ = Step::kDone;
}

void ClaimProtocol::OnLatest(absl::StatusOr<LatestRecord> latest) {
  if (!latest.ok()) return End(unsure_.ok() ? latest.status() : Unsure(unsure_));
  if (latest->catalog && latest->catalog->writer.id == id_) {  // it was written although an error was answered
    catalog_ = *std::move(latest->catalog);
    return End(absl::OkStatus());
  }
  if (!unsure_.ok()) return End(unsure_);
  if (++tries_ > kMaxTries)
    return End(absl::UnavailableError("LATEST is replaced by other processes again and again; stop all but one"));
  catalog_ = latest->catalog ? *std::move(latest->catalog) : CheckpointCatalog();
  catalog_.writer = {catalog_.writer.epoch + 1, id_};
  version_ = std::move(latest->version);
  step_ = Step::kWriteLatest;
}

void ClaimProtocol::OnWritten(absl::Status status) {
  if (status.ok()) return End(absl::OkStatus());
  if (!absl::IsFailedPrecondition(status)) unsure_ = std::move(status);
  step_ = Step::kReadLatest;
}

absl::Status SaveProtocol::CheckWriter(const LatestRecord& latest) const {
  if (!latest.catalog) {
    return absl::FailedPreconditionError(
        "LATEST is gone: these checkpoints were removed while this process was writing them");
  }
  const CheckpointWriter& writer = latest.catalog->writer;
  if (writer.epoch == job_.writer.epoch && writer.id == job_.writer.id) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "another process has taken over these checkpoints (epoch {}; this process has {}), so this one commits no more; "
      "stop it",
      writer.epoch, job_.writer.epoch));
}

absl::Status SaveProtocol::CheckRoom(const CheckpointCatalog& catalog) const {
  if (job_.keep != 0 || catalog.entries.size() < kMaxCheckpoints) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      fmt::format("there are {} checkpoints already; set keep, so that the oldest ones go", kMaxCheckpoints));
}

void SaveProtocol::OnLatest(absl::StatusOr<LatestRecord> latest) {
  if (!unsure_.ok()) return AfterUnsure(latest);
  if (!failed_.ok()) {
    absl::Status allowed = latest.ok() ? CheckWriter(*latest) : absl::OkStatus();
    return Fail(allowed.ok() ? std::move(failed_) : std::move(allowed));
  }
  if (!latest.ok()) return Fail(latest.status());
  // An answer may have been lost, and the request been repeated.
  if (latest->catalog && Names(*latest->catalog, job_.entry)) return Committed();
  absl::Status allowed = CheckWriter(*latest);
  if (allowed.ok()) allowed = CheckRoom(*latest->catalog);
  if (!allowed.ok()) return Fail(std::move(allowed));
  version_ = std::move(latest->version);
  catalog_ = *std::move(latest->catalog);
  if (!manifest_written_) {
    uploading_ = true;
    step_ = Step::kUpload;
  } else {
    Commit(std::move(catalog_));
  }
}

void SaveProtocol::OnUploaded(absl::Status status) {
  if (!status.ok()) return FailedToWrite(std::move(status));
  step_ = Step::kWriteManifest;
}

void SaveProtocol::OnManifest(absl::StatusOr<CheckpointEntry> entry) {
  if (!entry.ok()) return FailedToWrite(entry.status());
  manifest_written_ = true;
  job_.entry = *std::move(entry);
  Commit(std::move(catalog_));
}

// Puts the checkpoint into the catalog, and takes out what it supersedes.
void SaveProtocol::Commit(CheckpointCatalog catalog) {
  superseded_.clear();
  const auto supersede = [&](const CheckpointEntry& entry) { superseded_.push_back({entry.step, entry.attempt}); };
  std::vector<CheckpointEntry>& entries = catalog.entries;
  for (auto entry = entries.begin(); entry != entries.end();) {
    if (entry->step != job_.entry.step) {
      ++entry;
      continue;
    }
    supersede(*entry);
    entry = entries.erase(entry);
  }
  entries.push_back(job_.entry);
  while (job_.keep != 0 && entries.size() > job_.keep) {
    supersede(entries.front());
    entries.erase(entries.begin());
  }
  catalog_ = std::move(catalog);
  step_ = Step::kWriteLatest;
}

void SaveProtocol::OnWritten(absl::Status status) {
  if (status.ok()) return Committed();
  if (!absl::IsFailedPrecondition(status)) {
    unsure_ = std::move(status);
  } else if (++tries_ > kMaxTries) {
    return Fail(std::move(status));
  }
  step_ = Step::kReadLatest;
}

// The request may still be on its way, so nothing is removed, whatever LATEST says now.
void SaveProtocol::AfterUnsure(const absl::StatusOr<LatestRecord>& latest) {
  if (latest.ok() && latest->catalog && Names(*latest->catalog, job_.entry)) return Committed();
  const absl::Status allowed = latest.ok() ? CheckWriter(*latest) : absl::OkStatus();
  Leave(allowed.ok() ? Unsure(unsure_) : allowed);
}

void SaveProtocol::Committed() {
  status_ = absl::OkStatus();
  to_remove_ = std::move(superseded_);
  step_ = to_remove_.empty() ? Step::kDone : Step::kRemove;
}

// LATEST may tell why, unless the store is silent.
void SaveProtocol::FailedToWrite(absl::Status status) {
  if (absl::IsUnavailable(status) || absl::IsCancelled(status)) return Fail(std::move(status));
  failed_ = std::move(status);
  step_ = Step::kReadLatest;
}

// It is certain that LATEST does not name it, and never will.
void SaveProtocol::Fail(absl::Status status) {
  status_ = std::move(status);
  to_remove_.clear();
  if (uploading_) to_remove_.push_back({job_.entry.step, job_.entry.attempt});
  step_ = to_remove_.empty() ? Step::kDone : Step::kRemove;
}

// It is not certain: what was uploaded stays.
void SaveProtocol::Leave(absl::Status status) {
  status_ = std::move(status);
  step_ = Step::kDone;
}

void SaveProtocol::OnRemoved() {
  step_ = Step::kDone;
}

}  // namespace millrace
