#include "mount/remote_tree.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include "store/checks.h"
#include "transfer/key_pattern.h"

namespace millrace {

namespace {

auto SendList(ObjectStore& store, ListOptions options) {
  Completion<absl::StatusOr<ListPage>> call;
  store.List(std::move(options), call.Callback());
  return call;
}

auto SendHead(ObjectStore& store, const std::string& key) {
  Completion<absl::StatusOr<ObjectInfo>> call;
  store.Head(key, {}, call.Callback());
  return call;
}

ListOptions AnyBelow(const std::string& folder) {
  return {.prefix = folder, .delimiter = "/", .start_after = {}, .continuation = {}, .max_keys = 1};
}

bool IsEmptyPage(const ListPage& page) {
  return page.objects.empty() && page.common_prefixes.empty();
}

constexpr std::string_view kRcloneLink = ".rclonelink";
constexpr uint64_t kMaxTargetBytes = 4095;  // the longest path that the kernel takes

}  // namespace

bool IsFileName(std::string_view name) {
  return !name.empty() && name.size() <= kMaxFileName && name != "." && name != ".." &&
         name.find('/') == std::string_view::npos && name.find('\0') == std::string_view::npos;
}

std::string LinkKey(const std::string& key) {
  return key + std::string(kRcloneLink);
}

bool IsLinkKey(std::string_view key) {
  if (!key.ends_with(kRcloneLink)) return false;
  key.remove_suffix(kRcloneLink.size());
  return IsFileName(key.substr(key.rfind('/') + 1));  // npos + 1 is 0
}

bool RemoteTree::IsLink(const Node& node) const {
  return links_ == Links::kAreLinks && node.size > 0 && node.size <= kMaxTargetBytes && IsLinkKey(node.key);
}

Node RemoteTree::FileNode(const ObjectInfo& info, const std::string& key) const {
  return {.key = key,
          .size = info.size,
          .modified_ms = info.modified_ms,
          .etag = info.etag,
          .fresh_until = std::chrono::steady_clock::now() + ttl_};
}

Node RemoteTree::FolderNode(std::string key) const {
  return {.key = std::move(key), .etag = {}, .fresh_until = std::chrono::steady_clock::now() + ttl_};
}

bool RemoteTree::ListsFolder(std::string_view name) const {
  constexpr std::string_view kOwn = kDatasetFolder.substr(0, kDatasetFolder.size() - 1);
  return IsFileName(name) && (own_files_ == OwnFiles::kShown || name != kOwn);
}

absl::StatusOr<Node> RemoteTree::Lookup(const std::string& folder, std::string_view name,
                                        const Patience& patience) const {
  if (!IsFileName(name)) return absl::NotFoundError("there is no file of such a name");
  const std::string key = folder + std::string(name);
  const std::string as_folder = key + "/";
  const std::string as_link = LinkKey(key);
  const bool may_be_link =
      links_ == Links::kAreLinks && name.size() + kRcloneLink.size() <= kMaxFileName && as_link.size() < kMaxKeyBytes;
  // All requests are sent at once, since only one of them finds something.
  auto below = SendList(store_, AnyBelow(as_folder));
  auto head = SendHead(store_, key);
  std::optional<decltype(head)> link;
  if (may_be_link) link = SendHead(store_, as_link);
  const absl::StatusOr<ListPage> page = patience.Wait(below, store_.Uri(as_folder));
  if (page.ok() && !IsEmptyPage(*page)) return FolderNode(as_folder);
  // In a folder of files a listing below a file finds nothing, or says that it is none.
  if (!page.ok() && !absl::IsNotFound(page.status())) return page.status();
  const absl::StatusOr<ObjectInfo> info = patience.Wait(head, store_.Uri(key));
  if (info.ok() && !IsLink(FileNode(*info, key))) return FileNode(*info, key);
  if (!info.ok() && (!link || !absl::IsNotFound(info.status()))) return info.status();
  if (link) {
    ASSIGN_OR_RETURN(const ObjectInfo target, patience.Wait(*link, store_.Uri(as_link)));
    Node node = FileNode(target, as_link);
    if (IsLink(node)) return node;
  }
  return absl::NotFoundError(store_.Uri(key) + ": there is no such file");
}

absl::StatusOr<Node> RemoteTree::Look(const std::string& key, const Patience& patience) const {
  auto head = SendHead(store_, key);
  ASSIGN_OR_RETURN(const ObjectInfo info, patience.Wait(head, store_.Uri(key)));
  return FileNode(info, key);
}

absl::StatusOr<bool> RemoteTree::Exists(const std::string& folder, const Patience& patience) const {
  auto below = SendList(store_, AnyBelow(folder));
  ASSIGN_OR_RETURN(const ListPage page, patience.Wait(below, store_.Uri(folder)));
  return !IsEmptyPage(page);
}

absl::StatusOr<bool> RemoteTree::HasBelow(const std::string& folder, const Patience& patience) const {
  ListOptions options = AnyBelow(folder);
  options.max_keys = 2;
  auto below = SendList(store_, std::move(options));
  const absl::StatusOr<ListPage> page = patience.Wait(below, store_.Uri(folder));
  if (absl::IsNotFound(page.status())) return false;  // a folder of files without that folder
  RETURN_IF_ERROR(page.status());
  return !page->common_prefixes.empty() ||
         std::any_of(page->objects.begin(), page->objects.end(), [&](const auto& info) { return info.key != folder; });
}

// A file or folder may have the name of a link, which would have `key` then. It is on this page, or on another one,
// since other keys may come between the three: "a", "a-1", "a.rclonelink", "a.txt", "a/x". The page is all from `first`
// to `last`; they are "" if the folder begins or ends with it.
absl::StatusOr<bool> RemoteTree::HidesLink(const std::string& key, const Page& page, std::string_view first,
                                           std::string_view last, const Patience& patience) const {
  const std::string_view name = std::string_view(key).substr(key.rfind('/') + 1);  // npos + 1 is 0
  const auto same = std::lower_bound(page.entries.begin(), page.entries.end(), name,
                                     [](const Entry& entry, std::string_view other) { return entry.name < other; });
  if (same != page.entries.end() && same->name == name) return true;
  if (last.starts_with(key)) {
    ASSIGN_OR_RETURN(const bool is_folder, Exists(key + "/", patience));
    if (is_folder) return true;
  }
  if (key >= first) return false;
  const absl::StatusOr<Node> file = Look(key, patience);
  if (absl::IsNotFound(file.status())) return false;
  RETURN_IF_ERROR(file.status());
  return !IsLink(*file);  // that one has another name
}

absl::StatusOr<RemoteTree::Page> RemoteTree::List(const std::string& folder, std::string continuation,
                                                  const Patience& patience) const {
  const bool is_first = continuation.empty();
  auto answer = SendList(
      store_, {.prefix = folder, .delimiter = "/", .start_after = {}, .continuation = std::move(continuation)});
  ASSIGN_OR_RETURN(ListPage listed, patience.Wait(answer, store_.Uri(folder)));
  Page page;
  page.continuation = std::move(listed.continuation);
  std::string last;  // of all keys of this page
  if (!listed.objects.empty()) last = listed.objects.back().key;
  if (!listed.common_prefixes.empty()) last = std::max(last, listed.common_prefixes.back());
  std::string first = last;
  if (!listed.objects.empty()) first = std::min(first, listed.objects.front().key);
  if (!listed.common_prefixes.empty()) first = std::min(first, listed.common_prefixes.front());
  for (std::string& prefix : listed.common_prefixes) {
    std::string name = prefix.substr(folder.size(), prefix.size() - folder.size() - 1);
    if (ListsFolder(name)) page.entries.push_back({std::move(name), FolderNode(std::move(prefix))});
  }
  const size_t folders = page.entries.size();
  const auto less = [](const Entry& entry, std::string_view name) { return entry.name < name; };
  std::sort(page.entries.begin(), page.entries.end(), [](const Entry& a, const Entry& b) { return a.name < b.name; });
  std::vector<Entry> files;
  std::vector<Entry> links;
  for (const ObjectInfo& object : listed.objects) {
    std::string name = object.key.substr(folder.size());
    if (!IsFileName(name)) continue;
    if (Node node = FileNode(object, object.key); IsLink(node)) {
      name.resize(name.size() - kRcloneLink.size());
      links.push_back({std::move(name), std::move(node)});
      continue;
    }
    const auto end = page.entries.begin() + static_cast<std::ptrdiff_t>(folders);
    const auto same = std::lower_bound(page.entries.begin(), end, name, less);
    if (same != end && same->name == name) continue;
    // Between a key and the folder of its name others may come: "a", "a-1", "a/x". So that may be on another page.
    if (!page.continuation.empty() && last.starts_with(object.key)) {
      ASSIGN_OR_RETURN(const bool is_folder, Exists(object.key + "/", patience));
      if (is_folder) continue;
    }
    files.push_back({std::move(name), FileNode(object, object.key)});
  }
  std::move(files.begin(), files.end(), std::back_inserter(page.entries));
  const auto by_name = [](const Entry& a, const Entry& b) { return a.name < b.name; };
  std::sort(page.entries.begin(), page.entries.end(), by_name);
  if (links.empty()) return page;
  std::vector<Entry> shown;
  for (Entry& link : links) {
    ASSIGN_OR_RETURN(const bool is_hidden, HidesLink(folder + link.name, page, is_first ? std::string_view() : first,
                                                     page.continuation.empty() ? std::string_view() : last, patience));
    if (!is_hidden) shown.push_back(std::move(link));
  }
  std::move(shown.begin(), shown.end(), std::back_inserter(page.entries));
  std::sort(page.entries.begin(), page.entries.end(), by_name);
  return page;
}

}  // namespace millrace
