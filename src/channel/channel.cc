#include "channel/channel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>
#include <vector>

#include "store/uri.h"

namespace millrace {

namespace {

constexpr std::string_view kContentType = "content-type";

/// A key of the contract, and its values; the first is the one that is served, and the default.
struct ContractKey {
  std::string_view key;
  std::vector<std::string_view> values;
};

const std::vector<ContractKey>& ContractKeys() {
  static const std::vector<ContractKey> keys{
      {"mode", {"File", "FastFile", "Pipe"}},
      {"type", {"S3Prefix", "ManifestFile", "AugmentedManifestFile"}},
      {"distribution", {"FullyReplicated", "ShardedByS3Key"}},
      {"compression", {"None", "Gzip"}},
      {"wrapper", {"None", "RecordIO"}},
  };
  return keys;
}

bool IsChannelName(std::string_view name) {
  constexpr size_t kMaxNameBytes = 64;
  if (name.empty() || name.size() > kMaxNameBytes || name == "." || name == "..") return false;
  return std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
  });
}

absl::Status TakeOption(std::string_view key, std::string_view value, Channel& channel) {
  if (key == kContentType) {
    channel.content_type = value;
    return absl::OkStatus();
  }
  std::vector<std::string_view> known;
  for (const ContractKey& entry : ContractKeys()) {
    known.push_back(entry.key);
    if (entry.key != key) continue;
    if (std::ranges::find(entry.values, value) == entry.values.end()) {
      return absl::InvalidArgumentError(fmt::format("channel {}: {} must be one of {}, not '{}'", channel.name, key,
                                                    fmt::join(entry.values, ", "), value));
    }
    if (value == entry.values.front()) return absl::OkStatus();
    return absl::UnimplementedError(fmt::format("channel {}: {}={} is not supported yet; only {}={} is", channel.name,
                                                key, value, key, entry.values.front()));
  }
  return absl::InvalidArgumentError(fmt::format("channel {}: there is no '{}'; known are {}, {}", channel.name, key,
                                                fmt::join(known, ", "), kContentType));
}

}  // namespace

absl::StatusOr<Channel> ParseChannel(std::string_view text) {
  const size_t equals = text.find('=');
  Channel channel;
  channel.name = text.substr(0, equals);
  if (equals == std::string_view::npos || !IsChannelName(channel.name)) {
    return absl::InvalidArgumentError(fmt::format(
        "'{}' is no channel: NAME=URI is wanted, with a name of 1 to 64 letters, digits, '.', '-' and '_'", text));
  }
  std::string_view rest = text.substr(equals + 1);
  // From the end, since a URI may hold commas.
  for (size_t comma; (comma = rest.rfind(',')) != std::string_view::npos; rest = rest.substr(0, comma)) {
    const std::string_view option = rest.substr(comma + 1);
    const size_t middle = option.find('=');
    if (middle == std::string_view::npos || option.substr(0, middle).find('/') != std::string_view::npos) break;
    // The value of a content type has a '/'; what else has one is the rest of a URI such as s3://bucket/a,year=2024/b.
    const std::string_view key = option.substr(0, middle);
    if (key != kContentType && option.find('/') != std::string_view::npos) break;
    RETURN_IF_ERROR(TakeOption(key, option.substr(middle + 1), channel));
  }
  channel.uri = rest;
  if (channel.uri.empty()) return absl::InvalidArgumentError(fmt::format("channel {} has no URI", channel.name));
  RETURN_IF_ERROR(ParseUri(channel.uri).status());
  return channel;
}

}  // namespace millrace
