#include "net/reply_head.h"

#include <fmt/format.h>

#include <ctime>
#include <iterator>

namespace millrace {

namespace {

std::string_view Reason(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 204:
      return "No Content";
    case 206:
      return "Partial Content";
    case 301:
      return "Moved Permanently";
    case 304:
      return "Not Modified";
    case 307:
      return "Temporary Redirect";
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 409:
      return "Conflict";
    case 411:
      return "Length Required";
    case 412:
      return "Precondition Failed";
    case 416:
      return "Requested Range Not Satisfiable";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 500:
      return "Internal Server Error";
    case 501:
      return "Not Implemented";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Status";
  }
}

}  // namespace

std::string HttpDate(int64_t unix_seconds) {
  // Not strftime: names of days must not follow the locale.
  constexpr const char* kDays[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  constexpr const char* kMonths[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                     "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const time_t time = unix_seconds;
  tm utc{};
  gmtime_r(&time, &utc);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[utc.tm_wday], utc.tm_mday, kMonths[utc.tm_mon],
                     utc.tm_year + 1900, utc.tm_hour, utc.tm_min, utc.tm_sec);
}

void AppendReplyHead(const HttpReply& reply, uint64_t content_length, const std::string& date, std::string* out) {
  fmt::format_to(std::back_inserter(*out), "HTTP/1.1 {} {}\r\n", reply.status, Reason(reply.status));
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
    fmt::format_to(std::back_inserter(*out), "Content-Length: {}\r\n", content_length);
  }
}

}  // namespace millrace
