#include "channel/checkpoint_mirror.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "absl/time/clock.h"
#include "base/counted.h"
#include "store/blocking.h"
#include "transfer/sync.h"

namespace millrace {

namespace {

absl::Status FirstOf(const BulkReport& report) {
  if (report.failed == 0) return absl::OkStatus();
  const auto& [uri, status] = *report.failures.begin();
  return absl::Status(status.code(), fmt::format("{} could not be copied; the first: {}",
                                                 Counted(report.failed, "checkpoint file"), ToStd(status.message())));
}

/// Whether another try would meet the same errors: such a file is never there, however long others wait for it.
bool AreLasting(const BulkReport& report) {
  return report.failed == report.failures.size() && std::ranges::all_of(report.failures, [](const auto& failure) {
           return absl::IsPermissionDenied(failure.second) || absl::IsInvalidArgument(failure.second);
         });
}

bool CameLater(const ObjectInfo& object, ObjectStore& store, const std::string& key) {
  const absl::StatusOr<ObjectInfo> there = HeadBlocking(store, key);
  return !there.ok() || object.modified_ms > there->modified_ms;
}

}  // namespace

absl::StatusOr<BulkReport> RestoreCheckpoints(const Location& from, const Location& to, const std::stop_token& stop) {
  BulkJob copies({.stop = stop});
  const absl::Status compared = CompareFolders(from, to, {.stop = stop}, [&](const SyncStep& step) {
    if (step.kind != SyncStep::Kind::kCopy) return absl::OkStatus();
    // What is there may be of a job that did not get so far as to send it. Uploads are always later than their files.
    if (step.why == "newer") return absl::OkStatus();
    if (step.why == "size differs" && !CameLater(*step.object, *to.store, step.key)) return absl::OkStatus();
    return copies.Copy(*from.store, *step.object, *to.store, step.key);
  });
  const BulkJob::Reports reports = copies.Finish();
  RETURN_IF_ERROR(FirstOf(reports.copied));
  RETURN_IF_ERROR(compared);
  if (stop.stop_requested()) return absl::CancelledError("interrupted");
  return reports.copied;
}

CheckpointMirror::CheckpointMirror(Location folder, Location place, CheckpointMirrorOptions options)
    : folder_(std::move(folder)), place_(std::move(place)), options_(std::move(options)), thread_([this] { Run(); }) {}

CheckpointMirror::~CheckpointMirror() {
  End();
}

void CheckpointMirror::End() {
  stop_.request_stop();
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  ended_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void CheckpointMirror::Run() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, options_.interval, [this] { return over_; })) {
    lock.unlock();
    const absl::Status status = Round(options_.settled, stop_.get_token());
    const std::string why(ToStd(status.message()));
    // A file that is written to while it is copied is an error of that round only.
    if (!status.ok() && !absl::IsCancelled(status) && !absl::IsFailedPrecondition(status) && said_.insert(why).second)
      options_.say(fmt::format("checkpoints are not sent, and tried again: {}", why));
    lock.lock();
  }
}

// In three turns, each when all of the one before is there: what lies in folders, what lies beside them, and of that
// the file that was changed last. Programs write the one that names the others ("latest") last and beside them; it must
// never name what is not there yet. A file that cannot be copied at all holds back only that last one.
absl::Status CheckpointMirror::Send(std::vector<Changed> files, const std::stop_token& stop) {
  const auto turn_of = [this](const Changed& file) {
    return file.key.find('/', place_.prefix.size()) == std::string::npos ? 1 : 0;
  };
  std::ranges::stable_sort(files, {}, [&](const Changed& file) {
    return std::pair(turn_of(file), turn_of(file) == 0 ? 0 : file.file.modified_ms);
  });
  absl::Status failed;
  for (size_t begin = 0; begin < files.size();) {
    size_t end = begin + 1;
    while (end < files.size() && turn_of(files[end]) == turn_of(files[begin]) &&
           (end + 1 < files.size() || turn_of(files[end]) == 0)) {
      ++end;
    }
    if (!failed.ok() && end == files.size()) break;
    BulkJob copies({.copied = [this](const ObjectInfo& file, const std::string& key,
                                     const ObjectInfo&) { sent_[key] = file.etag; },
                    .stop = stop});
    absl::Status given;
    for (size_t i = begin; i < end && given.ok(); ++i) {
      given = copies.Copy(*folder_.store, files[i].file, *place_.store, files[i].key);
    }
    const BulkReport report = copies.Finish().copied;
    failed.Update(FirstOf(report));
    if (!AreLasting(report)) return failed;
    RETURN_IF_ERROR(given);
    if (stop.stop_requested()) return absl::CancelledError("interrupted");
    begin = end;
  }
  return failed;
}

absl::Status CheckpointMirror::Round(std::chrono::milliseconds settled, const std::stop_token& stop) {
  const int64_t before_ms = absl::ToUnixMillis(absl::Now()) - settled.count();
  std::vector<Changed> changed;
  const absl::Status compared = CompareFolders(folder_, place_, {.stop = stop}, [&](const SyncStep& step) {
    if (step.kind == SyncStep::Kind::kRemove) return absl::OkStatus();
    const auto known = sent_.find(step.key);
    // Times do not tell all: a file may be written anew, with its old size, while it is uploaded.
    const bool same = known == sent_.end() ? step.kind == SyncStep::Kind::kKeep : known->second == step.object->etag;
    if (!same && settled.count() > 0 && step.object->modified_ms > before_ms) return absl::OkStatus();
    if (same) {
      sent_[step.key] = step.object->etag;
    } else {
      changed.push_back({*step.object, step.key});
    }
    return absl::OkStatus();
  });
  RETURN_IF_ERROR(compared);
  RETURN_IF_ERROR(Send(std::move(changed), stop));
  return stop.stop_requested() ? absl::CancelledError("interrupted") : absl::OkStatus();
}

absl::Status CheckpointMirror::Finish(const std::stop_token& stop) {
  End();
  return Round(std::chrono::milliseconds(0), stop);
}

}  // namespace millrace
