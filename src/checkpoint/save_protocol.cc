#include "checkpoint/save_protocol.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace millrace {

namespace {

// Each failed try means that another process was quicker. That ends soon: a process claims once.
constexpr int kMaxTries = 20;

absl::Status Unsure(const absl::Status& error) {
  return absl::Status(error.code(), fmt::format("{}; it is not known whether it was written", ToStd(error.message())));
}

bool Names(const CheckpointCatalog& catalog, const CheckpointEntry& entry) {
  return std::any_of(catalog.entries.begin(), catalog.entries.end(),
                     [&](const CheckpointEntry& other) { return other.attempt == entry.attempt; });
}

}  // namespace

std::vector<CheckpointAttempt> Supersede(CheckpointCatalog& catalog, const Retention& retention) {
  std::vector<CheckpointAttempt> superseded;
  if (retention.keep == 0 || catalog.entries.size() <= retention.keep) return superseded;
  const size_t newest = catalog.entries.size() - retention.keep;
  std::vector<CheckpointEntry> remain;
  for (size_t i = 0; i < catalog.entries.size(); ++i) {
    CheckpointEntry& entry = catalog.entries[i];
    const bool is_named =
        std::find(retention.keep_steps.begin(), retention.keep_steps.end(), entry.step) != retention.keep_steps.end();
    if (i >= newest || is_named || (retention.keep_every != 0 && entry.step % retention.keep_every == 0)) {
      remain.push_back(std::move(entry));
    } else {
      superseded.push_back({entry.step, entry.attempt});
    }
  }
  catalog.entries = std::move(remain);
  return superseded;
}

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
  const bool all_remain = job_.retention.keep == 0 || job_.retention.keep_every != 0;
  if (!all_remain || catalog.entries.size() < kMaxCheckpoints) return absl::OkStatus();
  return absl::ResourceExhaustedError(fmt::format(
      "there are {} checkpoints already; set keep without keep_every, so that the oldest ones go", kMaxCheckpoints));
}

void SaveProtocol::OnLatest(absl::StatusOr<LatestRecord> latest) {
  if (!unsure_.ok()) return AfterUnsure(latest);
  if (!failed_.ok()) {
    absl::Status allowed = latest.ok() ? CheckWriter(*latest) : absl::OkStatus();
    return Fail(allowed.ok() ? std::move(failed_) : std::move(allowed));
  }
  if (!latest.ok()) return Fail(latest.status());
  // An answer may have been lost, and the request may have been repeated.
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
  for (CheckpointAttempt& old : Supersede(catalog, job_.retention)) superseded_.push_back(std::move(old));
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

// LATEST may show why, unless the store is silent.
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

void RetainProtocol::End(absl::Status status) {
  status_ = std::move(status);
  step_ = Step::kDone;
}

void RetainProtocol::OnLatest(absl::StatusOr<LatestRecord> latest) {
  superseded_.clear();
  if (!latest.ok()) return End(latest.status());
  if (!latest->catalog) return End(absl::NotFoundError("there is no checkpoint"));
  catalog_ = *std::move(latest->catalog);
  version_ = std::move(latest->version);
  if (!catalog_.conditional_writes) {
    return End(absl::FailedPreconditionError(
        "this store ignores the conditions of writes, so that a commit within the same moment would be lost; let the "
        "training remove old checkpoints (keep=)"));
  }
  superseded_ = Supersede(catalog_, retention_);
  step_ = superseded_.empty() ? Step::kDone : Step::kWriteLatest;
}

void RetainProtocol::OnWritten(absl::Status status) {
  if (status.ok()) {
    step_ = Step::kRemove;
  } else if (absl::IsFailedPrecondition(status) && ++tries_ <= kMaxTries) {
    step_ = Step::kReadLatest;
  } else {  // LATEST may have been replaced, or be replaced later: what it names or named stays
    superseded_.clear();
    End(absl::IsFailedPrecondition(status) ? std::move(status) : Unsure(status));
  }
}

void RetainProtocol::OnRemoved() {
  step_ = Step::kDone;
}

}  // namespace millrace
