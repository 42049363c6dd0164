#include "net/reply_head.h"

#include <fmt/compile.h>
#include <fmt/format.h>

#include <array>
#include <ctime>
#include <iterator>

namespace millrace {

namespace {

struct StatusText {
  int status;
  std::string_view text;
};
constexpr StatusText kReasons[] = {{200, "OK"},
                                   {204, "No Content"},
                                   {206, "Partial Content"},
                                   {301, "Moved Permanently"},
                                   {304, "Not Modified"},
                                   {307, "Temporary Redirect"},
                                   {400, "Bad Request"},
                                   {403, "Forbidden"},
                                   {404, "Not Found"},
                                   {405, "Method Not Allowed"},
                                   {408, "Request Timeout"},
                                   {409, "Conflict"},
                                   {411, "Length Required"},
                                   {412, "Precondition Failed"},
                                   {416, "Requested Range Not Satisfiable"},
                                   {429, "Too Many Requests"},
                                   {431, "Request Header Fields Too Large"},
                                   {500, "Internal Server Error"},
                                   {501, "Not Implemented"},
                                   {502, "Bad Gateway"},
                                   {503, "Service Unavailable"},
                                   {504, "Gateway Timeout"}};

std::string_view Reason(int status) {
  for (const StatusText& reason : kReasons) {
    if (reason.status == status) return reason.text;
  }
  return "Status";
}

}  // namespace

namespace {

std::string MakeHttpDate(int64_t unix_seconds) {
  // These are not from strftime: names of days must not follow the locale.
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const time_t time = unix_seconds;
  tm utc{};
  gmtime_r(&time, &utc);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[utc.tm_wday], utc.tm_mday, kMonths[utc.tm_mon],
                     utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

}  // namespace

// Now, and the times of objects that were made together, are asked for again and again.
std::string HttpDate(int64_t unix_seconds) {
  struct Made {
    int64_t second = 0;
    std::string text;
  };
  thread_local std::array<Made, 8> made;
  Made& found = made[static_cast<uint64_t>(unix_seconds) % made.size()];
  if (found.text.empty() || found.second != unix_seconds) found = {unix_seconds, MakeHttpDate(unix_seconds)};
  return found.text;
}

void AppendReplyHead(const HttpReply& reply, uint64_t content_length, const std::string& date, std::string* out) {
  fmt::format_to(std::back_inserter(*out), FMT_COMPILE("HTTP/1.1 {} {}\r\n"), reply.status, Reason(reply.status));
  if (!reply.headers.Has("date")) out->append("Date: ").append(date).append("\r\n");
  for (const auto& [name, value] : reply.headers) {
    out->append(name).append(": ");
    const size_t from = out->size();
    out->append(value);
    for (size_t i = from; i < out->size(); ++i) {
      const unsigned char c = static_cast<unsigned char>((*out)[i]);
      if (c < 0x20 || c == 0x7f) (*out)[i] = ' ';
    }
    out->append("\r\n");
  }
  if (reply.chunked) {
    out->append("Transfer-Encoding: chunked\r\n");
  } else if (reply.status != 204 && reply.status != 304) {
    fmt::format_to(std::back_inserter(*out), FMT_COMPILE("Content-Length: {}\r\n"), content_length);
  }
}

}  // namespace millrace
