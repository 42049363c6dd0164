#include <algorithm>
#include <cerrno>
#include <mutex>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "mount/mount_server.h"
#include "transfer/copy_object.h"

/// Files and folders get other names.

namespace millrace {

namespace {

// A store copies large objects at this rate or faster, so they have more time.
constexpr uint64_t kCopiedPerSecond = uint64_t{32} << 20;
constexpr int kRenamedAtOnce = 16;  // files of a folder

}  // namespace

// The mount may know an older version of the target than the store.
absl::Status Mount::Server::CheckTarget(const std::string& to, bool no_replace, const Patience& patience) {
  if (!options_.no_overwrite && !no_replace) return absl::OkStatus();
  const absl::StatusOr<Node> there = tree_.Look(to, patience);
  if (!there.ok()) return absl::IsNotFound(there.status()) ? absl::OkStatus() : there.status();
  inodes_.Outdate(to);
  return absl::AlreadyExistsError(store_.Uri(to) +
                                  (no_replace ? ": exists" : ": exists, and the mount has --no-overwrite"));
}

// Lets the store copy the file. If the store does not copy, the bytes pass through this machine.
absl::StatusOr<ObjectInfo> Mount::Server::CopyFile(const Node& from, const std::string& to, bool only_if_absent,
                                                   const Patience& patience) {
  const ObjectInfo source{.key = from.key, .size = from.size, .etag = from.etag, .modified_ms = from.modified_ms};
  if (!store_.CopiesFrom(store_)) {
    ASSIGN_OR_RETURN(CopiedObject copied, CopyObject(store_, source, store_, to, {.only_if_absent = only_if_absent}));
    return std::move(copied.info);
  }
  std::stop_source stop;
  CopyOptions options;
  options.stop = stop.get_token();
  options.only_if_absent = only_if_absent;
  Completion<absl::StatusOr<ObjectInfo>> call;
  store_.Copy(store_, source, to, std::move(options), call.Callback());
  Patience longer = patience;
  longer.deadline += std::chrono::seconds(from.size / kCopiedPerSecond);
  absl::StatusOr<ObjectInfo> copy = longer.Wait(call, store_.Uri(to));
  if (copy.ok()) return copy;
  stop.request_stop();
  if (!absl::IsUnimplemented(copy.status())) return copy.status();
  ASSIGN_OR_RETURN(CopiedObject copied, CopyObject(store_, source, store_, to, {.only_if_absent = only_if_absent}));
  return std::move(copied.info);
}

// Removes the object that was copied, unless it was replaced by another one. The look is for stores that do not know
// the condition.
absl::Status Mount::Server::DeleteSource(const Node& copied, const Patience& patience) {
  const absl::StatusOr<Node> now = tree_.Look(copied.key, patience);
  if (absl::IsNotFound(now.status())) return absl::OkStatus();
  RETURN_IF_ERROR(now.status());
  if (now->etag != copied.etag) {
    return RefusedWith(EBUSY, store_.Uri(copied.key) +
                                  ": another program replaced it while it was renamed; both files are there, rename "
                                  "it again");
  }
  return DeleteVersion(copied, patience);
}

absl::Status Mount::Server::RenameFile(const std::string& from, const std::string& to, bool no_replace,
                                       const Patience& patience) {
  // A file that is open moves with its name: all of it is in the store first.
  const std::shared_ptr<WrittenFile> moved = staging_ == nullptr ? nullptr : local_.Find(from);
  if (moved != nullptr) RETURN_IF_ERROR(CommitFile(moved, patience));
  ASSIGN_OR_RETURN(const Node now, tree_.Look(from, patience));
  RETURN_IF_ERROR(CheckTarget(to, no_replace, patience));
  std::shared_ptr<WrittenFile> replaced;
  if (staging_ != nullptr && (local_.Find(to) != nullptr || inodes_.NumberOf(to) != 0)) {
    std::optional<Node> there = inodes_.Find(inodes_.NumberOf(to));
    if (const auto open = local_.Find(to)) there = open->node();
    if (there && !there->is_folder()) {
      ASSIGN_OR_RETURN(replaced, KeepForReaders(*there, patience));
    }
  }
  const absl::StatusOr<ObjectInfo> copy = CopyFile(now, to, no_replace || options_.no_overwrite, patience);
  if (!copy.ok()) {
    if (absl::IsAlreadyExists(copy.status())) inodes_.Outdate(to);  // made since CheckTarget has looked
    if (replaced != nullptr) local_.End(replaced, /*if_idle=*/true);
    return copy.status();
  }
  if (replaced != nullptr) {
    RETURN_IF_ERROR(replaced->Unlink(patience).status());
    local_.Unname(*replaced);
    local_.End(replaced, /*if_idle=*/true);
  }
  const absl::Status deleted = DeleteSource(now, patience);
  ahead_.Forget(from);
  ahead_.Forget(to);
  inodes_.Outdate(to);
  if (!deleted.ok()) inodes_.Outdate(from);
  RETURN_IF_ERROR(deleted);
  KeepFolderOf(from);
  // The kernel keeps the number that the source has, whose bytes are the same.
  const uint64_t inode = moved != nullptr ? moved->inode : inodes_.NumberOf(from);
  Node node = tree_.FileNode(*copy, to);
  node.size = now.size;
  if (node.modified_ms == 0) node.modified_ms = now.modified_ms;
  attributes_.Rename(from, to);
  attributes_.Change(to, [&](FileAttributes& attributes) {
    // The time of the copy is not that of the last change.
    const bool known = attributes.version == now.etag && attributes.modified;
    attributes.version = node.etag;
    if (known) return;
    attributes.modified = {.tv_sec = now.modified_ms / 1000, .tv_nsec = now.modified_ms % 1000 * 1'000'000};
    attributes.accessed = attributes.modified;
  });
  if (moved != nullptr) {
    local_.Rename(moved, to);
    moved->Rename(node, patience);
  }
  inodes_.Assign(inode, std::move(node));
  ++commits_;
  return absl::OkStatus();
}

// Renames file by file, so it is not atomic, and what fails leaves the others where they are. A program that looks
// meanwhile sees some files here and some there.
absl::Status Mount::Server::RenameFolder(const std::string& from, const std::string& to, const Patience& patience) {
  const auto limit = patience.deadline - std::chrono::steady_clock::now();
  const auto next_patience = [&] { return Patience{std::chrono::steady_clock::now() + limit, patience.interrupted}; };
  if (staging_ != nullptr) {
    for (const auto& file : local_.FilesBelow(from)) RETURN_IF_ERROR(CommitFile(file, next_patience()));
  }
  std::vector<std::string> keys;
  ListOptions options{.prefix = from};
  do {
    Completion<absl::StatusOr<ListPage>> call;
    store_.List(options, call.Callback());
    const absl::StatusOr<ListPage> page = next_patience().Wait(call, store_.Uri(from));
    if (absl::IsNotFound(page.status())) break;  // a folder of files without that folder
    RETURN_IF_ERROR(page.status());
    for (const ObjectInfo& object : page->objects) {
      if (object.key != from) keys.push_back(object.key);
    }
    options.continuation = page->continuation;
  } while (!options.continuation.empty());
  if (!keys.empty() && staging_ == nullptr) {
    return RefusedWith(EXDEV,
                       store_.Uri(from) + ": folders are not renamed by a mount with --no-staging; mv copies it");
  }
  std::mutex mutex;
  absl::Status first_error;
  {
    ThreadPool threads(kRenamedAtOnce, "mount-rename");  // its end waits for them
    for (const std::string& key : keys) {
      threads.Submit([&, key] {
        std::unique_lock lock(mutex);
        if (!first_error.ok()) return;
        lock.unlock();
        absl::Status renamed = absl::ResourceExhaustedError("there is no memory");
        try {
          renamed = RenameFile(key, to + key.substr(from.size()), /*no_replace=*/false, next_patience());
        } catch (const std::bad_alloc&) {
        }
        lock.lock();
        first_error.Update(renamed);
      });
    }
  }
  RETURN_IF_ERROR(first_error);
  if (!local_.RenameFolder(from, to)) return RefusedWith(ENOSPC, store_.Uri(to) + ": too many empty folders");
  if (!store_.traits().is_folder()) RETURN_IF_ERROR(Delete(from, next_patience()));
  KeepFolderOf(from);
  attributes_.RenameFolder(from, to);
  inodes_.MoveFolder(from, to);
  return absl::OkStatus();
}

// A target that is there must be of the same kind, and, if it is a folder, empty.
absl::Status Mount::Server::CheckReplaced(const Node& from, const Node& to, bool no_replace, const Patience& patience) {
  const std::string uri = store_.Uri(to.key);
  if (no_replace) return absl::AlreadyExistsError(uri + ": exists");
  if (to.is_folder() != from.is_folder()) {
    return RefusedWith(to.is_folder() ? EISDIR : ENOTDIR, uri + ": is of the other kind");
  }
  if (!to.is_folder()) {
    if (!options_.no_overwrite) return absl::OkStatus();
    return RefusedWith(EEXIST, uri + ": there is an object already, and the mount has --no-overwrite");
  }
  ASSIGN_OR_RETURN(const bool has_objects, tree_.HasBelow(to.key, patience));
  if (has_objects || local_.HasBelow(to.key)) return RefusedWith(ENOTEMPTY, uri + ": is not empty");
  return absl::OkStatus();
}

// Returns true if no object has this key, which a link is to get. A link that has it is hidden by a file, and replaced
// with it. A file that has it is another name's, and stays.
absl::StatusOr<bool> Mount::Server::IsFreeForLink(const std::string& key, const Patience& patience) const {
  const absl::StatusOr<Node> object = tree_.Look(key, patience);
  if (absl::IsNotFound(object.status())) return true;
  RETURN_IF_ERROR(object.status());
  if (tree_.IsLink(*object)) return false;
  return absl::AlreadyExistsError(store_.Uri(key) + ": is a file, whose name the link would need");
}

absl::Status Mount::Server::Rename(Request request, uint64_t parent, const char* name, uint64_t new_parent,
                                   const char* new_name, unsigned flags) {
  RETURN_IF_ERROR(CheckWritable());
  constexpr unsigned kNoReplace = 1;  // RENAME_NOREPLACE
  if ((flags & ~kNoReplace) != 0) return RefusedWith(EINVAL, "exchanging two files is not possible");
  const bool no_replace = (flags & kNoReplace) != 0;
  const Patience patience = PatienceOf(request);
  ASSIGN_OR_RETURN(const std::string from, KeyOf(parent, name));
  ASSIGN_OR_RETURN(const std::string to, KeyOf(new_parent, new_name));
  if (staging_ == nullptr) {
    RETURN_IF_ERROR(AwaitStream(from, patience));
    RETURN_IF_ERROR(AwaitStream(to, patience));
  }
  if (from == to) {
    fuse_reply_err(request, 0);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Node node, FindShown(parent, name, from, patience));
  if (!node.is_folder()) RETURN_IF_ERROR(CheckNoLinkKey(to));
  const absl::StatusOr<Node> there = FindShown(new_parent, new_name, to, patience);
  if (there.ok()) {
    RETURN_IF_ERROR(CheckReplaced(node, *there, no_replace, patience));
  } else if (!absl::IsNotFound(there.status())) {
    return there.status();
  }
  std::string target = node.is_folder() ? to + "/" : to;
  bool only_if_absent = no_replace;
  if (tree_.IsLink(node)) {
    ASSIGN_OR_RETURN(target, LinkKeyOf(to, new_name));
    if (!there.ok() || there->key != target) {
      ASSIGN_OR_RETURN(const bool is_free, IsFreeForLink(target, patience));
      only_if_absent = only_if_absent || is_free;
    }
  }
  RETURN_IF_ERROR(node.is_folder() ? RenameFolder(node.key, target, patience)
                                   : RenameFile(node.key, target, only_if_absent, patience));
  // A link and a file of one name are two objects.
  if (there.ok() && !there->is_folder() && there->key != target) RETURN_IF_ERROR(RemoveObject(*there, patience));
  NoteChangeBeside(from);
  NoteChangeBeside(to);
  fuse_reply_err(request, 0);
  return absl::OkStatus();
}

}  // namespace millrace
