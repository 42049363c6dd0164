#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "mount/mount_server.h"

/// Folders: their pages in the store, with what programs here have begun, as entries for the kernel.

namespace millrace {

namespace {

// Listing a folder makes the kernel hold its entries, and this process what they stand for: a few hundred bytes each,
// until the kernel needs its memory. So many at most come from listings.
constexpr size_t kMaxListedInodes = 500'000;

// An entry has this number if the kernel looks it up before it uses it. (Programs pass over 0.)
constexpr uint64_t kNoNumber = std::numeric_limits<uint32_t>::max();

bool Append(std::vector<char>& out, size_t size, size_t needed) {
  if (out.size() + needed > size) return false;
  out.resize(out.size() + needed);
  return true;
}

}  // namespace

absl::Status Mount::Server::OpenDirectory(Request request, uint64_t inode, fuse_file_info& file) {
  ASSIGN_OR_RETURN(const Node node, Known(inode));
  auto folder = std::make_unique<OpenFolder>();
  folder->key = node.key;
  file.fh = reinterpret_cast<uint64_t>(folder.get());
  if (fuse_reply_open(request, &file) == 0) (void)folder.release();  // ReleaseDirectory's
  return absl::OkStatus();
}

// Lists the page that follows. Files and folders that programs here have begun come last, unless the store has shown
// them.
absl::Status Mount::Server::NextPage(OpenFolder& folder, std::string continuation, const Patience& patience) {
  const uint64_t next = continuation.empty() ? 0 : folder.first + folder.page.entries.size();
  ASSIGN_OR_RETURN(RemoteTree::Page page, tree_.List(folder.key, std::move(continuation), patience));
  if (next == 0) folder.local = local_.NamesIn(folder.key);
  folder.page = std::move(page);
  folder.first = next;
  // A link of another machine gives way to a file or folder that a program here has begun.
  std::erase_if(folder.page.entries, [&](const RemoteTree::Entry& entry) {
    return tree_.IsLink(entry.node) && (folder.local.contains(entry.name) || folder.local.contains(entry.name + "/"));
  });
  for (const RemoteTree::Entry& entry : folder.page.entries) {
    folder.local.erase(entry.name);
    folder.local.erase(entry.name + "/");
  }
  if (!folder.page.continuation.empty()) return absl::OkStatus();
  for (const std::string& name : std::exchange(folder.local, {})) {
    const std::string key = folder.key + name;
    if (name.back() == '/') {
      folder.page.entries.push_back({name.substr(0, name.size() - 1), tree_.FolderNode(key)});
    } else if (const auto written = local_.Find(key)) {
      folder.page.entries.push_back({name, written->node()});
    }
  }
  return absl::OkStatus();
}

// Returns entry `number` of the folder, counted from 0, or null behind the last one. Going back begins the listing
// again.
absl::StatusOr<const RemoteTree::Entry*> Mount::Server::EntryAt(OpenFolder& folder, uint64_t number,
                                                                const Patience& patience) {
  if (!folder.begun || number < folder.first) {
    RETURN_IF_ERROR(NextPage(folder, "", patience));
    folder.begun = true;
  }
  while (number - folder.first >= folder.page.entries.size()) {
    if (folder.page.continuation.empty()) return nullptr;
    RETURN_IF_ERROR(NextPage(folder, folder.page.continuation, patience));
  }
  return &folder.page.entries[number - folder.first];
}

bool Mount::Server::AddDot(Request request, std::vector<char>& out, size_t size, const char* name, uint64_t inode,
                           uint64_t next, bool plus) const {
  const size_t at = out.size();
  fuse_entry_param entry{};  // inode 0: these are not told to the kernel as entries
  entry.attr.st_ino = inode;
  entry.attr.st_mode = S_IFDIR;
  const size_t needed = plus ? fuse_add_direntry_plus(request, nullptr, 0, name, &entry, 0)
                             : fuse_add_direntry(request, nullptr, 0, name, &entry.attr, 0);
  if (!Append(out, size, needed)) return false;
  if (plus) {
    fuse_add_direntry_plus(request, out.data() + at, needed, name, &entry, static_cast<off_t>(next));
  } else {
    fuse_add_direntry(request, out.data() + at, needed, name, &entry.attr, static_cast<off_t>(next));
  }
  return true;
}

bool Mount::Server::AddEntry(Request request, std::vector<char>& out, size_t size, const RemoteTree::Entry& found,
                             uint64_t next, bool plus) {
  const size_t at = out.size();
  const char* const name = found.name.c_str();
  fuse_entry_param entry{};
  if (!plus) {
    // The kernel looks it up before it uses it; until then it has no number of ours.
    entry.attr.st_ino = kNoNumber;
    entry.attr.st_mode = found.node.is_folder() ? S_IFDIR : tree_.IsLink(found.node) ? S_IFLNK : S_IFREG;
    const size_t needed = fuse_add_direntry(request, nullptr, 0, name, nullptr, 0);
    if (!Append(out, size, needed)) return false;
    fuse_add_direntry(request, out.data() + at, needed, name, &entry.attr, static_cast<off_t>(next));
    return true;
  }
  const size_t needed = fuse_add_direntry_plus(request, nullptr, 0, name, nullptr, 0);
  if (!Append(out, size, needed)) return false;
  // One that is being written is looked up by itself: its number is not that of any version. And if the kernel holds
  // very many already, it is only told of more when it uses them.
  const bool known = !options_.writable || local_.Find(found.node.key) == nullptr;
  if (known && inodes_.size() < kMaxListedInodes) {
    entry.entry_timeout = entry.attr_timeout = Validity();
    entry.ino = inodes_.Remember(found.node);
  }
  entry.attr = StatOf(found.node, entry.ino != 0 ? entry.ino : kNoNumber);
  fuse_add_direntry_plus(request, out.data() + at, needed, name, &entry, static_cast<off_t>(next));
  return true;
}

absl::Status Mount::Server::ReadDirectory(Request request, uint64_t inode, size_t size, off_t offset,
                                          const fuse_file_info& file, bool plus) {
  auto& folder = *reinterpret_cast<OpenFolder*>(file.fh);
  const Patience patience = PatienceOf(request);
  std::unique_lock lock(folder.mutex);
  std::vector<char> out;
  out.reserve(size);
  auto number = static_cast<uint64_t>(offset);
  constexpr uint64_t kDots = 2;
  for (; number < kDots; ++number) {
    if (!AddDot(request, out, size, number == 0 ? "." : "..", inode, number + 1, plus)) break;
  }
  for (; number >= kDots; ++number) {
    const absl::StatusOr<const RemoteTree::Entry*> entry = EntryAt(folder, number - kDots, patience);
    // The entries so far go out first: their inodes are counted.
    if (!entry.ok() && out.empty()) return entry.status();  // unlocks before Answer replies
    if (!entry.ok() || *entry == nullptr) break;
    if (!AddEntry(request, out, size, **entry, number + 1, plus)) break;
  }
  lock.unlock();  // after the reply the folder may be closed, by another thread
  fuse_reply_buf(request, out.data(), out.size());
  return absl::OkStatus();
}

}  // namespace millrace
