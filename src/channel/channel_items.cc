#include "channel/channel_items.h"

#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "shard/json_array_manifest.h"
#include "store/blocking.h"
#include "store/completion.h"
#include "store/uri.h"
#include "transfer/key_pattern.h"

namespace millrace {

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr size_t kMaxAsked = 256;  // objects at a time
constexpr uint64_t kMaxManifestBytes = uint64_t{1} << 30;
constexpr std::string_view kReference = "-ref";

absl::Status OfChannel(const Channel& channel, const absl::Status& status) {
  return Annotate(status, fmt::format("channel {}", channel.name));
}

ChannelPart ObjectPart(const ObjectInfo& object) {
  return {.is_object = true,
          .text = object.key,
          .etag = object.etag,
          .size = object.size,
          .modified_ms = object.modified_ms};
}

/// Asks the store for each of these objects, many at a time.
class PartsToLearn {
 public:
  PartsToLearn(ObjectStore& store, std::stop_token stop) : store_(store), stop_(std::move(stop)) {}

  absl::Status Add(ChannelPart& part) {
    if (asked_.size() == kMaxAsked) RETURN_IF_ERROR(EndFirst());
    auto& [of, head] = asked_.emplace_back();
    of = &part;
    store_.Head(part.text, {}, head.Callback());
    return absl::OkStatus();
  }
  absl::Status Finish() {
    while (!asked_.empty()) RETURN_IF_ERROR(EndFirst());
    return absl::OkStatus();
  }

 private:
  absl::Status EndFirst() {
    auto& [part, head] = asked_.front();
    if (!head.WaitOrStop(stop_)) return absl::CancelledError(fmt::format("{}: interrupted", store_.Uri(part->text)));
    ASSIGN_OR_RETURN(const ObjectInfo object, head.Wait());
    *part = ObjectPart(object);
    asked_.pop_front();
    return absl::OkStatus();
  }

  ObjectStore& store_;
  const std::stop_token stop_;
  std::deque<std::pair<ChannelPart*, Completion<absl::StatusOr<ObjectInfo>>>> asked_;
};

/// Returns the object of that URI, if there is one.
absl::StatusOr<std::optional<std::pair<Location, ObjectInfo>>> FindObject(Stores& stores, const std::string& uri,
                                                                          const std::stop_token& stop) {
  if (uri.ends_with('/')) return std::nullopt;
  const absl::StatusOr<Location> at = stores.OpenObject(uri);
  if (!at.ok() || at->prefix.empty()) return std::nullopt;
  const absl::StatusOr<ObjectInfo> info = HeadBlocking(*at->store, at->prefix, stop);
  if (absl::IsCancelled(info.status())) return info.status();
  // It is a folder, or something that cannot be read: listing says which.
  if (!info.ok()) return std::nullopt;
  return std::pair(*at, *info);
}

absl::StatusOr<ChannelItems> FindObjects(Stores& stores, const Channel& channel, const std::stop_token& stop) {
  ChannelItems items;
  ASSIGN_OR_RETURN(const auto object, FindObject(stores, channel.uri, stop));
  if (object) {
    const auto& [at, info] = *object;
    items.root = at.store->traits().root;
    items.prefix = info.key.substr(0, info.key.rfind('/') + 1);
    items.parts.push_back(ObjectPart(info));
    return items;
  }
  ASSIGN_OR_RETURN(const Location from, stores.Open(channel.uri));
  items.root = from.store->traits().root;
  items.prefix = AsFolder(from.prefix);
  RETURN_IF_ERROR(ForEachPage(
      *from.store, items.prefix, "",
      [&](const ListPage& page) {
        for (const ObjectInfo& listed : page.objects) {
          if (IsFolderMarker(listed) || IsOwnFile(std::string_view(listed.key).substr(items.prefix.size()))) continue;
          items.parts.push_back(ObjectPart(listed));
        }
        return absl::OkStatus();
      },
      stop));
  return items;
}

/// Returns the text of the object that the channel's URI names.
absl::StatusOr<std::string> ReadManifestText(Stores& stores, const Channel& channel) {
  ASSIGN_OR_RETURN(const Location at, stores.OpenObject(channel.uri));
  return ReadAll(*at.store, at.prefix, kMaxManifestBytes);
}

absl::StatusOr<ChannelItems> FindManifestEntries(Stores& stores, const Channel& channel, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const std::string text, ReadManifestText(stores, channel));
  std::vector<std::string> names;
  const absl::StatusOr<Manifest> manifest = ParseJsonArrayManifest(text, [&](const Manifest&, const ManifestRow& row) {
    names.emplace_back(row.path);
    return absl::OkStatus();
  });
  if (!manifest.ok()) return Annotate(manifest.status(), channel.uri);
  ASSIGN_OR_RETURN(const ParsedUri prefix, ParseUri(manifest->prefix));
  ChannelItems items;
  Location at;
  if (prefix.scheme == ParsedUri::Scheme::kFile) {
    ASSIGN_OR_RETURN(at, stores.OpenInTree("/"));
    items.prefix = prefix.path.substr(std::min(prefix.path.find_first_not_of('/'), prefix.path.size()));
  } else {
    ASSIGN_OR_RETURN(at, stores.Open(manifest->prefix));
    items.prefix = at.prefix;
  }
  items.root = at.store->traits().root;
  items.parts.reserve(names.size());
  for (const std::string& name : names) items.parts.push_back({.is_object = true, .text = items.prefix + name});
  PartsToLearn learn(*at.store, stop);
  for (ChannelPart& part : items.parts) RETURN_IF_ERROR(learn.Add(part));
  RETURN_IF_ERROR(learn.Finish());
  return items;
}

absl::StatusOr<ChannelItems> FindAugmentedLines(Stores& stores, const Channel& channel, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const std::string text, ReadManifestText(stores, channel));
  absl::StatusOr<std::vector<ChannelPart>> parts = ParseAugmentedManifest(text, channel.attributes);
  if (!parts.ok()) return Annotate(parts.status(), channel.uri);
  ChannelItems items{.root = {}, .prefix = {}, .parts_each = channel.attributes.size(), .parts = *std::move(parts)};
  ObjectStore* store = nullptr;
  std::optional<PartsToLearn> learn;
  for (ChannelPart& part : items.parts) {
    if (!part.is_object) continue;
    ASSIGN_OR_RETURN(const Location at, stores.OpenObjectInTree(part.text));
    if (store == nullptr) {
      store = at.store;
      items.root = store->traits().root;
      learn.emplace(*store, stop);
    }
    if (at.store != store) {
      return absl::InvalidArgumentError(fmt::format("{}: it names objects of {} and {}; a channel reads one bucket",
                                                    channel.uri, items.root, at.store->traits().root));
    }
    part.text = at.prefix;
    RETURN_IF_ERROR(learn->Add(part));
  }
  if (learn) RETURN_IF_ERROR(learn->Finish());
  return items;
}

absl::Status WrongLineOf(uint64_t line, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("line {}: {}", line, what));
}

absl::StatusOr<ChannelPart> TakeAttribute(const OrderedJson& line, const std::string& name, uint64_t number) {
  const auto value = line.find(name);
  if (value == line.end()) return WrongLineOf(number, fmt::format("it has no attribute '{}'", name));
  ChannelPart part{.is_object = name.ends_with(kReference), .text = {}};
  if (part.is_object && !value->is_string())
    return WrongLineOf(number, fmt::format("the attribute '{}' is no URI of an object", name));
  part.text = value->is_string() ? value->get<std::string>() : value->dump();
  if (part.is_object) {
    if (const absl::Status uri = ParseObjectUri(part.text).status(); !uri.ok())
      return WrongLineOf(number, ToStd(uri.message()));
  }
  return part;
}

}  // namespace

absl::StatusOr<bool> NamesObject(Stores& stores, const std::string& uri, const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const auto object, FindObject(stores, uri, stop));
  return object.has_value();
}

void KeepShare(ChannelItems& items, uint64_t rank, uint64_t world) {
  std::vector<ChannelPart> kept;
  for (uint64_t item = rank; item < items.size(); item += world) {
    for (const ChannelPart& part : items[item]) kept.push_back(part);
  }
  items.parts = std::move(kept);
}

absl::StatusOr<std::vector<ChannelPart>> ParseAugmentedManifest(std::string_view text,
                                                                const std::vector<std::string>& attributes) {
  constexpr size_t kMaxLineBytes = size_t{1} << 20;
  constexpr int kMaxDepth = 100;  // deeper JSON could not be written without a stack overflow
  std::vector<ChannelPart> parts;
  for (uint64_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    if (line.size() > kMaxLineBytes) return WrongLineOf(number, "it has more than 1 MiB");
    const auto shallow = [](int depth, OrderedJson::parse_event_t, OrderedJson&) { return depth <= kMaxDepth; };
    const OrderedJson json = OrderedJson::parse(line, shallow, /*allow_exceptions=*/false);
    if (!json.is_object()) return WrongLineOf(number, "it is no JSON object");
    for (const std::string& name : attributes) {
      ASSIGN_OR_RETURN(ChannelPart part, TakeAttribute(json, name, number));
      parts.push_back(std::move(part));
    }
  }
  return parts;
}

absl::StatusOr<ChannelItems> FindChannelItems(Stores& stores, const Channel& channel, const std::stop_token& stop) {
  const auto find = channel.type == ChannelType::kS3Prefix   ? FindObjects
                    : channel.type == ChannelType::kManifest ? FindManifestEntries
                                                             : FindAugmentedLines;
  absl::StatusOr<ChannelItems> items = find(stores, channel, stop);
  if (!items.ok()) return OfChannel(channel, items.status());
  if (items->size() == 0) {
    return absl::NotFoundError(fmt::format("channel {}: {} has no objects; check the URI", channel.name, channel.uri));
  }
  return items;
}

}  // namespace millrace
