#include "channel/checkpoint_mirror.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/time/clock.h"
#include "base/counted.h"
#include "store/blocking.h"
#include "transfer/sync.h"

namespace millrace {

namespace {

// Files that may name others are read whole before all else.
constexpr uint64_t kMaxEarlyBytes = 1 << 20;
constexpr size_t kMaxEarlyFiles = 100;
// Up to this size a file that is being changed is looked at again, until it stays the same while it is read.
constexpr uint64_t kMaxWholeBytes = 8 << 20;
// A file of this size that is new, or written again, is a large one that is being written. A part of it is of no use.
constexpr uint64_t kLargeBytes = 64 << 20;

bool WasChanged(const absl::Status& status) {
  return absl::IsFailedPrecondition(status) || absl::IsOutOfRange(status);
}

absl::Status FirstOf(const BulkReport& report) {
  if (report.failed == 0) return absl::OkStatus();
  if (report.failures.empty()) return absl::FailedPreconditionError("files were removed while they were copied");
  const auto& [uri, status] = *report.failures.begin();
  return absl::Status(status.code(), fmt::format("{} could not be copied; the first: {}",
                                                 Counted(report.failed, "checkpoint file"), ToStd(status.message())));
}

// Returns true if the error concerns one file and not the place: other files are sent all the same. The file may not be
// read, its key is not possible, or it was changed or removed since it was looked at.
bool IsOfOneFile(const absl::Status& status) {
  return absl::IsPermissionDenied(status) || absl::IsInvalidArgument(status) || absl::IsNotFound(status) ||
         WasChanged(status);
}

// Returns true if a program has removed the file since it was looked at. That is no failure.
bool WasRemoved(const std::pair<const std::string, absl::Status>& failure) {
  return absl::IsNotFound(failure.second) && access(failure.first.c_str(), F_OK) != 0;
}

bool AreOfSingleFiles(const BulkReport& report) {
  return report.failed == report.failures.size() &&
         std::ranges::all_of(report.failures, [](const auto& failure) { return IsOfOneFile(failure.second); });
}

bool CameLater(const ObjectInfo& object, ObjectStore& store, const std::string& key) {
  const absl::StatusOr<ObjectInfo> there = HeadBlocking(store, key);
  return !there.ok() || object.modified_ms > there->modified_ms;
}

}  // namespace

absl::StatusOr<BulkReport> RestoreCheckpoints(const Location& from, const Location& to, const std::stop_token& stop) {
  const bool links_too = to.store->traits().is_folder();
  CheckpointLinks links;
  std::vector<std::pair<ObjectInfo, std::string>> wanted;  // and where it goes
  const absl::Status compared = CompareFolders(from, to, {.stop = stop}, [&](const SyncStep& step) {
    if (step.kind == SyncStep::Kind::kRemove) return absl::OkStatus();
    const std::string_view name = std::string_view(step.object->key).substr(from.prefix.size());
    if (links_too && name.ends_with(kLinkSuffix)) {
      ASSIGN_OR_RETURN(std::string target, ReadAll(*from.store, *step.object, kMaxLinkBytes));
      links[std::string(name.substr(0, name.size() - kLinkSuffix.size()))] = {std::move(target),
                                                                              step.object->modified_ms};
      return absl::OkStatus();
    }
    // The file there may be one of a job that ended before it could send the file. Uploads are always later than their
    // files.
    if (step.kind != SyncStep::Kind::kCopy || step.why == "newer") return absl::OkStatus();
    if (step.why == "size differs" && !CameLater(*step.object, *to.store, step.key)) return absl::OkStatus();
    wanted.emplace_back(*step.object, step.key);
    return absl::OkStatus();
  });
  BulkJob copies({.stop = stop});
  absl::Status given = compared;
  for (const auto& [object, key] : wanted) {
    // Files behind a link are also at the place that the link leads to.
    if (!given.ok() || IsBehindLink(links, std::string_view(key).substr(to.prefix.size()))) continue;
    given = copies.Copy(*from.store, object, *to.store, key);
  }
  BulkReport copied = copies.Finish().copied;
  RETURN_IF_ERROR(FirstOf(copied));
  if (stop.stop_requested()) return absl::CancelledError("interrupted");
  RETURN_IF_ERROR(given);
  for (const auto& [name, link] : links) {
    const size_t slash = name.rfind('/');
    if (slash != name.npos && IsBehindLink(links, std::string_view(name).substr(0, slash))) continue;
    ASSIGN_OR_RETURN(const bool made, RestoreLink(to.store->Uri(to.prefix), name, link));
    if (made) ++copied.objects;
  }
  return copied;
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
    const bool overdue = held_since_ && std::chrono::steady_clock::now() - *held_since_ >= options_.most_held;
    const absl::Status status = Round(overdue ? Urgency::kAllAsItIs : Urgency::kWhatHasSettled, stop_.get_token());
    const std::string why(ToStd(status.message()));
    // A file that is written to while it is copied is an error of that round only: the next but one sends it as it is.
    if (!status.ok() && !absl::IsCancelled(status) && !WasChanged(status) && said_.insert(why).second)
      options_.say(fmt::format("checkpoints are not sent, and tried again: {}", why));
    lock.lock();
  }
}

std::string CheckpointMirror::KeyOfLink(const std::string& name) const {
  return place_.Key(name + std::string(kLinkSuffix));
}

bool CheckpointMirror::IsSent(const std::string& name, const CheckpointLink& link) const {
  const auto known = sent_.find(KeyOfLink(name));
  return known != sent_.end() && known->second == link.target;
}

bool CheckpointMirror::IsBesideFolders(const std::string& key) const {
  return key.find('/', place_.prefix.size()) == std::string::npos;
}

bool CheckpointMirror::MayBeUnfinished(int64_t modified_ms) const {
  return options_.settled.count() > 0 && modified_ms > absl::ToUnixMillis(absl::Now()) - options_.settled.count();
}

// ---- What there is

// Files that may name others are read before the others: the files that they name then were complete already.
void CheckpointMirror::ReadEarly(Found& found) const {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::directory_iterator at(folder_.store->Uri(folder_.prefix), error);
  for (const fs::directory_iterator end; !error && at != end; at.increment(error)) {
    struct stat info {};
    if (found.early.size() == kMaxEarlyFiles) return;
    if (lstat(at->path().c_str(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (static_cast<uint64_t>(info.st_size) > kMaxEarlyBytes) continue;
    absl::StatusOr<SeenContent> content = ReadUnchanged(at->path(), kMaxEarlyBytes);
    if (content.ok()) found.early[place_.Key(at->path().filename().string())] = *std::move(content);
  }
}

absl::Status CheckpointMirror::Look(Found& found, const std::stop_token& stop) {
  const std::string folder = folder_.store->Uri(folder_.prefix);
  std::set<std::string> gone;
  unsent_.clear();
  const auto wanted = [&](std::string_view name) { return !IsBehindLink(found.links, name); };
  absl::Status compared = CompareFolders(folder_, place_, {.wanted = wanted, .stop = stop}, [&](const SyncStep& step) {
    if (step.kind == SyncStep::Kind::kRemove) {
      if (!step.key.ends_with(kLinkSuffix)) return absl::OkStatus();
      std::string name = step.key.substr(place_.prefix.size());
      name.resize(name.size() - kLinkSuffix.size());
      if (found.links.contains(name) || IsLinkWithin(folder, name)) return absl::OkStatus();
      struct stat info {};
      // Programs replace a link by removing it and making another one. Those of other hosts are their business.
      const bool is_there = lstat((folder + name).c_str(), &info) == 0;
      if (!is_there && errno != ENOENT && errno != ENOTDIR) return absl::OkStatus();
      if (is_there || gone_.contains(step.key)) found.stale.push_back(step.key);
      if (!is_there && sent_.contains(step.key)) gone.insert(step.key);
      return absl::OkStatus();
    }
    const auto known = sent_.find(step.key);
    // Times do not tell all: a file may be written again, with its old size, while it is uploaded.
    const bool same = known == sent_.end() ? step.kind == SyncStep::Kind::kKeep : known->second == step.object->etag;
    if (same) {
      sent_[step.key] = step.object->etag;
    } else {
      unsent_.insert(step.key);
      found.changed.push_back({.file = *step.object,
                               .key = step.key,
                               .unsettled = MayBeUnfinished(step.object->modified_ms),
                               .there = step.kept == nullptr ? std::nullopt : std::optional(step.kept->size)});
    }
    return absl::OkStatus();
  });
  gone_ = std::move(gone);
  std::erase_if(found.changed, [&](const Changed& file) {
    const bool is_none = !IsFileOfItsOwn(folder, file.file.key.substr(folder_.prefix.size()));
    if (is_none) unsent_.erase(file.key);
    return is_none;
  });
  return compared;
}

// True if the file is being written, and a copy of it would be a part of it, perhaps in place of a whole one. A file
// that is smaller than at the place is written again in place. Small files, such as lists, may become smaller: they
// count only while they grow.
bool CheckpointMirror::IsHalfWritten(const Changed& file) {
  if (!file.unsettled) return false;
  const uint64_t size = file.file.size;
  const auto before = sizes_.find(file.key);
  const bool grows = before != sizes_.end() && before->second < size;
  if (!file.there) return size >= kLargeBytes && grows;
  if (size >= *file.there) return size >= kLargeBytes && rewritten_.contains(file.key);
  rewritten_.insert(file.key);
  return *file.there >= kMaxEarlyBytes || grows || before == sizes_.end() || before->second >= *file.there;
}

// Leaves the files that are sent in this round.
void CheckpointMirror::HoldBack(Found& found, Urgency urgency) {
  std::map<std::string, uint64_t> sizes;
  std::set<std::string> held;  // folders that a file of theirs holds back
  const auto folder_of = [this](const Changed& file) {
    return file.key.substr(0, file.key.find('/', place_.prefix.size()));
  };
  for (const Changed& file : found.changed) {
    if (!file.unsettled) continue;
    sizes[file.key] = file.file.size;
    held.insert(folder_of(file));
  }
  std::set<std::string> half_written;
  for (const Changed& file : found.changed) {
    if (IsHalfWritten(file)) half_written.insert(file.key);
  }
  const auto waits = [&](const Changed& file) {
    if (urgency == Urgency::kLast) return false;
    return urgency == Urgency::kWhatHasSettled ? held.contains(folder_of(file)) : half_written.contains(file.key);
  };
  const bool settles = urgency == Urgency::kWhatHasSettled;
  found.holds_back = settles && std::ranges::any_of(found.changed, [&](const Changed& file) {
                       return waits(file) && !IsBesideFolders(file.key);
                     });
  const size_t links = std::erase_if(found.links, [&](const auto& link) {
    return settles && !IsSent(link.first, link.second) && MayBeUnfinished(link.second.modified_ms);
  });
  const bool any = links + std::erase_if(found.changed, waits) > 0;
  sizes_ = std::move(sizes);
  if (!any || !settles) {
    held_since_.reset();
  } else if (!held_since_) {
    held_since_ = std::chrono::steady_clock::now();
  }
}

// ---- Sending

void CheckpointMirror::OnSent(const std::string& key, std::string version) {
  sent_[key] = std::move(version);
  unsent_.erase(key);
  rewritten_.erase(key);
}

// FailedPrecondition if it has fewer bytes than `min_bytes`: it is being written again.
absl::Status CheckpointMirror::SendAsItIs(const Changed& file, uint64_t min_bytes, const Found& found,
                                          const std::stop_token& stop) {
  const auto send = [&](const SeenContent& content) {
    if (content.bytes.size() < min_bytes)
      return absl::FailedPreconditionError(fmt::format("{}: became shorter before it was copied", file.file.key));
    PutOptions options;
    options.stop = stop;
    RETURN_IF_ERROR(PutBlocking(*place_.store, file.key, AsBytes(content.bytes), options).status());
    OnSent(file.key, content.version);
    return absl::OkStatus();
  };
  const auto early = found.early.find(file.key);
  if (early != found.early.end()) return send(early->second);
  const std::string path = folder_.store->Uri(file.file.key);
  if (file.file.size <= kMaxWholeBytes) {
    ASSIGN_OR_RETURN(const SeenContent content, ReadUnchanged(path, kMaxWholeBytes));
    return send(content);
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<ObjectWriter> writer, place_.store->Write(file.key, {.stop = stop}));
  ASSIGN_OR_RETURN(const std::string version, AppendFile(path, min_bytes, *writer));
  RETURN_IF_ERROR(writer->Commit().status());
  OnSent(file.key, version);
  return absl::OkStatus();
}

absl::Status CheckpointMirror::SendTurn(std::span<const Changed> files, Urgency urgency, const Found& found,
                                        const std::stop_token& stop) {
  BulkJob copies(
      {.copied = [this](const ObjectInfo& file, const std::string& key, const ObjectInfo&) { OnSent(key, file.etag); },
       .stop = stop});
  absl::Status given;
  std::vector<const Changed*> as_they_are;
  for (const Changed& file : files) {
    if (urgency == Urgency::kAllAsItIs && file.unsettled) {
      as_they_are.push_back(&file);
    } else if (given.ok()) {
      given = copies.Copy(*folder_.store, file.file, *place_.store, file.key);
    }
  }
  BulkReport report = copies.Finish().copied;
  report.failed -= std::erase_if(report.failures, WasRemoved);
  absl::Status failed = FirstOf(report);
  if (!AreOfSingleFiles(report)) return failed;
  RETURN_IF_ERROR(given);
  const auto was_changed = [](const auto& failure) { return WasChanged(failure.second); };
  if (urgency == Urgency::kLast && std::ranges::any_of(report.failures, was_changed)) {
    failed = absl::OkStatus();
    for (const Changed& file : files) {  // a process that was left behind still writes
      if (unsent_.contains(file.key)) as_they_are.push_back(&file);
    }
  }
  for (const Changed* file : as_they_are) {
    if (stop.stop_requested()) break;
    // A file that was whole may be written again by now.
    const uint64_t min_bytes = urgency == Urgency::kLast ? 0 : std::min(file->file.size, file->there.value_or(0));
    absl::Status status = SendAsItIs(*file, min_bytes, found, stop);
    if (WasRemoved({folder_.store->Uri(file->file.key), status})) continue;
    if (!status.ok() && !IsOfOneFile(status)) return status;
    failed.Update(status);
  }
  return failed;
}

// Returns true if the place has the file or folder of this name, with all that is below it. The name ends with '/'.
bool CheckpointMirror::IsThere(const std::string& folder) const {
  const std::string key = place_.Key(folder);
  const auto below = unsent_.lower_bound(key);
  return !unsent_.contains(key.substr(0, key.size() - 1)) && (below == unsent_.end() || !below->starts_with(key));
}

absl::Status CheckpointMirror::SendLinks(const Found& found, const std::stop_token& stop) {
  PutOptions options;
  options.stop = stop;
  for (const auto& [name, link] : found.links) {
    if (IsSent(name, link)) continue;
    if (!IsThere((std::filesystem::path(name).parent_path() / link.target / "").lexically_normal())) continue;
    const std::string key = KeyOfLink(name);
    RETURN_IF_ERROR(PutBlocking(*place_.store, key, AsBytes(link.target), options).status());
    sent_[key] = link.target;
  }
  for (const std::string& key : found.stale) {
    RETURN_IF_ERROR(DeleteBlocking(*place_.store, key));
    sent_.erase(key);
  }
  return absl::OkStatus();
}

// Sends in turns, each when all files of the one before are there. Files in folders come first, then those beside them.
// The file beside them that was changed last comes at the end, since it may name the others. Neither it nor a link must
// ever name a file that is not there yet. A link waits only for its target. A file that cannot be copied at all holds
// back only these.
absl::Status CheckpointMirror::Send(const Found& found, Urgency urgency, const std::stop_token& stop) {
  std::vector<Changed> files = found.changed;
  std::ranges::stable_sort(files, {}, [this](const Changed& file) {
    const bool beside = IsBesideFolders(file.key);
    return std::pair(beside, beside ? file.file.modified_ms : 0);
  });
  const auto beside = std::ranges::find_if(files, [this](const Changed& file) { return IsBesideFolders(file.key); });
  const auto last = beside == files.end() ? files.end() : files.end() - 1;
  absl::Status failed;
  for (const std::span<const Changed> turn :
       {std::span<const Changed>(files.begin(), beside), std::span<const Changed>(beside, last)}) {
    absl::Status status = SendTurn(turn, urgency, found, stop);
    if (stop.stop_requested()) return absl::CancelledError("interrupted");
    if (!status.ok() && !IsOfOneFile(status)) return status;
    failed.Update(status);
  }
  if (failed.ok() && !found.holds_back) failed = SendTurn({last, files.end()}, urgency, found, stop);
  if (!failed.ok() && !IsOfOneFile(failed)) return failed;
  failed.Update(SendLinks(found, stop));
  return failed;
}

absl::Status CheckpointMirror::Round(Urgency urgency, const std::stop_token& stop) {
  Found found{.links = FindLinks(folder_.store->Uri(folder_.prefix))};
  if (urgency == Urgency::kAllAsItIs) ReadEarly(found);
  RETURN_IF_ERROR(Look(found, stop));
  HoldBack(found, urgency);
  RETURN_IF_ERROR(Send(found, urgency, stop));
  return stop.stop_requested() ? absl::CancelledError("interrupted") : absl::OkStatus();
}

absl::Status CheckpointMirror::Finish(const std::stop_token& stop) {
  End();
  return Round(Urgency::kLast, stop);
}

}  // namespace millrace
