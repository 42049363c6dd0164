#include <fcntl.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "mount/mount_server.h"

/// Changes the attributes of files and folders, and makes and removes names.

namespace millrace {

namespace {

constexpr mode_t kPermissions = 07777;

timespec TimeNow() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return now;
}

}  // namespace

// ---- Attributes

// If no program has the file open to write, the new size is a version at once.
absl::Status Mount::Server::SetSize(uint64_t inode, uint64_t size, const fuse_file_info* file,
                                    const Patience& patience) {
  if (file != nullptr && file->fh != 0 && FileOf(*file).written != nullptr) {
    return FileOf(*file).written->Truncate(size, patience);
  }
  if (staging_ == nullptr) {
    ASSIGN_OR_RETURN(const Node node, Fresh(inode, patience));
    if (node.size == size) return absl::OkStatus();
    return RefusedWith(EOPNOTSUPP, store_.Uri(node.key) + ": a mount with --no-staging cuts and extends no objects");
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<WrittenFile> written, OpenWritten(inode, patience));
  absl::Status cut;
  if (options_.no_overwrite && written->in_store() && written->size() != size) {
    cut = RefusedWith(EEXIST, store_.Uri(written->key()) + ": there is an object, and the mount has --no-overwrite");
  } else {
    cut = written->Truncate(size, patience);
  }
  if (cut.ok() && written->writing == 0) cut = CommitFile(written, patience);
  CloseWriter(written, /*closed=*/true);
  return cut;
}

absl::Status Mount::Server::SetAttributes(Request request, uint64_t inode, const struct stat& wanted, int which,
                                          const fuse_file_info* file) {
  RETURN_IF_ERROR(CheckWritable());
  const Patience patience = PatienceOf(request);
  if ((which & FUSE_SET_ATTR_SIZE) != 0) {
    RETURN_IF_ERROR(SetSize(inode, static_cast<uint64_t>(wanted.st_size), file, patience));
  }
  std::shared_ptr<WrittenFile> written = ShownFile(local_.FindInode(inode));
  if (file != nullptr && file->fh != 0 && FileOf(*file).written != nullptr) written = FileOf(*file).written;
  Node node;
  if (written != nullptr) {
    node = written->node();
  } else {
    ASSIGN_OR_RETURN(node, Fresh(inode, patience));
  }
  constexpr int kKept = FUSE_SET_ATTR_MODE | FUSE_SET_ATTR_UID | FUSE_SET_ATTR_GID | FUSE_SET_ATTR_MTIME |
                        FUSE_SET_ATTR_MTIME_NOW | FUSE_SET_ATTR_ATIME | FUSE_SET_ATTR_ATIME_NOW;
  if ((which & kKept) != 0) {
    const timespec now = TimeNow();
    attributes_.Change(node.key, [&](FileAttributes& kept) {
      if ((which & FUSE_SET_ATTR_MODE) != 0) kept.mode = wanted.st_mode & kPermissions;
      if ((which & FUSE_SET_ATTR_UID) != 0) kept.uid = wanted.st_uid;
      if ((which & FUSE_SET_ATTR_GID) != 0) kept.gid = wanted.st_gid;
      if (kept.version != node.etag) {
        kept.version = node.etag;
        kept.modified.reset();
        kept.accessed.reset();
      }
      if ((which & FUSE_SET_ATTR_MTIME) != 0) kept.modified = wanted.st_mtim;
      if ((which & FUSE_SET_ATTR_MTIME_NOW) != 0) kept.modified = now;
      if ((which & FUSE_SET_ATTR_ATIME) != 0) kept.accessed = wanted.st_atim;
      if ((which & FUSE_SET_ATTR_ATIME_NOW) != 0) kept.accessed = now;
    });
    if (written != nullptr && (which & FUSE_SET_ATTR_MODE) != 0) written->set_mode(wanted.st_mode & kPermissions);
    if (written != nullptr && (which & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW)) != 0) {
      const timespec& set = (which & FUSE_SET_ATTR_MTIME_NOW) != 0 ? now : wanted.st_mtim;
      written->set_modified_ms(int64_t{set.tv_sec} * 1000 + set.tv_nsec / 1'000'000);
    }
  }
  struct stat info = StatOf(node, inode);
  if (written != nullptr && written->unlinked()) info.st_nlink = 0;
  fuse_reply_attr(request, &info, written != nullptr ? 0 : Validity());
  return absl::OkStatus();
}

// ---- Objects

// Deletes only the version that is known. In a folder the name counts, as for any program: the ETag of a file changes,
// too, when another name of it is removed.
absl::Status Mount::Server::DeleteVersion(const Node& file, const Patience& patience) {
  if (file.etag.empty() || store_.traits().is_folder()) return Delete(file.key, patience);
  Completion<absl::Status> call;
  store_.DeleteVersion(file.key, file.etag, call.Callback());
  absl::Status deleted = patience.Wait(call, store_.Uri(file.key));
  if (!absl::IsFailedPrecondition(deleted)) return deleted;
  return RefusedWith(EBUSY, store_.Uri(file.key) + ": another program has replaced it meanwhile; it is not removed");
}

absl::Status Mount::Server::Delete(const std::string& key, const Patience& patience) {
  Completion<absl::Status> call;
  store_.Delete({key}, [done = call.Callback()](std::vector<absl::Status> statuses) { done(std::move(statuses[0])); });
  return patience.Wait(call, store_.Uri(key));
}

// ---- Folders

// A folder that was there for the program stays there when the last thing in it goes. (If there are too many folders to
// be remembered, it ends with what was in it, as it does for all other machines.)
void Mount::Server::KeepFolderOf(const std::string& key) {
  const size_t slash = key.substr(0, key.size() - 1).rfind('/');
  if (slash == key.npos || slash + 1 <= prefix_.size()) return;
  (void)local_.AddFolder(key.substr(0, slash + 1));
}

// A file belongs to the user who makes it, so that they can open it again. Those of the mount's group share it, as in a
// folder with setgid, unless its mode says otherwise. If root makes it, the owner of the mount has it, unless it is
// private.
void Mount::Server::NoteCreator(Request request, const std::string& key, mode_t permissions, bool is_usual) {
  const fuse_ctx& creator = *fuse_req_ctx(request);
  const bool is_anothers = creator.uid != options_.uid;
  if (is_usual && (!is_anothers || creator.uid == 0)) return;
  attributes_.Change(key, [&](FileAttributes& attributes) {
    if (is_anothers) attributes.uid = creator.uid;
    if (is_usual) return;
    attributes.mode = permissions;
    if (is_anothers) attributes.gid = creator.gid;
  });
}

// A name in its folder is made, removed, or another file's: the folder has changed, as on a disk.
void Mount::Server::NoteChangeBeside(const std::string& key) {
  const size_t slash = key.substr(0, key.size() - 1).rfind('/');
  const timespec now = TimeNow();
  attributes_.Change(slash == key.npos ? "" : key.substr(0, slash + 1),
                     [&](FileAttributes& folder) { folder.modified = now; });
}

absl::Status Mount::Server::MakeFolder(Request request, uint64_t parent, const char* name, mode_t mode) {
  RETURN_IF_ERROR(CheckWritable());
  ASSIGN_OR_RETURN(const std::string key, KeyOf(parent, name));
  if (local_.Find(key) != nullptr) return absl::AlreadyExistsError(store_.Uri(key) + ": exists");
  const absl::StatusOr<Node> there = Find(parent, name, PatienceOf(request));
  if (there.ok()) return absl::AlreadyExistsError(store_.Uri(key) + ": exists");
  if (!absl::IsNotFound(there.status())) return there.status();
  if (!local_.AddFolder(key + "/")) {
    return RefusedWith(ENOSPC, store_.Uri(key) + ": too many folders were made and left empty");
  }
  const Node node = tree_.FolderNode(key + "/");
  attributes_.Remove(node.key);
  const timespec now = TimeNow();
  attributes_.Change(node.key, [&](FileAttributes& attributes) { attributes.modified = attributes.accessed = now; });
  NoteChangeBeside(node.key);
  const mode_t permissions = mode & kPermissions & ~options_.umask;
  NoteCreator(request, node.key, permissions, permissions == (0777 & ~options_.umask));
  fuse_entry_param entry{};
  entry.entry_timeout = entry.attr_timeout = Validity();
  entry.ino = inodes_.Remember(node);
  entry.attr = StatOf(node, entry.ino);
  if (fuse_reply_entry(request, &entry) != 0) inodes_.Forget(entry.ino, 1);
  return absl::OkStatus();
}

absl::Status Mount::Server::RemoveFolder(Request request, uint64_t parent, const char* name) {
  RETURN_IF_ERROR(CheckWritable());
  const Patience patience = PatienceOf(request);
  ASSIGN_OR_RETURN(const std::string key, KeyOf(parent, name));
  if (local_.Find(key) != nullptr) return RefusedWith(ENOTDIR, store_.Uri(key) + ": is no folder");
  ASSIGN_OR_RETURN(const Node node, Find(parent, name, patience));
  if (!node.is_folder()) return RefusedWith(ENOTDIR, store_.Uri(node.key) + ": is no folder");
  ASSIGN_OR_RETURN(const bool has_objects, tree_.HasBelow(node.key, patience));
  if (has_objects || local_.HasBelow(node.key)) {
    return RefusedWith(ENOTEMPTY, store_.Uri(node.key) + ": is not empty");
  }
  // Other programs mark empty folders by an object of the folder's own key. In a folder of files there are no such
  // objects.
  if (!store_.traits().is_folder()) RETURN_IF_ERROR(Delete(node.key, patience));
  local_.RemoveFolder(node.key);
  attributes_.Remove(node.key);
  KeepFolderOf(node.key);
  NoteChangeBeside(node.key);
  fuse_reply_err(request, 0);
  return absl::OkStatus();
}

// ---- Removing

// The bytes of an object that goes while programs have it open come into the staging folder, as far as there is room.
// Null if nobody has it open.
absl::StatusOr<std::shared_ptr<WrittenFile>> Mount::Server::KeepForReaders(const Node& node, const Patience& patience) {
  if (staging_ == nullptr) return nullptr;
  std::shared_ptr<WrittenFile> file = local_.Find(node.key);
  if (file == nullptr) {
    const uint64_t inode = inodes_.NumberOf(node.key);
    if (inode == 0 || !local_.HasReaders(inode)) return nullptr;
    file = std::make_shared<WrittenFile>(services_, node);
    file->inode = inode;
    if (!local_.Begin(file)) return local_.Find(node.key);
    (void)local_.Detach(*file);
  }
  if (const absl::Status kept = file->Fetch(patience); !kept.ok()) Warn(kept);  // reads tell ESTALE then
  return file;
}

// Removes the name of a file that programs have open, and the object.
absl::Status Mount::Server::RemoveName(const std::shared_ptr<WrittenFile>& file, const Patience& patience) {
  ASSIGN_OR_RETURN(const std::optional<Node> there, file->Unlink(patience));
  if (there) {
    if (absl::Status deleted = DeleteVersion(*there, patience); !deleted.ok()) {
      file->Relink();
      local_.End(file, /*if_idle=*/true);
      return deleted;
    }
  }
  ForgetName(*file);
  local_.End(file, /*if_idle=*/true);
  return absl::OkStatus();
}

// Removes a file or link. Programs that have it open keep the bytes if the staging folder has room for them.
absl::Status Mount::Server::RemoveObject(const Node& node, const Patience& patience) {
  std::shared_ptr<WrittenFile> file = local_.Find(node.key);
  absl::Status removed;
  if (file == nullptr) {
    ASSIGN_OR_RETURN(file, KeepForReaders(node, patience));
    removed = file == nullptr ? DeleteVersion(node, patience) : RemoveName(file, patience);
  } else {
    if (file->in_store()) RETURN_IF_ERROR(KeepForReaders(file->node(), patience).status());
    removed = RemoveName(file, patience);
  }
  ahead_.Forget(node.key);
  inodes_.Outdate(node.key);
  if (removed.ok()) attributes_.Remove(node.key);
  return removed;
}

absl::Status Mount::Server::RemoveFile(Request request, uint64_t parent, const char* name) {
  RETURN_IF_ERROR(CheckWritable());
  const Patience patience = PatienceOf(request);
  ASSIGN_OR_RETURN(const std::string key, KeyOf(parent, name));
  if (staging_ == nullptr) RETURN_IF_ERROR(AwaitStream(key, patience));
  ASSIGN_OR_RETURN(const Node node, FindShown(parent, name, key, patience));
  if (node.is_folder()) return RefusedWith(EISDIR, store_.Uri(key) + ": is a folder");
  RETURN_IF_ERROR(RemoveObject(node, patience));
  KeepFolderOf(key);
  NoteChangeBeside(key);
  fuse_reply_err(request, 0);
  return absl::OkStatus();
}

// ---- libfuse

absl::Status Mount::Server::RefuseKind(const char* what) const {
  RETURN_IF_ERROR(CheckWritable());
  return RefusedWith(EPERM, fmt::format("{}: {} is not possible: an object is bytes", options_.folder, what));
}

void Mount::Server::AddChanges(fuse_lowlevel_ops& operations) {
  operations.setattr = [](Request request, fuse_ino_t inode, struct stat* wanted, int which, fuse_file_info* file) {
    AnswerChange(request, [&](Server& self) { return self.SetAttributes(request, inode, *wanted, which, file); });
  };
  operations.mkdir = [](Request request, fuse_ino_t parent, const char* name, mode_t mode) {
    AnswerChange(request, [&](Server& self) { return self.MakeFolder(request, parent, name, mode); });
  };
  operations.rmdir = [](Request request, fuse_ino_t parent, const char* name) {
    AnswerChange(request, [&](Server& self) { return self.RemoveFolder(request, parent, name); });
  };
  operations.unlink = [](Request request, fuse_ino_t parent, const char* name) {
    AnswerChange(request, [&](Server& self) { return self.RemoveFile(request, parent, name); });
  };
  // An object is bytes, and has one key. EPERM is what Linux says where a file system cannot have such a thing.
  operations.link = [](Request request, fuse_ino_t, fuse_ino_t, const char*) {
    AnswerChange(request, [](Server& self) { return self.RefuseKind("a second name"); });
  };
  operations.mknod = [](Request request, fuse_ino_t, const char*, mode_t, dev_t) {
    AnswerChange(request, [](Server& self) { return self.RefuseKind("a pipe, socket or device"); });
  };
  operations.rename = [](Request request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
                         const char* new_name, unsigned flags) {
    AnswerChange(request,
                 [&](Server& self) { return self.Rename(request, parent, name, new_parent, new_name, flags); });
  };
}

}  // namespace millrace
