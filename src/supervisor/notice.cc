#include "supervisor/notice.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "base/number.h"

namespace millrace {

namespace {

using nlohmann::json;

// The program is asked to save and to end this long before a scheduled event. EC2 announces such events days ahead.
constexpr absl::Duration kMaintenanceLead = absl::Minutes(5);
constexpr size_t kMaxWord = 64;
constexpr absl::Duration kAboutNow = absl::Seconds(10);
constexpr absl::Duration kKillWait = absl::Seconds(30);  // of Slurm, unless it is configured otherwise
constexpr uint64_t kMaxSeconds = uint64_t{1} << 40;

std::string TextOf(const json& object, const char* name) {
  const auto at = object.find(name);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

// Returns true for one word, as it is printed and given to programs.
bool IsWord(std::string_view text) {
  if (text.empty() || text.size() > kMaxWord) return false;
  for (const char c : text)
    if (!(c >= 'a' && c <= 'z') && !(c >= '0' && c <= '9') && c != '-') return false;
  return true;
}

std::optional<absl::Time> TimeOf(const std::string& format, const std::string& text) {
  absl::Time time;
  if (!absl::ParseTime(format, text, &time, nullptr)) return std::nullopt;
  return time;
}

absl::StatusOr<json> ParseObject(std::string_view text) {
  json parsed = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_object()) return parsed;
  return absl::InvalidArgumentError("it is not a JSON object");
}

std::string At(const Notice& notice) {
  return notice.at ? fmt::format(" at {}", absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", *notice.at, absl::UTCTimeZone()))
                   : "";
}

}  // namespace

std::string_view NoticeWord(NoticeKind kind) {
  switch (kind) {
    case NoticeKind::kInterruption:
      return "interruption";
    case NoticeKind::kMaintenance:
      return "maintenance";
    case NoticeKind::kScaleIn:
      return "scale-in";
    case NoticeKind::kRebalance:
      return "rebalance";
    case NoticeKind::kSignal:
      return "signal";
  }
  return "";
}

absl::StatusOr<Notice> ParseInstanceAction(std::string_view text) {
  ASSIGN_OR_RETURN(const json object, ParseObject(text));
  Notice notice{.kind = NoticeKind::kInterruption, .detail = TextOf(object, "action")};
  if (!IsWord(notice.detail)) return absl::InvalidArgumentError("it has no action");
  // A machine that hibernates continues where it was, and the program with it.
  notice.final = notice.detail != "hibernate";
  // The interruption is announced also if its time is missing.
  notice.at = TimeOf("%Y-%m-%dT%H:%M:%E*SZ", TextOf(object, "time"));
  return notice;
}

absl::StatusOr<Notice> ParseRebalance(std::string_view text) {
  ASSIGN_OR_RETURN(const json object, ParseObject(text));
  if (TextOf(object, "noticeTime").empty()) return absl::InvalidArgumentError("it has no noticeTime");
  return Notice{.kind = NoticeKind::kRebalance, .final = false};
}

absl::StatusOr<std::optional<Notice>> ParseMaintenance(std::string_view text, absl::Time now) {
  const json list = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!list.is_array()) return absl::InvalidArgumentError("it is not a JSON list");
  std::optional<Notice> first;
  for (const json& event : list) {
    if (!event.is_object()) return absl::InvalidArgumentError("an event is not a JSON object");
    if (TextOf(event, "State") != "active") continue;
    Notice notice{.kind = NoticeKind::kMaintenance, .detail = TextOf(event, "Code")};
    notice.at = TimeOf("%d %b %Y %H:%M:%S GMT", TextOf(event, "NotBefore"));
    if (!IsWord(notice.detail) || !notice.at) return absl::InvalidArgumentError("an event has no Code or NotBefore");
    notice.final = *notice.at - now <= kMaintenanceLead;
    if (!first || *notice.at < *first->at) first = std::move(notice);
  }
  return first;
}

std::optional<Notice> ParseTargetState(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.remove_suffix(1);
  if (text != "Terminated") return std::nullopt;
  return Notice{.kind = NoticeKind::kScaleIn};
}

std::optional<absl::Time> ParseJobEndTime(std::string_view text, absl::Time now) {
  const std::optional<uint64_t> seconds = ParseNumber<uint64_t>(text);
  if (!seconds || *seconds > kMaxSeconds) return std::nullopt;
  const absl::Time end = absl::FromUnixSeconds(static_cast<int64_t>(*seconds));
  if (end - now > kAboutNow) return end;
  const absl::Time kill = end + kKillWait;
  return kill > now ? std::optional(kill) : std::nullopt;
}

std::string NoticeText(const Notice& notice) {
  switch (notice.kind) {
    case NoticeKind::kInterruption:
      return fmt::format("EC2 will {} this spot instance{}", notice.detail, At(notice));
    case NoticeKind::kMaintenance:
      return fmt::format("EC2 has scheduled {} of this instance{}", notice.detail, At(notice));
    case NoticeKind::kScaleIn:
      return "the Auto Scaling group will terminate this instance";
    case NoticeKind::kRebalance:
      return "EC2 recommends to leave this spot instance (rebalance recommendation)";
    case NoticeKind::kSignal:
      return fmt::format("{} announces that this job must leave{}", notice.detail, At(notice));
  }
  return "";
}

}  // namespace millrace
