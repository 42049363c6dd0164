#include "supervisor/group_board.h"

#include <fmt/format.h>

namespace millrace {

bool GroupBoard::OnReport(const std::string& host, const std::string& group, HostState state, int status, Time now) {
  if (!options_.groups.contains(group)) return false;
  Host& known = hosts_[host];
  known.group = group;
  known.state = state;
  known.status = status;
  known.heard = now;
  known.lost_told = false;
  Verdict(now);
  known.knows = verdict_.has_value();
  return true;
}

const std::optional<JobVerdict>& GroupBoard::Verdict(Time now) {
  if (verdict_) return verdict_;
  uint64_t there = 0;
  uint64_t succeeded = 0;
  for (const auto& [name, host] : hosts_) {
    if (host.state == HostState::kFailed) {
      verdict_ = {host.status == 0 ? 1 : host.status,
                  fmt::format("{} of group {} has failed with status {}", name, host.group, host.status)};
      return verdict_;
    }
    if (host.group != options_.main) continue;
    ++there;
    if (host.state == HostState::kSucceeded) {
      ++succeeded;
    } else if (IsLost(host, now)) {
      verdict_ = {options_.lost_status, fmt::format("nothing is heard of {} of group {}", name, host.group)};
      return verdict_;
    }
  }
  if (succeeded >= options_.main_hosts) {
    verdict_ = {0, fmt::format("group {} has succeeded", options_.main)};
  } else if (there < options_.main_hosts && now - begin_ > options_.appear_within) {
    verdict_ = {1, fmt::format("of {} hosts of group {} only {} have appeared within {} minutes", options_.main_hosts,
                               options_.main, there,
                               std::chrono::duration_cast<std::chrono::minutes>(options_.appear_within).count())};
  }
  return verdict_;
}

bool GroupBoard::AllKnow(Time now) const {
  if (!verdict_) return false;
  for (const auto& [name, host] : hosts_) {
    if (!host.knows && !IsLost(host, now)) return false;
  }
  return true;
}

std::set<std::string> GroupBoard::TakeLost(Time now) {
  std::set<std::string> lost;
  for (auto& [name, host] : hosts_) {
    if (host.group == options_.main || host.lost_told || !IsLost(host, now)) continue;
    host.lost_told = true;
    lost.insert(name);
  }
  return lost;
}

}  // namespace millrace
