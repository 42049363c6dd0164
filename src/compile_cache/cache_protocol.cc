#include "compile_cache/cache_protocol.h"

#include <fmt/format.h>

#include <algorithm>

namespace millrace {

namespace {

constexpr int kMaxStartTries = 20;    // each time another host was quicker, and then it compiles
constexpr int kMaxPublishTries = 40;  // many hosts may end within the same moment

}  // namespace

void StartProtocol::End(Outcome outcome, absl::Status status) {
  outcome_ = outcome;
  status_ = std::move(status);
  step_ = Step::kDone;
}

void StartProtocol::OnRead(absl::StatusOr<CacheVersion> read, Milliseconds now) {
  if (!read.ok()) return End(Outcome::kFailed, read.status());
  record_ = std::move(read->record);
  version_ = std::move(read->version);
  if (record_.publications > 0) return End(Outcome::kWarm);
  if (!record_.lease) return Take();
  if (record_.lease->holder == job_.lease.holder) return End(Outcome::kCompile);  // an answer was lost
  WaitFor(*record_.lease, now);
}

void StartProtocol::WaitFor(const CompileLease& lease, Milliseconds now) {
  if (!began_) began_ = now;
  if (!watched_ || !(*watched_ == lease)) {
    watched_ = lease;
    watched_since_ = now;
  }
  other_host_ = lease.host;
  const Milliseconds term(std::min<uint64_t>(lease.term_ms, 24 * 3600 * 1000));
  if (now - watched_since_ >= term) return Take();
  if (now - *began_ >= job_.limit) return End(Outcome::kTimedOut);
  pause_ = std::min({job_.poll, watched_since_ + term - now, *began_ + job_.limit - now});
  step_ = Step::kWait;
}

void StartProtocol::Take() {
  if (!unsure_.ok()) return End(Outcome::kFailed, unsure_);
  if (++tries_ > kMaxStartTries) {
    return End(Outcome::kFailed, absl::UnavailableError("the lease is taken by other processes again and again"));
  }
  if (record_.about.empty()) record_.about = job_.about;
  record_.lease = job_.lease;
  step_ = Step::kWrite;
}

void StartProtocol::OnWritten(absl::Status status) {
  if (status.ok()) return End(Outcome::kCompile);
  if (!absl::IsFailedPrecondition(status)) unsure_ = std::move(status);
  other_host_.clear();
  step_ = Step::kRead;
}

void StartProtocol::OnWaited() {
  step_ = Step::kRead;
}

PublishProtocol::PublishProtocol(Job job) : job_(std::move(job)) {
  for (const CachedFile& file : job_.refused) refused_.emplace(file.path, file);
}

void PublishProtocol::End(absl::Status status) {
  status_ = std::move(status);
  step_ = Step::kDone;
}

void PublishProtocol::OnRead(absl::StatusOr<CacheVersion> read) {
  if (!read.ok()) return End(read.status());
  read_ = std::move(read->record);
  version_ = std::move(read->version);
  Merge();
  std::set<std::string> there;
  for (const CachedFile& file : read_.files) {
    const auto refused = refused_.find(file.path);
    if (refused == refused_.end() || refused->second.sha256 != file.sha256) there.insert(file.sha256);
  }
  to_upload_.clear();
  std::set<std::string> chosen;
  for (const CachedFile& file : merged_.files) {
    const bool missing = !there.contains(file.sha256) && !uploaded_.contains(file.sha256);
    if (missing && chosen.insert(file.sha256).second) to_upload_.push_back(file);
  }
  if (!to_upload_.empty()) {
    step_ = Step::kUpload;
    return;
  }
  const bool same = merged_.files == read_.files && merged_.lease == read_.lease;
  // The first publication tells those who wait, even if nothing was compiled.
  if (same && (!job_.publishes || read_.publications > 0)) return End(absl::OkStatus());
  step_ = Step::kWrite;
}

void PublishProtocol::Merge() {
  merged_ = read_;
  if (merged_.about.empty()) merged_.about = job_.about;
  if (merged_.lease && merged_.lease->holder == job_.holder) merged_.lease.reset();
  std::set<std::string> without;  // groups
  for (const CachedFile& file : read_.files) {
    const auto refused = refused_.find(file.path);
    if (refused != refused_.end() && refused->second.sha256 == file.sha256) without.insert(CacheGroup(file.path));
  }
  std::erase_if(merged_.files, [&](const CachedFile& file) { return without.contains(CacheGroup(file.path)); });
  if (!job_.publishes) return;
  ++merged_.publications;
  std::set<std::string> incomplete;
  for (const CachedFile& file : job_.files) {
    if (failed_.contains(file.sha256)) incomplete.insert(CacheGroup(file.path));
  }
  std::set<std::string> groups;  // that are there: a group is stored by one host
  for (const CachedFile& file : merged_.files) groups.insert(CacheGroup(file.path));
  std::vector<CachedFile> more;
  for (const CachedFile& file : job_.files) {
    const std::string group = CacheGroup(file.path);
    const bool alone = group == file.path;
    if (incomplete.contains(group) || merged_.Find(file.path) != nullptr) continue;
    if (alone || !groups.contains(group)) more.push_back(file);
  }
  merged_.files.insert(merged_.files.end(), more.begin(), more.end());
  std::sort(merged_.files.begin(), merged_.files.end(),
            [](const CachedFile& a, const CachedFile& b) { return a.path < b.path; });
  Evict();
  added_ = static_cast<uint64_t>(std::count_if(more.begin(), more.end(), [&](const CachedFile& file) {
    const CachedFile* const kept = merged_.Find(file.path);
    return kept != nullptr && *kept == file;
  }));
}

void PublishProtocol::Evict() {
  struct Group {
    uint64_t stored_ms = 0;  // of its newest file
    uint64_t bytes = 0;
    size_t files = 0;
  };
  uint64_t bytes = merged_.Bytes();
  size_t files = merged_.files.size();
  if (bytes <= job_.max_bytes && files <= kMaxCachedFiles) return;
  std::map<std::string, Group> groups;
  for (const CachedFile& file : merged_.files) {
    Group& group = groups[CacheGroup(file.path)];
    group.stored_ms = std::max(group.stored_ms, file.stored_ms);
    group.bytes += file.bytes;
    ++group.files;
  }
  std::vector<const std::pair<const std::string, Group>*> oldest_first;
  for (const auto& group : groups) oldest_first.push_back(&group);
  std::stable_sort(oldest_first.begin(), oldest_first.end(),
                   [](const auto* a, const auto* b) { return a->second.stored_ms < b->second.stored_ms; });
  std::set<std::string> gone;
  for (const auto* const group : oldest_first) {
    if (bytes <= job_.max_bytes && files <= kMaxCachedFiles) break;
    bytes -= group->second.bytes;
    files -= group->second.files;
    gone.insert(group->first);
  }
  std::erase_if(merged_.files, [&](const CachedFile& file) { return gone.contains(CacheGroup(file.path)); });
}

void PublishProtocol::OnUploaded(const std::set<std::string>& failed) {
  for (const CachedFile& file : to_upload_) uploaded_.insert(file.sha256);
  if (failed.empty()) {
    step_ = Step::kWrite;
    return;
  }
  failed_.insert(failed.begin(), failed.end());
  Merge();
  step_ = Step::kWrite;
}

void PublishProtocol::OnWritten(absl::Status status) {
  if (absl::IsFailedPrecondition(status) && ++tries_ <= kMaxPublishTries) {
    step_ = Step::kRead;
    return;
  }
  if (!status.ok()) return End(std::move(status));
  std::set<std::string> kept;
  for (const CachedFile& file : merged_.files) kept.insert(file.sha256);
  to_remove_.clear();
  for (const CachedFile& file : read_.files) {
    if (!kept.contains(file.sha256)) to_remove_.insert(file.sha256);
  }
  step_ = to_remove_.empty() ? Step::kDone : Step::kRemove;
}

void PublishProtocol::OnRemoved() {
  step_ = Step::kDone;
}

}  // namespace millrace
