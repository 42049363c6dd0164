#include "devstore/conditions.h"

#include <algorithm>
#include <limits>

#include "absl/strings/ascii.h"
#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "devstore/s3_error.h"
#include "net/http_date.h"
#include "s3/etag.h"
#include "s3/xml.h"

namespace millrace {

namespace {

constexpr uint64_t kMax = std::numeric_limits<uint64_t>::max();

struct RangeText {
  std::string_view first;
  std::string_view last;
};

/// Returns the two ends of "bytes=first-last"; nullopt for anything else.
std::optional<RangeText> SplitRange(std::string_view header) {
  constexpr std::string_view kUnit = "bytes=";
  if (!header.starts_with(kUnit)) return std::nullopt;
  header.remove_prefix(kUnit.size());
  const size_t dash = header.find('-');
  if (dash == std::string_view::npos) return std::nullopt;
  return RangeText{header.substr(0, dash), header.substr(dash + 1)};
}

/// Returns whether a list of entity tags, quoted or not, has `etag` or is "*".
bool ListsETag(std::string_view list, std::string_view etag) {
  for (const absl::string_view part : absl::StrSplit(ToAbsl(list), ',')) {
    const std::string_view item = ToStd(absl::StripAsciiWhitespace(part));
    if (item == "*" || StripETagQuotes(item) == etag) return true;
  }
  return false;
}

}  // namespace

RangeRequest ParseRange(std::optional<std::string_view> header, uint64_t object_size) {
  if (!header) return {};
  const std::optional<RangeText> text = SplitRange(*header);
  if (!text) return {};
  if (text->first.empty()) {  // the last n bytes
    const std::optional<uint64_t> suffix = ParseDecimal(text->last, 0, kMax);
    if (!suffix) return {};
    if (*suffix == 0 || object_size == 0) return {RangeKind::kUnsatisfiable, {}};
    const uint64_t length = std::min(*suffix, object_size);
    return {RangeKind::kPart, {object_size - length, length}};
  }
  const std::optional<uint64_t> first = ParseDecimal(text->first, 0, kMax);
  std::optional<uint64_t> last = text->last.empty() ? kMax : ParseDecimal(text->last, 0, kMax);
  if (!first || !last || *first > *last) return {};
  if (*first >= object_size) return {RangeKind::kUnsatisfiable, {}};
  return {RangeKind::kPart, {*first, std::min(*last, object_size - 1) - *first + 1}};
}

absl::StatusOr<ByteRange> ParseCopyRange(std::string_view header, uint64_t object_size) {
  const std::optional<RangeText> text = SplitRange(header);
  const std::optional<uint64_t> first = text ? ParseDecimal(text->first, 0, kMax) : std::nullopt;
  const std::optional<uint64_t> last = text ? ParseDecimal(text->last, 0, kMax) : std::nullopt;
  if (!first || !last || *first > *last) {
    return S3Error(
        s3code::kInvalidArgument,
        "The x-amz-copy-source-range value must be of the form bytes=first-last where first and last are the "
        "zero-based offsets of the first and last bytes to copy");
  }
  if (*last >= object_size) {
    return S3Error(s3code::kInvalidRange,
                   "Range specified is not valid for source object of size: " + std::to_string(object_size));
  }
  return ByteRange{*first, *last - *first + 1};
}

absl::Status CheckReadConditions(const S3Request& request, std::string_view etag, int64_t modified_s,
                                 std::string_view prefix) {
  const absl::Time modified = absl::FromUnixSeconds(modified_s);
  const bool of_copy = !prefix.empty();
  const auto header = [&](std::string_view name) { return request.Header(std::string(prefix).append(name)); };
  const auto not_modified = [&](std::string_view name) {
    return of_copy ? PreconditionFailed(std::string(prefix).append(name))
                   : S3Error(s3code::kNotModified, "Not Modified");
  };
  if (const auto match = header("if-match")) {
    if (!ListsETag(*match, etag)) return PreconditionFailed(of_copy ? "x-amz-copy-source-If-Match" : "If-Match");
  } else if (const auto unmodified = header("if-unmodified-since")) {
    const std::optional<absl::Time> since = ParseHttpDate(*unmodified);
    if (since && modified > *since) {
      return PreconditionFailed(of_copy ? "x-amz-copy-source-If-Unmodified-Since" : "If-Unmodified-Since");
    }
  }
  if (const auto none_match = header("if-none-match")) {
    if (ListsETag(*none_match, etag)) return not_modified("If-None-Match");
  } else if (const auto modified_since = header("if-modified-since")) {
    const std::optional<absl::Time> since = ParseHttpDate(*modified_since);
    if (since && modified <= *since) return not_modified("If-Modified-Since");
  }
  return absl::OkStatus();
}

absl::StatusOr<WriteConditions> ParseWriteConditions(const S3Request& request) {
  WriteConditions conditions;
  if (const auto none_match = request.Header("if-none-match")) {
    if (*none_match != "*") {
      return S3Error(
          s3code::kNotImplemented,
          "A header you provided implies functionality that is not implemented: If-None-Match of a write takes only *",
          {{"Header", "If-None-Match"}});
    }
    conditions.only_if_absent = true;
  }
  if (const auto match = request.Header("if-match")) conditions.if_match = StripETagQuotes(*match);
  return conditions;
}

absl::Status CheckWriteConditions(const WriteConditions& conditions, const std::string* etag, std::string_view key) {
  if (conditions.only_if_absent && etag != nullptr) return PreconditionFailed("If-None-Match");
  if (!conditions.if_match.empty()) {
    if (etag == nullptr) return NoSuchKey(key);
    if (conditions.if_match != "*" && conditions.if_match != *etag) return PreconditionFailed("If-Match");
  }
  return absl::OkStatus();
}

}  // namespace millrace
