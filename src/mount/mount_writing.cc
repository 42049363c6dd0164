#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/clock.h"
#include "mount/mount_server.h"
#include "mount/writer_process.h"

namespace millrace {

namespace {

// Of a store that holds it, a new file replaces nothing that another machine has made meanwhile.
PutOptions PutOf(bool replaces) {
  PutOptions options;
  options.only_if_absent = !replaces;
  return options;
}

// Not EPERM: libraries take that for "modes cannot be set", and report success.
absl::Status NeedsOverwrite(const std::string& uri) {
  return RefusedWith(EEXIST, uri +
                                 ": there is an object already; it can only be replaced as a whole, by a mount with "
                                 "--allow-overwrite");
}

// The error for a program that would change a part of an object.
absl::Status CannotChange(const std::string& uri, bool allow_overwrite) {
  if (!allow_overwrite) return NeedsOverwrite(uri);
  return RefusedWith(EROFS, uri + ": an object is not changed in part; open it with O_TRUNC, and write it as a whole");
}

absl::Status IsBeingWritten(const std::string& uri) {
  return RefusedWith(EBUSY, uri + ": is being written; close it first");
}

absl::Status WasAbandoned(const std::string& uri) {
  return RefusedWith(EIO, uri + ": the process that wrote it was killed, so nothing of it is kept; write it again");
}

// How long a call waits for a file that was closed by one process while another may have it open.
constexpr std::chrono::seconds kMaxSettling{5};

// So fast at least a store copies large objects: they are given more time.
constexpr uint64_t kCopiedPerSecond = uint64_t{32} << 20;

}  // namespace

absl::Status Mount::Server::CheckWritable() const {
  if (options_.writable) return absl::OkStatus();
  return RefusedWith(EROFS, fmt::format("{}: is mounted read-only; mount with --writable", options_.folder));
}

// OK if no file of that key is being written any more. An empty file that was closed ends a moment later: it is waited
// for. Others are refused.
absl::Status Mount::Server::Settle(const std::string& key, const Patience& patience) {
  const std::shared_ptr<WrittenFile> file = local_.Find(key);
  if (file == nullptr) return absl::OkStatus();
  if (!file->closed && !file->upload.finishing()) return IsBeingWritten(store_.Uri(key));
  Patience shorter = patience;
  shorter.deadline = std::min(patience.deadline, std::chrono::steady_clock::now() + kMaxSettling);
  const absl::Status ended = local_.WaitForEnd(key, shorter);
  return absl::IsDeadlineExceeded(ended) ? IsBeingWritten(store_.Uri(key)) : ended;
}

// A program that has closed a file reads what is in it now. But another process may have it open for long: until it has
// closed it, too, the object that is replaced is what others see.
absl::Status Mount::Server::AwaitReplacement(const std::string& key, const Patience& patience) {
  Patience shorter = patience;
  shorter.deadline = std::min(patience.deadline, std::chrono::steady_clock::now() + kMaxSettling);
  const absl::Status ended = local_.WaitForEnd(key, shorter);
  return absl::IsDeadlineExceeded(ended) ? absl::OkStatus() : ended;
}

// ---- Files

absl::StatusOr<std::shared_ptr<WrittenFile>> Mount::Server::BeginWriting(Request request, std::string key,
                                                                         bool replaces) {
  // What a program has read the kernel may well have, so that goes before blocks around reads at random.
  const auto make_room = [this](uint64_t bytes) {
    const uint64_t made = tier_.GiveBack(bytes);
    return made < bytes ? made + around_.GiveBack(bytes - made) : made;
  };
  auto file = std::make_shared<WrittenFile>(store_, memory_, std::move(key), PutOf(replaces), make_room);
  file->replaces = replaces;
  file->writer = ProcessOfThread(fuse_req_ctx(request)->pid);
  file->modified_ms = UnixMilliseconds();
  return file;
}

absl::Status Mount::Server::CreateFile(Request request, uint64_t parent, const char* name, fuse_file_info& file) {
  RETURN_IF_ERROR(CheckWritable());
  ASSIGN_OR_RETURN(std::string key, KeyOf(parent, name));
  if (local_.Find(key) != nullptr && (file.flags & O_EXCL) != 0) {
    return absl::AlreadyExistsError(store_.Uri(key) + ": there is such a file");
  }
  RETURN_IF_ERROR(Settle(key, PatienceOf(request)));
  const absl::StatusOr<Node> there = Find(parent, name, PatienceOf(request));
  if (!there.ok() && !absl::IsNotFound(there.status())) return there.status();
  bool replaces = false;
  if (there.ok()) {
    if ((file.flags & O_EXCL) != 0) return absl::AlreadyExistsError(store_.Uri(key) + ": there is such a file");
    if (there->is_folder()) return RefusedWith(EISDIR, store_.Uri(key) + ": is a folder");
    // The kernel did not know of it yet.
    if (!options_.allow_overwrite || (file.flags & O_TRUNC) == 0) {
      return CannotChange(store_.Uri(key), options_.allow_overwrite);
    }
    replaces = true;
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<WrittenFile> written, BeginWriting(request, std::move(key), replaces));
  const Node node = replaces ? *there : NodeOf(*written);
  fuse_entry_param entry{};
  entry.entry_timeout = Validity();
  entry.ino = inodes_.Remember(node);
  entry.attr = StatOf(node, entry.ino);
  written->inode = entry.ino;
  auto open = std::make_unique<OpenFile>();
  open->written = written;
  if (!local_.Begin(written)) {
    inodes_.Forget(entry.ino, 1);
    return IsBeingWritten(store_.Uri(written->key));
  }
  file.fh = reinterpret_cast<uint64_t>(open.get());
  file.direct_io = 1;
  if (fuse_reply_create(request, &entry, &file) == 0) {
    (void)open.release();  // ReleaseFile's
  } else {
    AbandonFile(*written);
    inodes_.Forget(entry.ino, 1);
  }
  return absl::OkStatus();
}

absl::Status Mount::Server::OpenToWrite(Request request, uint64_t inode, fuse_file_info& file) {
  RETURN_IF_ERROR(CheckWritable());
  ASSIGN_OR_RETURN(const Node node, Known(inode));
  RETURN_IF_ERROR(Settle(node.key, PatienceOf(request)));
  if ((file.flags & O_TRUNC) == 0 || !options_.allow_overwrite) {
    return CannotChange(store_.Uri(node.key), options_.allow_overwrite);
  }
  ASSIGN_OR_RETURN(const std::shared_ptr<WrittenFile> written, BeginWriting(request, node.key, /*replaces=*/true));
  written->inode = inode;
  if (!local_.Begin(written)) return IsBeingWritten(store_.Uri(node.key));
  auto open = std::make_unique<OpenFile>();
  open->written = written;
  file.direct_io = 1;
  file.fh = reinterpret_cast<uint64_t>(open.get());
  if (fuse_reply_open(request, &file) == 0) {
    (void)open.release();  // ReleaseFile's
  } else {
    AbandonFile(*written);
  }
  return absl::OkStatus();
}

absl::Status Mount::Server::WriteFile(Request request, ByteSpan bytes, off_t offset, const fuse_file_info& file) {
  const OpenFile& open = FileOf(file);
  if (open.written == nullptr) return RefusedWith(EBADF, "a file that was opened to be read is not written");
  if (open.written->abandoned) return WasAbandoned(store_.Uri(open.written->key));
  ASSIGN_OR_RETURN(const size_t count,
                   open.written->upload.Write(static_cast<uint64_t>(offset), bytes, PatienceOf(request)));
  open.written->modified_ms = UnixMilliseconds();
  open.written->closed = false;
  life_.Show(fuse_req_ctx(request)->pid);
  fuse_reply_write(request, count);
  return absl::OkStatus();
}

// Makes the object visible, and lets the number that the kernel has stand for it.
absl::Status Mount::Server::FinishFile(WrittenFile& file, const Patience& patience) {
  absl::StatusOr<ObjectInfo> info = file.upload.Finish(patience);
  if (absl::IsCancelled(info.status())) return info.status();  // another call goes on
  if (file.ended.exchange(true)) return info.status();
  ahead_.Forget(file.key);
  if (info.ok()) {
    if (file.replaces) {
      inodes_.Outdate(file.key);
    } else {
      Node node = tree_.FileNode(*info, file.key);
      node.size = file.upload.size();
      if (node.modified_ms == 0) node.modified_ms = file.modified_ms.load();
      inodes_.Assign(file.inode, std::move(node));
    }
  }
  local_.End(file.key);
  return info.status();
}

void Mount::Server::AbandonFile(WrittenFile& file) {
  if (file.ended) return;
  file.abandoned = true;  // first: a process that shares the descriptor and finds the file ended must know why
  if (file.ended.exchange(true)) {
    file.abandoned = false;
  } else {
    local_.End(file.key);
  }
}

// A file is finished by the close of the process that opened it, once there is something in it: a shell opens files for
// the programs that it starts, which inherit them and close them when they end.
absl::Status Mount::Server::FlushFile(Request request, const fuse_file_info& file) {
  const OpenFile& open = FileOf(file);
  if (open.written != nullptr) {
    WrittenFile& written = *open.written;
    if (written.abandoned) return WasAbandoned(store_.Uri(written.key));
    const pid_t thread = fuse_req_ctx(request)->pid;
    const bool is_writer = ProcessOfThread(thread) == written.writer;
    if (is_writer && WasKilled(thread)) {
      AbandonFile(written);  // nobody knows what is missing
    } else if (is_writer && !written.ended) {
      written.closed = true;
      if (written.upload.size() > 0) RETURN_IF_ERROR(FinishFile(written, PatienceOf(request)));
    }
  }
  fuse_reply_err(request, 0);
  return absl::OkStatus();
}

absl::Status Mount::Server::SyncFile(Request request, const fuse_file_info& file) {
  const OpenFile& open = FileOf(file);
  if (open.written != nullptr) {
    if (open.written->abandoned) return WasAbandoned(store_.Uri(open.written->key));
    if (!open.written->ended) RETURN_IF_ERROR(FinishFile(*open.written, PatienceOf(request)));
  }
  fuse_reply_err(request, 0);
  return absl::OkStatus();
}

void Mount::Server::ReleaseFile(Request request, fuse_file_info& file) {
  const std::unique_ptr<OpenFile> open(&FileOf(file));
  if (open->read != nullptr && !open->was_asked_for) ahead_.OnUnread();
  if (open->written != nullptr && !open->written->ended) {
    // An empty file, or one that was left to another process: nobody waits for the answer.
    const absl::Status ended = FinishFile(*open->written, {std::chrono::steady_clock::now() + options_.timeout, {}});
    if (!ended.ok()) Warn(ended);
    AbandonFile(*open->written);
  }
  fuse_reply_err(request, 0);
}

// ---- Attributes

absl::Status Mount::Server::SetAttributes(Request request, uint64_t inode, const struct stat& wanted, int which,
                                          const fuse_file_info* file) {
  RETURN_IF_ERROR(CheckWritable());
  ASSIGN_OR_RETURN(Node node, Known(inode));
  std::shared_ptr<WrittenFile> written = local_.Find(node.key);
  if (written != nullptr && written->inode != inode) written = nullptr;
  if (file != nullptr && file->fh != 0 && FileOf(*file).written != nullptr) written = FileOf(*file).written;
  if (written != nullptr && !written->ended) {
    node = NodeOf(*written);
  } else {
    written = nullptr;
    ASSIGN_OR_RETURN(node, Fresh(inode, PatienceOf(request)));
  }
  struct stat info = StatOf(node, inode);
  const std::string uri = store_.Uri(node.key);
  constexpr mode_t kPermissions = 07777;
  if ((which & FUSE_SET_ATTR_SIZE) != 0 && wanted.st_size != info.st_size) {
    return RefusedWith(EOPNOTSUPP, uri + ": objects are not cut or extended; write it as a whole");
  }
  if (((which & FUSE_SET_ATTR_MODE) != 0 && ((wanted.st_mode ^ info.st_mode) & kPermissions) != 0) ||
      ((which & FUSE_SET_ATTR_UID) != 0 && wanted.st_uid != info.st_uid) ||
      ((which & FUSE_SET_ATTR_GID) != 0 && wanted.st_gid != info.st_gid)) {
    return RefusedWith(EPERM, uri +
                                  ": a mount changes no modes and owners; name them for all files by "
                                  "-o uid=N,gid=N,umask=OCTAL");
  }
  if ((which & (FUSE_SET_ATTR_MTIME | FUSE_SET_ATTR_MTIME_NOW)) != 0 && !node.is_folder()) {
    if (written == nullptr) return RefusedWith(EPERM, uri + ": the store keeps the time at which it was written");
    const int64_t ms = (which & FUSE_SET_ATTR_MTIME_NOW) != 0 ? UnixMilliseconds() : MillisecondsOf(wanted.st_mtim);
    written->modified_ms = ms;
    written->upload.set_modified_ms(ms);
    info = StatOf(NodeOf(*written), inode);
  }
  fuse_reply_attr(request, &info, written != nullptr ? 0 : Validity());
  return absl::OkStatus();
}

// ---- Folders, removing, renaming

// Only the version that is known. In a folder the name counts, as for any program: the ETag of a file changes, too,
// when another name of it is removed.
absl::Status Mount::Server::DeleteVersion(const Node& file, const Patience& patience) {
  if (file.etag.empty() || store_.traits().is_folder()) return Delete(file.key, patience);
  Completion<absl::Status> call;
  store_.DeleteVersion(file.key, file.etag, call.Callback());
  const absl::Status deleted = patience.Wait(call, store_.Uri(file.key));
  if (!absl::IsFailedPrecondition(deleted)) return deleted;
  return RefusedWith(EBUSY, store_.Uri(file.key) + ": another program has replaced it meanwhile; it is not removed");
}

absl::Status Mount::Server::Delete(const std::string& key, const Patience& patience) {
  Completion<absl::Status> call;
  store_.Delete({key}, [done = call.Callback()](std::vector<absl::Status> statuses) { done(std::move(statuses[0])); });
  return patience.Wait(call, store_.Uri(key));
}

// A folder that was there for the program stays there when the last thing in it goes. (If there are too many folders to
// be remembered, it ends with what was in it, as it does for all other machines.)
void Mount::Server::KeepFolderOf(const std::string& key) {
  const size_t slash = key.substr(0, key.size() - 1).rfind('/');
  if (slash == key.npos || slash + 1 <= prefix_.size()) return;
  (void)local_.AddFolder(key.substr(0, slash + 1));
}

absl::Status Mount::Server::MakeFolder(Request request, uint64_t parent, const char* name) {
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
  ASSIGN_OR_RETURN(const Node node, Find(parent, name, patience));
  if (!node.is_folder()) return RefusedWith(ENOTDIR, store_.Uri(node.key) + ": is no folder");
  ASSIGN_OR_RETURN(const bool has_objects, tree_.HasBelow(node.key, patience));
  if (has_objects || local_.HasBelow(node.key)) {
    return RefusedWith(ENOTEMPTY, store_.Uri(node.key) + ": is not empty");
  }
  // Other programs mark empty folders by an object of the folder's own key. A folder of files has none.
  if (!store_.traits().is_folder()) RETURN_IF_ERROR(Delete(node.key, patience));
  local_.RemoveFolder(node.key);
  KeepFolderOf(node.key);
  fuse_reply_err(request, 0);
  return absl::OkStatus();
}

absl::Status Mount::Server::RemoveFile(Request request, uint64_t parent, const char* name) {
  RETURN_IF_ERROR(CheckWritable());
  const Patience patience = PatienceOf(request);
  ASSIGN_OR_RETURN(const std::string key, KeyOf(parent, name));
  RETURN_IF_ERROR(Settle(key, patience));
  ASSIGN_OR_RETURN(const Node node, Find(parent, name, patience));
  if (node.is_folder()) return RefusedWith(EISDIR, store_.Uri(key) + ": is a folder");
  const absl::Status deleted = DeleteVersion(node, patience);
  ahead_.Forget(key);
  inodes_.Outdate(key);
  RETURN_IF_ERROR(deleted);
  KeepFolderOf(key);
  fuse_reply_err(request, 0);
  return absl::OkStatus();
}

absl::Status Mount::Server::RenameFolder(const std::string& from, const std::string& to, const Patience& patience) {
  // Not one request, so not atomic: `mv` copies it file by file when it is told so.
  ASSIGN_OR_RETURN(const bool has_objects, tree_.HasBelow(from, patience));
  if (has_objects || local_.HasBelow(from)) {
    return RefusedWith(EXDEV, store_.Uri(from) + ": no store renames folders; mv copies what is in it");
  }
  if (!local_.AddFolder(to)) return RefusedWith(ENOSPC, store_.Uri(to) + ": too many empty folders");
  if (!store_.traits().is_folder()) RETURN_IF_ERROR(Delete(from, patience));
  local_.RemoveFolder(from);
  KeepFolderOf(from);
  inodes_.Assign(inodes_.NumberOf(from), tree_.FolderNode(to));
  return absl::OkStatus();
}

// What is known of the target may be older than the store.
absl::Status Mount::Server::CheckTarget(const std::string& to, bool no_replace, const Patience& patience) {
  if (options_.allow_overwrite && !no_replace) return absl::OkStatus();
  const absl::StatusOr<Node> there = tree_.Look(to, patience);
  if (!there.ok()) return absl::IsNotFound(there.status()) ? absl::OkStatus() : there.status();
  inodes_.Outdate(to);
  return no_replace ? absl::AlreadyExistsError(store_.Uri(to) + ": exists") : NeedsOverwrite(store_.Uri(to));
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

absl::Status Mount::Server::RenameFile(const Node& from, const std::string& to, bool no_replace,
                                       const Patience& patience) {
  if (!store_.CopiesFrom(store_)) {
    return RefusedWith(EXDEV, store_.Uri(from.key) + ": this store does not copy; mv copies it");
  }
  ASSIGN_OR_RETURN(const Node now, tree_.Look(from.key, patience));
  RETURN_IF_ERROR(CheckTarget(to, no_replace, patience));
  std::stop_source stop;
  CopyOptions options;
  options.stop = stop.get_token();
  options.only_if_absent = no_replace || !options_.allow_overwrite;
  Completion<absl::StatusOr<ObjectInfo>> call;
  store_.Copy(store_, {.key = now.key, .size = now.size, .etag = now.etag}, to, std::move(options), call.Callback());
  Patience longer = patience;
  longer.deadline += std::chrono::seconds(now.size / kCopiedPerSecond);
  const absl::StatusOr<ObjectInfo> copy = longer.Wait(call, store_.Uri(to));
  if (!copy.ok()) {
    stop.request_stop();
    if (absl::IsUnimplemented(copy.status())) {
      return RefusedWith(EXDEV, store_.Uri(from.key) + ": this store does not copy; mv copies it");
    }
    if (!absl::IsAlreadyExists(copy.status())) return copy.status();
    inodes_.Outdate(to);  // made since CheckTarget has looked
    return no_replace ? copy.status() : NeedsOverwrite(store_.Uri(to));
  }
  const absl::Status deleted = DeleteSource(now, patience);
  ahead_.Forget(from.key);
  ahead_.Forget(to);
  inodes_.Outdate(to);
  if (!deleted.ok()) inodes_.Outdate(from.key);
  RETURN_IF_ERROR(deleted);
  KeepFolderOf(from.key);
  // The kernel goes on with the number that the source has, whose bytes are the same.
  const uint64_t inode = inodes_.NumberOf(from.key);
  Node node = tree_.FileNode(*copy, to);
  node.size = now.size;
  if (node.modified_ms == 0) node.modified_ms = UnixMilliseconds();
  inodes_.Assign(inode, std::move(node));
  return absl::OkStatus();
}

absl::Status Mount::Server::Rename(Request request, uint64_t parent, const char* name, uint64_t new_parent,
                                   const char* new_name, unsigned flags) {
  RETURN_IF_ERROR(CheckWritable());
  constexpr unsigned kNoReplace = 1;  // RENAME_NOREPLACE
  if ((flags & ~kNoReplace) != 0) return RefusedWith(EINVAL, "exchanging two files is not possible");
  const Patience patience = PatienceOf(request);
  ASSIGN_OR_RETURN(const std::string from, KeyOf(parent, name));
  ASSIGN_OR_RETURN(const std::string to, KeyOf(new_parent, new_name));
  RETURN_IF_ERROR(Settle(from, patience));
  RETURN_IF_ERROR(Settle(to, patience));
  if (from == to) {
    fuse_reply_err(request, 0);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Node node, Find(parent, name, patience));
  const absl::StatusOr<Node> there = Find(new_parent, new_name, patience);
  if (!there.ok() && !absl::IsNotFound(there.status())) return there.status();
  if (there.ok()) {
    if ((flags & kNoReplace) != 0) return absl::AlreadyExistsError(store_.Uri(to) + ": exists");
    if (there->is_folder() != node.is_folder()) {
      return RefusedWith(there->is_folder() ? EISDIR : ENOTDIR, store_.Uri(to) + ": is of the other kind");
    }
    if (there->is_folder()) {
      ASSIGN_OR_RETURN(const bool has_objects, tree_.HasBelow(there->key, patience));
      if (has_objects || local_.HasBelow(there->key)) {
        return RefusedWith(ENOTEMPTY, store_.Uri(to) + ": is not empty");
      }
    } else if (!options_.allow_overwrite) {
      return NeedsOverwrite(store_.Uri(to));
    }
  }
  RETURN_IF_ERROR(node.is_folder() ? RenameFolder(node.key, to + "/", patience)
                                   : RenameFile(node, to, (flags & kNoReplace) != 0, patience));
  fuse_reply_err(request, 0);
  return absl::OkStatus();
}

// ---- libfuse

void Mount::Server::AddWriting(fuse_lowlevel_ops& operations) {
  operations.create = [](Request request, fuse_ino_t parent, const char* name, mode_t, fuse_file_info* file) {
    AnswerChange(request, [&](Server& self) { return self.CreateFile(request, parent, name, *file); });
  };
  operations.write = [](Request request, fuse_ino_t, const char* bytes, size_t size, off_t offset,
                        fuse_file_info* file) {
    const ByteSpan span(reinterpret_cast<const std::byte*>(bytes), size);
    AnswerChange(request, [&](Server& self) { return self.WriteFile(request, span, offset, *file); });
  };
  operations.flush = [](Request request, fuse_ino_t, fuse_file_info* file) {
    AnswerChange(request, [&](Server& self) { return self.FlushFile(request, *file); });
  };
  operations.fsync = [](Request request, fuse_ino_t, int, fuse_file_info* file) {
    AnswerChange(request, [&](Server& self) { return self.SyncFile(request, *file); });
  };
  operations.fsyncdir = [](Request request, fuse_ino_t, int, fuse_file_info*) { fuse_reply_err(request, 0); };
  operations.setattr = [](Request request, fuse_ino_t inode, struct stat* wanted, int which, fuse_file_info* file) {
    AnswerChange(request, [&](Server& self) { return self.SetAttributes(request, inode, *wanted, which, file); });
  };
  operations.mkdir = [](Request request, fuse_ino_t parent, const char* name, mode_t) {
    AnswerChange(request, [&](Server& self) { return self.MakeFolder(request, parent, name); });
  };
  operations.rmdir = [](Request request, fuse_ino_t parent, const char* name) {
    AnswerChange(request, [&](Server& self) { return self.RemoveFolder(request, parent, name); });
  };
  operations.unlink = [](Request request, fuse_ino_t parent, const char* name) {
    AnswerChange(request, [&](Server& self) { return self.RemoveFile(request, parent, name); });
  };
  operations.rename = [](Request request, fuse_ino_t parent, const char* name, fuse_ino_t new_parent,
                         const char* new_name, unsigned flags) {
    AnswerChange(request,
                 [&](Server& self) { return self.Rename(request, parent, name, new_parent, new_name, flags); });
  };
}

}  // namespace millrace
