#include "transfer/find_object.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "store/blocking.h"
#include "transfer/key_pattern.h"

namespace millrace {

namespace {

// Returns the first key with this prefix; "" if there is none, or none is visible. Returns NotFound if the bucket is
// missing, which a store does not say in the answer to a request for one object.
absl::StatusOr<std::string> FirstKey(ObjectStore& store, std::string prefix, const std::stop_token& stop = {}) {
  ListOptions options;
  options.prefix = std::move(prefix);
  options.max_keys = 1;
  absl::StatusOr<ListPage> page = ListBlocking(store, std::move(options), stop);
  if (absl::IsCancelled(page.status())) return page.status();
  if (store.traits().is_remote() && absl::IsNotFound(page.status())) return page.status();
  return page.ok() && !page->objects.empty() ? std::move(page->objects.front().key) : std::string();
}

}  // namespace

bool IsFolder(const ParsedUri& uri, Links links) {
  if (uri.scheme != ParsedUri::Scheme::kFile) return false;
  std::error_code ignored;
  return std::filesystem::is_directory(links == Links::kFollow ? std::filesystem::status(uri.path, ignored)
                                                               : std::filesystem::symlink_status(uri.path, ignored));
}

absl::StatusOr<ObjectInfo> FindObject(const Location& location, std::string_view use, const std::stop_token& stop) {
  ObjectStore& store = *location.store;
  absl::StatusOr<ObjectInfo> object = HeadBlocking(store, location.prefix, stop);
  if (!absl::IsNotFound(object.status())) return object;
  ASSIGN_OR_RETURN(const std::string below, FirstKey(store, AsFolder(location.prefix), stop));
  if (below.empty()) return object;
  return absl::NotFoundError(fmt::format("{}: there is no such object; add --recursive to {} what is below it",
                                         store.Uri(location.prefix), use));
}

absl::StatusOr<ObjectInfo> FindOneObject(const Location& location) {
  ObjectStore& store = *location.store;
  absl::StatusOr<ObjectInfo> object = HeadBlocking(store, location.prefix);
  if (!absl::IsNotFound(object.status())) return object;
  const std::string folder = AsFolder(location.prefix);
  ASSIGN_OR_RETURN(std::string first, FirstKey(store, folder));
  const bool below = !first.empty();
  if (!below && store.traits().is_remote()) {  // the beginning of a file's name is nothing that can be listed
    ASSIGN_OR_RETURN(first, FirstKey(store, location.prefix));
  }
  if (first.empty()) return object;
  const std::string& begin = below ? folder : location.prefix;
  const bool deeper = first.find('/', begin.size()) != std::string::npos;
  return absl::NotFoundError(
      fmt::format("{0}: there is no such object, but {1}; `millrace ls {2}` lists them, and `millrace cat '{2}{3}'` "
                  "writes them all",
                  store.Uri(location.prefix), below ? "objects are below it" : "the names of others begin so",
                  store.Uri(begin), deeper ? "**" : "*"));
}

}  // namespace millrace
