#include "transfer/key_pattern.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "store/glob.h"
#include "store/uri.h"

namespace millrace {

namespace {

std::string Unescaped(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 1 < text.size()) ++i;
    out += text[i];
  }
  return out;
}

// Returns the part of a pattern before the part that has its first wildcard: "" or ending with '/'.
std::string_view FolderOf(std::string_view pattern) {
  const size_t wildcard = pattern.find_first_of("*?[");
  return pattern.substr(0, pattern.substr(0, wildcard).rfind('/') + 1);
}

absl::StatusOr<bool> Exists(const Location& location, Named named, const std::stop_token& stop) {
  if (named == Named::kObject) {
    if (location.prefix.ends_with('/')) return false;  // no object has such a name
    const absl::Status status = HeadBlocking(*location.store, location.prefix, stop).status();
    // A store that hides what is not there (403) is asked again, by the listing.
    if (absl::IsNotFound(status) || absl::IsPermissionDenied(status) || absl::IsInvalidArgument(status)) return false;
    RETURN_IF_ERROR(status);
    return true;
  }
  ListOptions options;
  options.prefix = named == Named::kFolder ? AsFolder(location.prefix) : location.prefix;
  options.max_keys = 1;
  ASSIGN_OR_RETURN(const ListPage page, ListBlocking(*location.store, std::move(options), stop));
  return !page.objects.empty();
}

// Looks at the stop for each page: a store that answers at once is never waited for.
absl::Status ForEachPageUntil(const std::stop_token& stop, ObjectStore& store, const std::string& prefix,
                              const char* delimiter, PageSink each) {
  const auto each_of_all = [&](const ListPage& page) {
    return stop.stop_requested() ? absl::CancelledError(fmt::format("{}: interrupted", store.Uri(prefix))) : each(page);
  };
  return ForEachPage(store, prefix, delimiter, each_of_all, stop);
}

class Expander {
 public:
  Expander(const Pattern& pattern, const ExpandOptions& options, PageSink each)
      : store_(*pattern.store), pattern_(pattern.pattern), options_(options), each_(each) {}

  // Finds the keys below `folder` that match, of which the pattern's first `done` bytes speak.
  absl::Status Walk(const std::string& folder, size_t done) {
    const std::string_view rest = std::string_view(pattern_).substr(done);
    if (rest.empty()) return GiveFolder(folder);
    const size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    const size_t next = slash == rest.npos ? pattern_.size() : done + slash + 1;
    if (part.find("**") != part.npos) return WalkAll(folder, rest);
    if (slash != rest.npos && !HasWildcard(part)) return Walk(folder + Unescaped(part) + '/', next);
    return ListPages(folder + GlobLiteralPrefix(part), "/", [&](const ListPage& page) {
      return Match(folder, part, slash == rest.npos ? std::string::npos : next, page);
    });
  }

 private:
  // If `next` is npos, `part` is the pattern's last.
  absl::Status Match(const std::string& folder, std::string_view part, size_t next, const ListPage& page) {
    const bool last = next == std::string::npos;
    const auto matches = [&](std::string_view name) { return GlobMatches(part, name.substr(folder.size())); };
    ListPage found;
    if (last) {
      for (const ObjectInfo& object : page.objects) {
        if (matches(object.key)) found.objects.push_back(object);
      }
    }
    std::vector<std::string> folders;
    for (const std::string& prefix : page.common_prefixes) {
      if (matches(std::string_view(prefix).substr(0, prefix.size() - 1))) folders.push_back(prefix);
    }
    if (last && options_.folders && !options_.below) found.common_prefixes = std::exchange(folders, {});
    if (!found.objects.empty() || !found.common_prefixes.empty()) RETURN_IF_ERROR(each_(found));
    for (const std::string& prefix : folders) RETURN_IF_ERROR(last ? GiveFolder(prefix) : Walk(prefix, next));
    return absl::OkStatus();
  }

  absl::Status GiveFolder(const std::string& folder) {
    if (options_.below) return ListPages(folder, "", each_);
    if (!options_.folders) return absl::OkStatus();
    ListPage page;
    page.common_prefixes.push_back(folder);
    return each_(page);
  }

  // "**": every key may match.
  absl::Status WalkAll(const std::string& folder, std::string_view rest) {
    return ListPages(folder + GlobLiteralPrefix(rest), "", [&](const ListPage& page) {
      ListPage found;
      for (const ObjectInfo& object : page.objects) {
        if (Wanted(rest, std::string_view(object.key).substr(folder.size()))) found.objects.push_back(object);
      }
      return found.objects.empty() ? absl::OkStatus() : each_(found);
    });
  }

  bool Wanted(std::string_view rest, std::string_view name) const {
    if (GlobMatches(rest, name)) return true;
    for (size_t slash = name.find('/'); options_.below && slash != name.npos; slash = name.find('/', slash + 1)) {
      if (GlobMatches(rest, name.substr(0, slash)) || GlobMatches(rest, name.substr(0, slash + 1))) return true;
    }
    return false;
  }

  absl::Status ListPages(const std::string& prefix, const char* delimiter, PageSink each) const {
    return ForEachPageUntil(options_.stop, store_, prefix, delimiter, each);
  }

  ObjectStore& store_;
  const std::string& pattern_;
  const ExpandOptions& options_;
  PageSink each_;
};

}  // namespace

std::string AsFolder(std::string prefix) {
  if (!prefix.empty() && !prefix.ends_with('/')) prefix += '/';
  return prefix;
}

bool IsFolderMarker(const ObjectInfo& object) {
  return object.size == 0 && object.key.ends_with('/');
}

bool IsOwnFile(std::string_view name) {
  size_t at = name.find(kDatasetFolder);
  while (at != name.npos && at > 0 && name[at - 1] != '/') at = name.find(kDatasetFolder, at + 1);
  return at != name.npos;
}

absl::StatusOr<std::optional<Pattern>> OpenPattern(Stores& stores, const std::string& uri, Named named,
                                                   const std::stop_token& stop) {
  ASSIGN_OR_RETURN(const ParsedUri parsed, ParseUri(uri));
  if (!HasWildcard(parsed.path)) return std::nullopt;
  Pattern pattern;
  pattern.uri = uri;
  if (parsed.scheme == ParsedUri::Scheme::kFile) {
    std::error_code ignored;  // what cannot be looked at is reported by the listing
    if (std::filesystem::exists(std::filesystem::symlink_status(parsed.path, ignored))) return std::nullopt;
    const std::string_view folder = FolderOf(parsed.path);
    ASSIGN_OR_RETURN(
        const Location location,
        stores.Open(folder.empty() ? "." : "file://" + std::filesystem::absolute(Unescaped(folder)).string()));
    pattern.store = location.store;
    pattern.pattern = parsed.path.substr(folder.size());
    return pattern;
  }
  ASSIGN_OR_RETURN(const Location location, stores.Open(uri));
  ASSIGN_OR_RETURN(const bool exists, Exists(location, named, stop));
  if (exists) return std::nullopt;
  pattern.store = location.store;
  pattern.pattern = location.prefix;
  pattern.folder = Unescaped(FolderOf(pattern.pattern));
  return pattern;
}

absl::Status Expand(const Pattern& pattern, const ExpandOptions& options, PageSink each) {
  return Expander(pattern, options, each).Walk("", 0);
}

absl::Status NothingMatches(const Pattern& pattern) {
  return absl::NotFoundError(fmt::format(
      "{}: nothing matches this pattern ('*' does not cross '/', '**' does; '\\*' is a star itself)", pattern.uri));
}

absl::Status ForEachObject(ObjectStore& store, const std::string& prefix, ObjectSink each,
                           const std::stop_token& stop) {
  return ForEachPageUntil(stop, store, prefix, "", [&](const ListPage& page) -> absl::Status {
    for (const ObjectInfo& object : page.objects) RETURN_IF_ERROR(each(object));
    return absl::OkStatus();
  });
}

absl::Status ExpandObjects(const Pattern& pattern, bool recursive, ObjectSink each, const std::stop_token& stop) {
  bool found = false;
  bool folders = false;
  absl::Status status = Expand(pattern, {.folders = true, .below = recursive, .stop = stop}, [&](const ListPage& page) {
    folders = folders || !page.common_prefixes.empty();
    for (const ObjectInfo& object : page.objects) {
      found = true;
      RETURN_IF_ERROR(each(object));
    }
    return absl::OkStatus();
  });
  if (!status.ok() || found) return status;
  if (folders) {
    return absl::NotFoundError(fmt::format("{}: only folders match; add --recursive for what is below", pattern.uri));
  }
  return NothingMatches(pattern);
}

}  // namespace millrace
