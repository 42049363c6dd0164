#include "s3/etag.h"

#include <fmt/format.h>

#include "absl/strings/str_cat.h"
#include "base/crypto.h"
#include "base/hex.h"
#include "base/status.h"

namespace millrace {

namespace {

std::string_view WithoutQuotes(std::string_view etag) {
  const bool quoted = etag.size() >= 2 && etag.front() == '"' && etag.back() == '"';
  return quoted ? etag.substr(1, etag.size() - 2) : etag;
}

}  // namespace

std::string StripETagQuotes(std::string_view etag) {
  return std::string(WithoutQuotes(etag));
}

std::string_view ETagOfBytes(std::string_view etag) {
  if (etag.starts_with("W/\"")) etag.remove_prefix(2);
  return WithoutQuotes(etag);
}

std::string IfMatchValue(std::string_view etag) {
  return etag.starts_with("W/") || etag.starts_with('"') ? std::string(etag) : absl::StrCat("\"", ToAbsl(etag), "\"");
}

bool IsMultipartETag(std::string_view etag) {
  const size_t dash = etag.rfind('-');
  if (dash == etag.npos) return false;
  const std::string_view count = etag.substr(dash + 1);
  return !count.empty() && count.find_first_not_of("0123456789") == count.npos && count[0] != '0' && count != "1";
}

std::string MultipartETag(const std::vector<std::string>& part_etags) {
  Md5Stream md5;
  for (const std::string& etag : part_etags) {
    const std::optional<std::string> digest = HexDecode(etag);
    if (!digest || digest->size() != 16) return "";
    md5.Update(AsBytes(*digest));
  }
  return fmt::format("{}-{}", HexEncode(md5.Finish()), part_etags.size());
}

}  // namespace millrace
