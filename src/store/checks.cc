#include "store/checks.h"

#include <fmt/format.h>

#include "s3/span_verifier.h"
#include "store/file_system.h"

namespace millrace {

absl::Status CheckKey(std::string_view store_uri, std::string_view key) {
  if (key.empty())
    return absl::InvalidArgumentError(fmt::format("{}: an object needs a key, this one is empty", store_uri));
  if (key.size() > kMaxKeyBytes) {
    return absl::InvalidArgumentError(
        fmt::format("{}: the key beginning with '{}' has {} bytes; at most {} are allowed", store_uri,
                    key.substr(0, 40), key.size(), kMaxKeyBytes));
  }
  if (key.find('\0') != key.npos) {
    return absl::InvalidArgumentError(
        fmt::format("{}: the key beginning with '{}' contains a NUL byte", store_uri, key.substr(0, key.find('\0'))));
  }
  return absl::OkStatus();
}

absl::Status CheckCanHold(const ObjectStore& store, std::string_view key) {
  RETURN_IF_ERROR(CheckKey(store.traits().root, key));
  return store.traits().is_folder() ? CheckFileKey(store.Uri(key), key) : absl::OkStatus();
}

absl::Status CheckPut(std::string_view uri, const PutOptions& options) {
  if (!options.only_if_absent || options.if_match.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("{}: only_if_absent and if_match contradict each other; set one of them", uri));
}

absl::Status CheckVersion(std::string_view uri, std::string_view etag) {
  if (!etag.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format("{}: the version to delete needs an ETag", uri));
}

absl::Status CheckGet(std::string_view uri, const GetOptions& options, size_t into_size) {
  const ByteRange& range = options.range;
  if (into_size != range.length) {
    return absl::InvalidArgumentError(
        fmt::format("{}: GET of {} bytes into a buffer of {}", uri, range.length, into_size));
  }
  if (range.length > UINT64_MAX - range.offset) {
    return absl::InvalidArgumentError(
        fmt::format("{}: the range of {} bytes at {} exceeds 64 bits", uri, range.length, range.offset));
  }
  for (const SpanChecksum& sum : options.checksums) {
    const bool inside = sum.range.offset >= range.offset && sum.range.offset - range.offset <= range.length &&
                        sum.range.length <= range.length - (sum.range.offset - range.offset);
    if (!inside) {
      return absl::InvalidArgumentError(
          fmt::format("{}: the checksum of {} bytes at {} lies outside of the range read, {} bytes at {}", uri,
                      sum.range.length, sum.range.offset, range.length, range.offset));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckList(std::string_view uri, const ListOptions& options) {
  if (!options.delimiter.empty() && options.delimiter != "/") {
    return absl::InvalidArgumentError(
        fmt::format("{}: the delimiter of a listing is '/' or none, not '{}'", uri, options.delimiter));
  }
  if (options.max_keys < 1) {
    return absl::InvalidArgumentError(
        fmt::format("{}: a page of {} keys was asked for; at least 1 is needed", uri, options.max_keys));
  }
  if (options.prefix.find('\0') != std::string::npos) {
    return absl::InvalidArgumentError(fmt::format("{}: the prefix of a listing contains a NUL byte", uri));
  }
  return absl::OkStatus();
}

absl::Status CheckRange(std::string_view uri, ByteRange range, uint64_t size) {
  if (range.offset <= size && range.length <= size - range.offset) return absl::OkStatus();
  return absl::OutOfRangeError(
      fmt::format("{}: has {} bytes, {} at {} were asked for", uri, size, range.length, range.offset));
}

absl::Status CheckMatch(std::string_view uri, std::string_view if_match, std::string_view etag) {
  if (if_match.empty() || if_match == etag) return absl::OkStatus();
  return absl::FailedPreconditionError(fmt::format(
      "{}: has been replaced: its ETag is {}, and that of the version that was asked for is {}", uri, etag, if_match));
}

absl::Status VerifyChecksums(std::string_view uri, const GetOptions& options, ByteSpan bytes) {
  return DamagedSpans(uri, options, SpanVerifier(options.checksums, options.range, bytes).Damaged());
}

absl::Status DamagedSpans(std::string_view uri, const GetOptions& options, std::vector<ByteRange> damaged) {
  absl::Status status = damaged.empty() ? absl::OkStatus() : DamagedSpan(uri, damaged.front());
  if (options.damaged != nullptr) *options.damaged = std::move(damaged);
  return status;
}

absl::Status DamagedSpan(std::string_view uri, ByteRange span) {
  return absl::DataLossError(
      fmt::format("{}: its {} bytes at offset {} are not those that were indexed: they have another CRC32C; restore "
                  "the object from a copy. If it was replaced deliberately, build the index again (millrace index)",
                  uri, span.length, span.offset));
}

}  // namespace millrace
