#include "service/job_shares.h"

#include <algorithm>
#include <set>
#include <utility>

namespace millrace {
namespace {

constexpr double kRounding = 1.0 / 64;  // more than the rounding of doubles adds up to, and less than matters

}  // namespace

uint64_t JobShares::UsedBy(const std::string& job) const {
  const auto found = jobs_.find(job);
  return found == jobs_.end() ? 0 : found->second;
}

JobShares::Shares JobShares::SharesWith(const std::string& job, const std::string& peer) const {
  std::map<std::string, std::set<std::string>> jobs_of_peer;
  jobs_of_peer[peer].insert(job);
  for (const auto& [name, session] : sessions_) {
    if (session.bytes > 0) jobs_of_peer[session.peer].insert(session.job);
  }
  std::map<std::string, size_t> divisors;  // a job's weight is one n-th
  for (const auto& [name, jobs] : jobs_of_peer) {
    for (const std::string& each : jobs) {
      size_t& divisor = divisors.try_emplace(each, jobs.size()).first->second;
      divisor = std::min(divisor, jobs.size());
    }
  }
  std::map<size_t, size_t> jobs_of_divisor;
  for (const auto& [name, divisor] : divisors) ++jobs_of_divisor[divisor];
  double sum = 0;
  for (const auto& [divisor, jobs] : jobs_of_divisor) sum += static_cast<double>(jobs) / static_cast<double>(divisor);
  Shares shares;
  for (const auto& [name, divisor] : divisors) {
    // Fractions are not exact: a share that lacks a small part of a byte is a whole number of bytes.
    shares[name] =
        static_cast<uint64_t>(static_cast<double>(total_) / (sum * static_cast<double>(divisor)) + kRounding);
  }
  return shares;
}

uint64_t JobShares::ShareOf(const std::string& job, const std::string& peer) const {
  return SharesWith(job, peer).at(job);
}

std::optional<std::string> JobShares::NewestOverShare(const std::string& but, const Shares& shares) const {
  std::optional<std::string> newest;
  uint64_t number = 0;
  for (const auto& [name, session] : sessions_) {
    if (session.job == but || session.bytes == 0 || UsedBy(session.job) <= shares.at(session.job)) continue;
    if (newest && session.number < number) continue;
    newest = name;
    number = session.number;
  }
  return newest;
}

JobShares::Admission JobShares::Admit(const std::string& job, const std::string& peer, const std::string& session,
                                      uint64_t bytes) {
  const Shares shares = SharesWith(job, peer);
  if (bytes > total_) return {};
  // The first one of a job is served, however large its streams are; not so that of a host which has another job.
  const bool is_first = UsedBy(job) == 0 && std::ranges::none_of(sessions_, [&](const auto& each) {
                          return each.second.peer == peer && each.second.bytes > 0;
                        });
  const bool within_share = UsedBy(job) + bytes <= shares.at(job) || is_first;
  JobShares then = *this;  // nothing is closed in vain
  Admission admission;
  while (bytes > total_ - then.used_) {
    const std::optional<std::string> other = within_share ? then.NewestOverShare(job, shares) : std::nullopt;
    if (!other) return {};
    admission.closed.push_back(*other);
    then.Release(*other);
  }
  admission.admitted = true;
  then.used_ += bytes;
  then.sessions_[session] = {job, peer, bytes, then.next_++};
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
