#pragma once

#include <cstdint>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "channel/channel.h"
#include "store/stores.h"

namespace millrace {

/// Is one thing that an item of a channel consists of: an object, pinned to the version that was found, or a text.
struct ChannelPart {
  bool is_object = false;
  std::string text;  // its key, of an object
  std::string etag;  // of an object, likewise the others
  uint64_t size = 0;
  int64_t modified_ms = 0;

  ObjectInfo Object() const { return {.key = text, .size = size, .etag = etag, .modified_ms = modified_ms}; }
};

/// Has the contents of a channel, in the order of its source. These are the objects below a prefix in order of their
/// keys, or the entries of a manifest in their order. An augmented manifest gives its lines, each of which is a number
/// of parts. The memory is about 150 bytes a part, and its name.
struct ChannelItems {
  std::string root;    // URI of the store, in which all objects are; Stores::Open takes it
  std::string prefix;  // of their keys, behind which their names in a folder begin; not of augmented manifests
  size_t parts_each = 1;
  std::vector<ChannelPart> parts;

  uint64_t size() const { return parts.size() / parts_each; }
  std::span<const ChannelPart> operator[](uint64_t item) const {
    return std::span(parts).subspan(item * parts_each, parts_each);
  }
};

/// Looks for the items of a channel that has been checked. Folder markers and Millrace's own files (IsOwnFile) are no
/// items. It asks for all objects, so that it reports missing ones.
///
/// The call blocks; Cancelled soon after a stop. NotFound if there is no item, or an object of a manifest is not there;
/// InvalidArgument for a manifest that is none, or lacks an attribute, or names objects of several buckets.
absl::StatusOr<ChannelItems> FindChannelItems(Stores& stores, const Channel& channel, const std::stop_token& stop = {});

/// Returns true if a URI is that of an object, which SageMaker takes before a prefix. Blocking; Cancelled soon after a
/// stop.
absl::StatusOr<bool> NamesObject(Stores& stores, const std::string& uri, const std::stop_token& stop = {});

/// Keeps what host `rank` of `world` gets of a sharded channel that is not shuffled: every world-th item.
void KeepShare(ChannelItems& items, uint64_t rank, uint64_t world);

/// Parses the text of an augmented manifest. Each line that is not blank gives the values of the attributes, in their
/// order. If the name of an attribute ends with "-ref", its value is a URI (is_object, `text`). The value of another
/// attribute is a text: the contents of a JSON string, and any other value as JSON writes it, without blanks.
/// InvalidArgument, with the line.
absl::StatusOr<std::vector<ChannelPart>> ParseAugmentedManifest(std::string_view text,
                                                                const std::vector<std::string>& attributes);

}  // namespace millrace
