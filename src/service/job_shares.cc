#include "service/job_shares.h"

#include <algorithm>
#include <utility>

namespace millrace {

uint64_t JobShares::UsedBy(const std::string& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? 0 : found->second;
}

uint64_t JobShares::ShareOf(const std::string& job) const {
  return total_ / std::max<uint64_t>(1, jobs_.size() + (jobs_.contains(job) ? 0 : 1));
}

std::optional<std::string> JobShares::NewestOverShare(const std::string& but, uint64_t share) const {
  std::optional<std::string> newest;
  uint64_t number = 0;
  for (const auto& [name, session] : sessions_) {
    if (session.job == but || UsedBy(session.job) <= share) continue;
    if (newest && session.number < number) continue;
    newest = name;
    number = session.number;
  }
  return newest;
}

JobShares::Admission JobShares::Admit(const std::string& job, const std::string& session, uint64_t bytes) {
  const uint64_t share = ShareOf(job);
  if (bytes > total_) return {};
  // The first one of a job is served, however large its streams are.
  const bool within_share = UsedBy(job) + bytes <= share || UsedBy(job) == 0;
  JobShares then = *this;  // nothing is closed in vain
  Admission admission;
  while (bytes > total_ - then.used_) {
    const std::optional<std::string> other = within_share ? then.NewestOverShare(job, share) : std::nullopt;
    if (!other) return {};
    admission.closed.push_back(*other);
    then.Release(*other);
  }
  admission.admitted = true;
  then.used_ += bytes;
  then.sessions_[session] = {job, bytes, then.next_++};
  if (bytes > 0) then.jobs_[job] += bytes;
  *this = std::move(then);
  return admission;
}

void JobShares::Release(const std::string& session) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  used_ -= found->second.bytes;
  const auto job = jobs_.find(found->second.job);
  if (job != jobs_.end() && (job->second -= found->second.bytes) == 0) jobs_.erase(job);
  sessions_.erase(found);
}

}  // namespace millrace
