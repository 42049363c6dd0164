#include "aws/request_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "aws/endpoint.h"
#include "base/status.h"

namespace millrace {

namespace {

constexpr size_t kMaxTarget = 2048;
constexpr size_t kMaxValue = 200;

// Returns a server's text as one short word.
std::string Word(std::string_view text) {
  std::string out(text.substr(0, kMaxValue));
  std::replace_if(
      out.begin(), out.end(), [](char c) { return !absl::ascii_isgraph(static_cast<unsigned char>(c)) || c == '"'; },
      '?');
  return out;
}

// Presigned URLs give these names to values that must not be logged.
bool MayBeSecret(std::string_view name) {
  const std::string lower = absl::AsciiStrToLower(ToAbsl(name));
  return lower.starts_with("x-amz-") || lower == "signature" || lower == "awsaccesskeyid";
}

std::string WithoutSecrets(std::string_view target) {
  const size_t question = target.find('?');
  if (question == target.npos) return std::string(target);
  std::string out(target.substr(0, question));
  char separator = '?';
  for (std::string_view rest = target.substr(question + 1); !rest.empty();) {
    const std::string_view parameter = rest.substr(0, rest.find('&'));
    rest.remove_prefix(std::min(rest.size(), parameter.size() + 1));
    const std::string_view name = parameter.substr(0, parameter.find('='));
    out.append(1, std::exchange(separator, '&'));
    if (MayBeSecret(name)) {
      out.append(name).append("=(hidden)");
    } else {
      out.append(parameter);
    }
  }
  return out;
}

std::string_view NameOf(HttpErrorKind error) {
  switch (error) {
    case HttpErrorKind::kNone:
      return "none";
    case HttpErrorKind::kConnect:
      return "connect";
    case HttpErrorKind::kTls:
      return "tls";
    case HttpErrorKind::kProxy:
      return "proxy";
    case HttpErrorKind::kStale:
      return "stale";
    case HttpErrorKind::kReset:
      return "reset";
    case HttpErrorKind::kClosedEarly:
      return "closed-early";
    case HttpErrorKind::kTimeout:
      return "timeout";
    case HttpErrorKind::kMalformed:
      return "malformed";
    case HttpErrorKind::kTooLarge:
      return "too-large";
    case HttpErrorKind::kRefused:
      return "refused";
    case HttpErrorKind::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

}  // namespace

RequestLog::RequestLog(const HttpRequest& request, Shows shows, int attempt, bool hedge, absl::Time now)
    : attempt_(fmt::format(" attempt={}{}", attempt, hedge ? " hedge" : "")), begun_(now) {
  const HttpRequestHead& head = request.head;
  text_ = fmt::format("{} {}://{}", head.method, request.endpoint.tls ? "https" : "http", HostHeader(request.endpoint));
  if (shows == Shows::kServer) return;
  text_.append(WithoutSecrets(std::string_view(head.target).substr(0, kMaxTarget)));
  if (const auto range = head.headers.Find("range")) text_.append(" range=").append(Word(*range));
  if (!request.body.empty()) text_.append(fmt::format(" sent={}", request.body.size()));
}

void RequestLog::OnHead(const HttpResponseHead& head, absl::Time now) {
  answered_ = now;
  status_ = head.status;
  const auto add = [&](const char* header, const char* name) {
    const auto value = head.headers.Find(header);
    if (value && !value->empty()) ids_.append(" ").append(name).append("=").append(Word(*value));
  };
  add("x-amz-request-id", "request");
  add("x-amz-id-2", "host_id");
}

std::string RequestLog::Line(const HttpResult& result, absl::Time now) const {
  std::string line = fmt::format("{} status={} ms={:.1f}", text_, status_ == 0 ? "-" : std::to_string(status_),
                                 absl::ToDoubleMilliseconds(now - begun_));
  if (answered_) line.append(fmt::format(" first_byte_ms={:.1f}", absl::ToDoubleMilliseconds(*answered_ - begun_)));
  line.append(fmt::format(" bytes={}", result.wire_bytes)).append(attempt_).append(ids_);
  if (result.error != HttpErrorKind::kNone) line.append(" error=").append(NameOf(result.error));
  return line;
}

}  // namespace millrace
