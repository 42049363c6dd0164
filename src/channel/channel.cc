#include "channel/channel.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <span>
#include <utility>
#include <vector>

#include "base/number.h"
#include "store/uri.h"

namespace millrace {

namespace {

// Their values may hold a '/'.
constexpr std::string_view kContentType = "content-type";
constexpr std::string_view kAttributes = "attributes";

constexpr std::string_view kModes[] = {"File", "FastFile", "Pipe"};
constexpr std::string_view kTypes[] = {"S3Prefix", "ManifestFile", "AugmentedManifestFile"};
constexpr std::string_view kDistributions[] = {"FullyReplicated", "ShardedByS3Key"};
constexpr std::string_view kCompressions[] = {"None", "Gzip"};
constexpr std::string_view kWrappers[] = {"None", "RecordIO"};
constexpr std::string_view kKeys[] = {"mode",         "type",       "distribution", "compression", "wrapper",
                                      "shuffle-seed", "attributes", "groups",       "epochs",      "content-type"};

bool IsChannelName(std::string_view name) {
  constexpr size_t kMaxNameBytes = 64;
  if (name.empty() || name.size() > kMaxNameBytes || name == "." || name == "..") return false;
  return std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' ||
           c == '_';
  });
}

// Returns the place of the value among those of the contract.
absl::StatusOr<size_t> TakeWord(const Channel& channel, std::string_view key, std::string_view value,
                                std::span<const std::string_view> values) {
  const auto found = std::ranges::find(values, value);
  if (found != values.end()) return static_cast<size_t>(found - values.begin());
  return absl::InvalidArgumentError(
      fmt::format("channel {}: {} must be one of {}, not '{}'", channel.name, key, fmt::join(values, ", "), value));
}

absl::StatusOr<uint64_t> TakeNumberOf(const Channel& channel, std::string_view key, std::string_view value) {
  if (const std::optional<uint64_t> number = ParseNumber<uint64_t>(value)) return *number;
  return absl::InvalidArgumentError(
      fmt::format("channel {}: {} must be a whole number, not '{}'", channel.name, key, value));
}

std::vector<std::string> TakeNames(std::string_view text) {
  std::vector<std::string> names;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find('+', begin), text.size());
    names.emplace_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return names;
}

absl::Status Refused(const Channel& channel, std::string_view why) {
  return absl::InvalidArgumentError(fmt::format("channel {}: {}", channel.name, why));
}

absl::Status CheckAttributes(const Channel& channel) {
  if (channel.type != ChannelType::kAugmentedManifest) {
    if (channel.attributes.empty()) return absl::OkStatus();
    return Refused(channel, "attributes are those of a type=AugmentedManifestFile");
  }
  if (channel.mode != ChannelMode::kPipe)
    return Refused(channel, "type=AugmentedManifestFile needs mode=Pipe, as on SageMaker");
  if (channel.attributes.empty() || channel.attributes.size() > Channel::kMaxAttributes) {
    return Refused(channel,
                   fmt::format("type=AugmentedManifestFile needs 1 to {} attributes: attributes=source-ref+label",
                               Channel::kMaxAttributes));
  }
  const bool unnamed = std::ranges::any_of(channel.attributes, &std::string::empty);
  return unnamed ? Refused(channel, "the name of an attribute is empty") : absl::OkStatus();
}

}  // namespace

std::string_view ChannelModeName(ChannelMode mode) {
  return kModes[static_cast<size_t>(mode)];
}

absl::Status SetChannelOption(std::string_view key, std::string_view value, Channel& channel) {
  if (key == kContentType) {
    channel.content_type = value;
  } else if (key == kAttributes) {
    channel.attributes = TakeNames(value);
  } else if (key == "groups") {
    channel.groups = TakeNames(value);
  } else if (key == "shuffle-seed") {
    ASSIGN_OR_RETURN(channel.shuffle_seed, TakeNumberOf(channel, key, value));
  } else if (key == "epochs") {
    ASSIGN_OR_RETURN(channel.epochs, TakeNumberOf(channel, key, value));
  } else if (key == "mode") {
    ASSIGN_OR_RETURN(const size_t place, TakeWord(channel, key, value, kModes));
    channel.mode = static_cast<ChannelMode>(place);
  } else if (key == "type") {
    ASSIGN_OR_RETURN(const size_t place, TakeWord(channel, key, value, kTypes));
    channel.type = static_cast<ChannelType>(place);
  } else if (key == "distribution") {
    ASSIGN_OR_RETURN(const size_t place, TakeWord(channel, key, value, kDistributions));
    channel.sharded = place == 1;
  } else if (key == "compression") {
    ASSIGN_OR_RETURN(const size_t place, TakeWord(channel, key, value, kCompressions));
    channel.gzip = place == 1;
  } else if (key == "wrapper") {
    ASSIGN_OR_RETURN(const size_t place, TakeWord(channel, key, value, kWrappers));
    channel.recordio = place == 1;
  } else {
    return absl::InvalidArgumentError(
        fmt::format("channel {}: there is no '{}'; known are {}", channel.name, key, fmt::join(kKeys, ", ")));
  }
  return absl::OkStatus();
}

absl::Status CheckChannel(const Channel& channel) {
  if (!IsChannelName(channel.name)) {
    return absl::InvalidArgumentError(
        fmt::format("'{}' is no name of a channel: it has 1 to 64 letters, digits, '.', '-' and '_'", channel.name));
  }
  if (channel.uri.empty()) return Refused(channel, "it has no URI");
  RETURN_IF_ERROR(ParseUri(channel.uri).status());
  RETURN_IF_ERROR(CheckAttributes(channel));
  if (channel.groups.size() > Channel::kMaxGroups)
    return Refused(channel, fmt::format("it may name {} groups at most", Channel::kMaxGroups));
  if (channel.mode != ChannelMode::kPipe) {
    if (channel.gzip)
      return Refused(channel, "compression=Gzip needs mode=Pipe; in other modes files stay as they are");
    if (channel.recordio) return Refused(channel, "wrapper=RecordIO needs mode=Pipe");
    if (channel.epochs != 1) return Refused(channel, "epochs are those of mode=Pipe");
  }
  if (channel.epochs < 1 || channel.epochs > Channel::kMaxEpochs)
    return Refused(channel, fmt::format("epochs must be 1 to {}", Channel::kMaxEpochs));
  return absl::OkStatus();
}

absl::StatusOr<Channel> ParseChannel(std::string_view text) {
  const size_t equals = text.find('=');
  Channel channel;
  channel.name = text.substr(0, equals);
  if (equals == std::string_view::npos || !IsChannelName(channel.name)) {
    return absl::InvalidArgumentError(fmt::format(
        "'{}' is no channel: NAME=URI is wanted, with a name of 1 to 64 letters, digits, '.', '-' and '_'", text));
  }
  std::string_view rest = text.substr(equals + 1);
  // It is read from the end, since a URI may hold commas.
  for (size_t comma; (comma = rest.rfind(',')) != std::string_view::npos; rest = rest.substr(0, comma)) {
    const std::string_view option = rest.substr(comma + 1);
    const size_t middle = option.find('=');
    if (middle == std::string_view::npos || option.substr(0, middle).find('/') != std::string_view::npos) break;
    // The value of a content type has a '/'; what else has one is the rest of a URI such as s3://bucket/a,year=2024/b.
    const std::string_view key = option.substr(0, middle);
    if (key != kContentType && key != kAttributes && option.find('/') != std::string_view::npos) break;
    RETURN_IF_ERROR(SetChannelOption(key, option.substr(middle + 1), channel));
  }
  channel.uri = rest;
  RETURN_IF_ERROR(CheckChannel(channel));
  return channel;
}

}  // namespace millrace
