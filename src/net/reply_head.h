#pragma once

#include <cstdint>
#include <string>

#include "net/http_server.h"

namespace millrace {

/// Returns "Sun, 06 Nov 1994 08:49:37 GMT" of a time in seconds since 1970.
std::string HttpDate(int64_t unix_seconds);

/// Appends the status line and fields of a reply, without the empty line at the end. Control characters in values,
/// which could smuggle in further fields, become spaces.
void AppendReplyHead(const HttpReply& reply, uint64_t content_length, const std::string& date, std::string* out);

}  // namespace millrace
