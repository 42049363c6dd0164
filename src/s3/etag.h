#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace millrace {

/// Turns `"abc"` into `abc`. A weak or unquoted tag stays as it is: to us it is opaque.
std::string StripETagQuotes(std::string_view etag);

/// Returns the tag that names the bytes, a part of `etag`: `"abc"` and `W/"abc"` become `abc`. Proxies mark tags as
/// weak on their way.
std::string_view ETagOfBytes(std::string_view etag);

/// Returns the tag as it is sent in If-Match.
std::string IfMatchValue(std::string_view etag);

/// Returns the ETag that S3 gives to an object of these parts: the MD5 of their MD5s, then "-" and their number.
/// Returns "" when a part's ETag is not an MD5.
std::string MultipartETag(const std::vector<std::string>& part_etags);

/// Returns whether it may be that of an object uploaded in several parts: it ends in "-" and their number.
bool IsMultipartETag(std::string_view etag);

}  // namespace millrace
