#include "channel/chosen_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

namespace millrace {

namespace {

bool KeyBelow(const ObjectInfo& object, std::string_view key) {
  return object.key < key;
}

}  // namespace

ChosenStore::ChosenStore(ObjectStore& below, std::vector<ObjectInfo> objects)
    : StoreAround(below), objects_(std::move(objects)) {
  std::ranges::sort(objects_, {}, &ObjectInfo::key);
  const auto same = [](const ObjectInfo& a, const ObjectInfo& b) { return a.key == b.key; };
  objects_.erase(std::unique(objects_.begin(), objects_.end(), same), objects_.end());
}

bool ChosenStore::Has(std::string_view key) const {
  const auto found = std::lower_bound(objects_.begin(), objects_.end(), key, KeyBelow);
  return found != objects_.end() && found->key == key;
}

absl::Status ChosenStore::Missing(std::string_view key) const {
  return absl::NotFoundError(fmt::format("{}: is not in this channel", Uri(key)));
}

void ChosenStore::Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) {
  if (!Has(key)) return done(Missing(key));
  below_.Get(std::move(key), into, std::move(options), std::move(done));
}

void ChosenStore::Head(std::string key, HeadOptions options, HeadCallback done) {
  if (!Has(key)) return done(Missing(key));
  below_.Head(std::move(key), options, std::move(done));
}

// A continuation is what came last: '=' and a key, or '<' and a common prefix.
ListPage ChosenStore::Page(const ListOptions& options) const {
  ListPage page;
  const bool after_folder = options.continuation.starts_with('<');
  const std::string after = options.continuation.empty() ? options.start_after : options.continuation.substr(1);
  auto at = std::lower_bound(objects_.begin(), objects_.end(), std::max(after, options.prefix), KeyBelow);
  std::string last;
  for (int count = 0; at != objects_.end() && at->key.starts_with(options.prefix);) {
    if (at->key == after || (after_folder && at->key.starts_with(after))) {
      ++at;
      continue;
    }
    if (count == options.max_keys) {
      page.continuation = last;
      return page;
    }
    const size_t end =
        options.delimiter.empty() ? std::string::npos : at->key.find(options.delimiter, options.prefix.size());
    if (end == std::string::npos) {
      page.objects.push_back(*at);
      last = '=' + at->key;
      ++at;
    } else {
      const std::string folder = at->key.substr(0, end + options.delimiter.size());
      page.common_prefixes.push_back(folder);
      last = '<' + folder;
      while (at != objects_.end() && at->key.starts_with(folder)) ++at;
    }
    ++count;
  }
  return page;
}

void ChosenStore::List(ListOptions options, ListCallback done) {
  done(Page(options));
}

}  // namespace millrace
