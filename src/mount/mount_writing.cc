#include <fcntl.h>
#include <linux/falloc.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/log.h"
#include "base/log_exception.h"
#include "base/thread_pool.h"
#include "mount/mount_server.h"
#include "mount/writer_process.h"

/// Writes files for a mount with a staging folder. A file that programs have open to write is in the LocalTree, and so
/// is what was closed and is not committed yet.

namespace millrace {

namespace {

constexpr mode_t kModeBits = 07777;
constexpr int kFinishThreads = 8;
// Ways of fallocate() that are possible. A hole is zeros, and it never comes without KEEP_SIZE.
constexpr int kAllocates = FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE;

absl::Status NeedsOverwriting(const std::string& uri) {
  return RefusedWith(EEXIST, uri + ": there is an object already, and the mount has --no-overwrite");
}

}  // namespace

absl::Status Mount::Server::CheckWritable() const {
  if (options_.writable) return absl::OkStatus();
  return RefusedWith(EROFS, fmt::format("{}: is mounted read-only; mount with --writable", options_.folder));
}

WrittenFile::Services Mount::Server::MakeServices() {
  // The kernel may well keep bytes that a program has read, so they go before blocks around reads at random.
  const auto make_room = [this](uint64_t bytes) {
    const uint64_t made = tier_.GiveBack(bytes);
    return made < bytes ? made + around_.GiveBack(bytes - made) : made;
  };
  return {.store = store_,
          .memory = memory_,
          .staging = staging_.get(),
          .make_room = make_room,
          .open_base = [this](const Node& node) { return OpenVersion(node, ReadWindow::Kernel::kKeeps); },
          .publish_every = options_.publish_every};
}

// ---- Opening

// Returns the version that the store has now: a commit is refused if the file does not rest on it.
absl::StatusOr<Node> Mount::Server::NewestOf(uint64_t inode, const Node& known, const Patience& patience) {
  ahead_.Forget(known.key);
  absl::StatusOr<Node> now = tree_.Look(known.key, patience);
  if (absl::IsNotFound(now.status())) return absl::FailedPreconditionError(fmt::format("{}: was removed", known.key));
  RETURN_IF_ERROR(now.status());
  if (inodes_.Renew(inode, *now)) return *std::move(now);
  inodes_.Outdate(known.key);
  return absl::FailedPreconditionError(fmt::format("{}: was replaced", known.key));
}

// Returns the file of that inode, with one more handle that writes. Returns FailedPrecondition, after which the kernel
// looks the name up again, if the inode is not what the name stands for.
absl::StatusOr<std::shared_ptr<WrittenFile>> Mount::Server::OpenWritten(uint64_t inode, const Patience& patience) {
  for (;;) {
    if (std::shared_ptr<WrittenFile> file = local_.Attach(inode)) {
      if (!file->ended()) return file;
      CloseWriter(file, /*closed=*/true);
      return absl::FailedPreconditionError(fmt::format("{}: was replaced", file->key()));
    }
    ASSIGN_OR_RETURN(const Node known, Known(inode));
    RETURN_IF_ERROR(CheckNoLinkKey(known.key));
    if (local_.Find(known.key) != nullptr) {
      return absl::FailedPreconditionError(fmt::format("{}: was replaced", known.key));
    }
    ASSIGN_OR_RETURN(const Node node, NewestOf(inode, known, patience));
    auto file = std::make_shared<WrittenFile>(services_, node);
    file->inode = inode;
    if (local_.Begin(file)) return file;  // else another program was first
  }
}

std::unique_ptr<Mount::Server::OpenFile> Mount::Server::HandleOf(Request request, std::shared_ptr<WrittenFile> written,
                                                                 fuse_file_info& file) const {
  if ((file.flags & O_APPEND) != 0) written->set_appended();
  ++written->writing;
  auto open = std::make_unique<OpenFile>();
  open->inode = written->inode;
  open->written = std::move(written);
  open->opener = ProcessOfThread(fuse_req_ctx(request)->pid);
  open->direct = staging_ == nullptr || (file.flags & O_ACCMODE) == O_WRONLY;
  file.direct_io = open->direct ? 1 : 0;
  file.keep_cache = staging_ != nullptr ? 1 : 0;
  if (!open->direct) open->written->cached = true;
  return open;
}

absl::Status Mount::Server::OpenToWrite(Request request, uint64_t inode, fuse_file_info& file) {
  RETURN_IF_ERROR(CheckWritable());
  if (staging_ == nullptr) return OpenStream(request, inode, file);
  const Patience patience = PatienceOf(request);
  ASSIGN_OR_RETURN(const std::shared_ptr<WrittenFile> written, OpenWritten(inode, patience));
  absl::Status opened;
  if (options_.no_overwrite && written->in_store()) opened = NeedsOverwriting(store_.Uri(written->key()));
  if (opened.ok() && (file.flags & O_TRUNC) != 0) opened = written->Truncate(0, patience);
  if (!opened.ok()) {
    CloseWriter(written, /*closed=*/true);
    return opened;
  }
  if (!ReplyOpen(request, HandleOf(request, written, file), file)) CloseWriter(written, /*closed=*/false);
  return absl::OkStatus();
}

// Makes a new file of that key, which is nothing in the store.
absl::StatusOr<std::shared_ptr<WrittenFile>> Mount::Server::MakeFile(Request request, std::string key, mode_t mode) {
  auto file = std::make_shared<WrittenFile>(services_, key);
  inodes_.Unname(key);
  file->inode = inodes_.Remember(file->node());
  file->cached = false;  // nobody knows it yet
  if (!local_.Begin(file)) {
    inodes_.Forget(file->inode, 1);
    return absl::FailedPreconditionError(fmt::format("{}: another program was first", key));
  }
  attributes_.Remove(key);
  NoteChangeBeside(key);
  const mode_t permissions = mode & kModeBits & ~options_.umask;
  const bool is_usual = permissions == (0666 & ~options_.umask);
  if (!is_usual) file->set_mode(permissions);
  NoteCreator(request, key, permissions, is_usual);
  return file;
}

absl::Status Mount::Server::CreateFile(Request request, uint64_t parent, const char* name, mode_t mode,
                                       fuse_file_info& file) {
  RETURN_IF_ERROR(CheckWritable());
  if (staging_ == nullptr) return CreateStream(request, parent, name, mode, file);
  const Patience patience = PatienceOf(request);
  ASSIGN_OR_RETURN(const std::string key, NewKeyOf(parent, name));
  const std::string uri = store_.Uri(key);
  std::shared_ptr<WrittenFile> written = local_.Find(key);
  absl::StatusOr<Node> there = absl::NotFoundError(uri);
  if (written == nullptr) there = Find(parent, name, patience);
  if (!there.ok() && !absl::IsNotFound(there.status())) return there.status();
  const bool exists = written != nullptr || there.ok();
  if (exists && (file.flags & O_EXCL) != 0) return absl::AlreadyExistsError(uri + ": there is such a file");
  if (there.ok() && there->is_folder()) return RefusedWith(EISDIR, uri + ": is a folder");
  // The kernel looks again, and follows it.
  if (there.ok() && tree_.IsLink(*there)) return absl::FailedPreconditionError(uri + ": is a link by now");
  if (options_.no_overwrite && (there.ok() || (written != nullptr && written->in_store()))) {
    return NeedsOverwriting(uri);
  }
  fuse_entry_param entry{};
  entry.entry_timeout = Validity();
  if (!exists) {
    ASSIGN_OR_RETURN(written, MakeFile(request, key, mode));
    entry.ino = written->inode;
  } else {
    // The kernel did not know of it yet.
    if (written == nullptr) {
      entry.ino = inodes_.Remember(*there);
    } else if (inodes_.TellAgain(written->inode)) {
      entry.ino = written->inode;
    }
    absl::StatusOr<std::shared_ptr<WrittenFile>> opened = OpenWritten(entry.ino, patience);
    if (opened.ok() && (file.flags & O_TRUNC) != 0) {
      if (absl::Status cut = (*opened)->Truncate(0, patience); !cut.ok()) {
        CloseWriter(*opened, /*closed=*/true);
        opened = cut;
      }
    }
    if (!opened.ok()) {
      inodes_.Forget(entry.ino, 1);
      return opened.status();
    }
    written = *opened;
  }
  entry.attr = StatOf(written->node(), entry.ino);
  std::unique_ptr<OpenFile> open = HandleOf(request, written, file);
  file.fh = reinterpret_cast<uint64_t>(open.get());
  if (fuse_reply_create(request, &entry, &file) == 0) {
    (void)open.release();  // ReleaseFile's
  } else {
    CloseWriter(written, /*closed=*/false);
    inodes_.Forget(entry.ino, 1);
  }
  return absl::OkStatus();
}

// ---- Writing

absl::Status Mount::Server::WriteFile(Request request, ByteSpan bytes, off_t offset, const fuse_file_info& file) {
  OpenFile& open = FileOf(file);
  if (open.written == nullptr) return RefusedWith(EBADF, "a file that was opened to be read is not written");
  if (open.closed && open.closed.exchange(false)) ++open.written->writing;
  const bool has_set_time = open.written->has_set_time();
  ASSIGN_OR_RETURN(const size_t count, open.written->Write(static_cast<uint64_t>(offset), bytes, PatienceOf(request)));
  open.written->closed = false;
  if (idle_ != nullptr && open.written->unflushed() && !open.written->flushes_later.exchange(true)) {
    idle_->Add(open.written);
  }
  if (has_set_time) ForgetTimes(*open.written);
  if (open.direct && open.written->cached) ForgetCached(*open.written, {static_cast<uint64_t>(offset), count});
  life_.Show(fuse_req_ctx(request)->pid);
  fuse_reply_write(request, count);
  return absl::OkStatus();
}

// A program has set them, and another one has written since.
void Mount::Server::ForgetTimes(const WrittenFile& file) {
  attributes_.Change(file.key(), [](FileAttributes& attributes) {
    attributes.modified.reset();
    attributes.accessed.reset();
  });
}

// Makes the kernel forget bytes that were written past its memory, in which others may read the file. It reads them
// again; a page that a program has changed in its memory comes here first, as a call of its own.
void Mount::Server::ForgetCached(const WrittenFile& file, ByteRange range) {
  if (range.length == 0) return;
  (void)fuse_lowlevel_notify_inval_inode(session_, file.inode, static_cast<off_t>(range.offset),
                                         static_cast<off_t>(range.length));
}

absl::Status Mount::Server::Allocate(Request request, int mode, off_t offset, off_t length,
                                     const fuse_file_info& file) {
  const OpenFile& open = FileOf(file);
  const ByteRange range{static_cast<uint64_t>(offset), static_cast<uint64_t>(length)};
  if (open.written == nullptr || staging_ == nullptr || (mode & ~kAllocates) != 0) {
    return RefusedWith(EOPNOTSUPP, "this file cannot be allocated in such a way");
  }
  const Patience patience = PatienceOf(request);
  if ((mode & (FALLOC_FL_PUNCH_HOLE | FALLOC_FL_ZERO_RANGE)) != 0) {
    RETURN_IF_ERROR(open.written->Clear(range, patience));
  }
  if ((mode & FALLOC_FL_KEEP_SIZE) == 0 && range.end() > open.written->size()) {
    RETURN_IF_ERROR(open.written->Truncate(range.end(), patience));
  }
  fuse_reply_err(request, 0);
  return absl::OkStatus();
}

// ---- Commits

// The number that the kernel has stands for the version that the store has now. The time of the last change stays what
// it was, as on a disk; the store tells that of the upload.
void Mount::Server::NoteVersion(const std::shared_ptr<WrittenFile>& file) {
  Node node = file->node();
  node.fresh_until = std::chrono::steady_clock::now() + options_.metadata_ttl;
  ahead_.Forget(node.key);
  attributes_.Change(node.key, [&](FileAttributes& attributes) {
    const bool set = attributes.version.empty() && file->has_set_time();
    attributes.version = node.etag;
    if (set) return;
    attributes.modified = {.tv_sec = node.modified_ms / 1000, .tv_nsec = node.modified_ms % 1000 * 1'000'000};
    attributes.accessed = attributes.modified;
  });
  inodes_.Assign(file->inode, std::move(node));
  ++commits_;
}

absl::Status Mount::Server::CommitFile(const std::shared_ptr<WrittenFile>& file, const Patience& patience) {
  const bool changed = file->changed();
  absl::Status committed = file->Commit(patience);
  if (committed.ok() && changed && !file->changed()) NoteVersion(file);
  if (file->ended()) {
    ahead_.Forget(file->key());
    ForgetName(*file);
  }
  return committed;
}

// A program has closed the file, when its last process that could write has. A shell opens files for the programs that
// it starts. They inherit the files and close them when they end. So only the process that opened a file closes it for
// all. One that is empty is committed a moment later, since shells open files, and pass them on, before there is
// anything in them.
absl::Status Mount::Server::FlushFile(Request request, const fuse_file_info& file) {
  OpenFile& open = FileOf(file);
  if (open.written == nullptr) {
    fuse_reply_err(request, 0);
    return absl::OkStatus();
  }
  if (staging_ == nullptr) return FlushStream(request, open);
  WrittenFile& written = *open.written;
  const pid_t thread = fuse_req_ctx(request)->pid;
  const bool is_opener = ProcessOfThread(thread) == open.opener;
  if (is_opener && !open.closed.exchange(true)) --written.writing;
  if (is_opener && WasKilled(thread)) {
    // Nobody knows what is missing. (A file that outlives it is committed when the kernel releases the file.)
    if (!written.outlives_writer() && written.writing == 0) GiveUpKilled(open.written);
  } else if (written.ended()) {
    RETURN_IF_ERROR(written.Commit(PatienceOf(request)));  // tells why
  } else if (written.writing == 0 && written.size() > 0 && !Defer(open.written)) {
    RETURN_IF_ERROR(CommitFile(open.written, PatienceOf(request)));
  }
  fuse_reply_err(request, 0);
  return absl::OkStatus();
}

absl::Status Mount::Server::SyncFile(Request request, const fuse_file_info& file) {
  const OpenFile& open = FileOf(file);
  if (open.written != nullptr && staging_ == nullptr) {
    if (open.written->abandoned() || !open.written->ended()) {
      RETURN_IF_ERROR(FinishStream(open.written, PatienceOf(request)));
    }
  } else if (open.written != nullptr) {
    const bool changed = open.written->changed();
    RETURN_IF_ERROR(open.written->Sync(PatienceOf(request)));
    if (changed && !open.written->changed() && !open.written->unlinked()) NoteVersion(open.written);
  }
  fuse_reply_err(request, 0);
  return absl::OkStatus();
}

// The bytes written are not kept. Calls of another process that shares the descriptor fail.
void Mount::Server::GiveUp(const std::shared_ptr<WrittenFile>& file) {
  file->Abandon();
  ForgetName(*file);
}

// Ends a file whose writer was killed: a half checkpoint must not look whole, but a log is of use. So its bytes stay
// for `millrace mount --recover`, as long as they leave room for files of programs that live.
void Mount::Server::GiveUpKilled(const std::shared_ptr<WrittenFile>& file) {
  const std::string killed =
      store_.Uri(file->key()) + ": its writer was killed before it closed it, so it is no object, and may not be whole";
  if (staging_->HasRoomForKilled()) {
    file->Park(killed, /*synced=*/false);  // the process ends when this returns
  } else if (file->changed()) {
    Log(LogLevel::kWarning, "mount",
        killed + "; its bytes are not kept, since more than half of --staging-size is used");
  }
  GiveUp(file);
}

// The name stands for what the store has, and no more for this file.
void Mount::Server::ForgetName(const WrittenFile& file) {
  const std::string key = file.key();
  local_.Unname(file);
  inodes_.Outdate(key);
  if (inodes_.NumberOf(key) == file.inode) inodes_.Unname(key);
}

// With --write-back, a file that was closed goes to the store later. False if it has to go now.
bool Mount::Server::Defer(const std::shared_ptr<WrittenFile>& file) {
  if (write_back_ == nullptr || !file->CanWait(ReleasePatience())) return false;
  file->set_deferred();
  write_back_->Add(file);
  return true;
}

// Nobody waits for the answer. False if the commit failed and another one may succeed.
bool Mount::Server::CommitClosed(const std::shared_ptr<WrittenFile>& file) {
  const absl::Status committed = CommitFile(file, ReleasePatience());
  if (!committed.ok()) Warn(committed);
  return committed.ok() || file->ended();
}

// The delay of a file is over. A program that has opened it meanwhile writes on in it, and its close adds it again.
bool Mount::Server::CommitLater(const std::shared_ptr<WrittenFile>& file) {
  if (file->writing > 0) return true;
  if (file->changed() && !CommitClosed(file)) return false;
  local_.End(file, /*if_idle=*/true);
  return true;
}

// A program that writes fast leaves its last bytes in memory. If it pauses, they come into the staging folder.
bool Mount::Server::FlushLater(const std::shared_ptr<WrittenFile>& file) {
  if (!file->FlushIdle()) return false;
  file->flushes_later = false;
  // It may have been written meanwhile.
  if (file->unflushed() && !file->flushes_later.exchange(true)) idle_->Add(file);
  return true;
}

// A handle that writes is gone; `closed`: its process has closed it before. The rest is committed now: an empty
// file, one that was left to another process, or one whose commit failed.
void Mount::Server::CloseWriter(const std::shared_ptr<WrittenFile>& file, bool closed) {
  if (!closed) --file->writing;
  const bool is_last = local_.Detach(*file);
  if (is_last && idle_ != nullptr) {
    idle_->Remove(*file);  // else its disk space would go only later
    file->flushes_later = false;
  }
  if (is_last && file->changed() && !Defer(file)) {
    // A program that has opened it meanwhile writes on in it, and its close commits it.
    if (!CommitClosed(file) && local_.EndUnwritten(file)) {
      file->Park(store_.Uri(file->key()) + ": the store did not take it when it was closed");
      GiveUp(file);
    }
  }
  local_.End(file, /*if_idle=*/true);
}

void Mount::Server::ReleaseFile(Request request, fuse_file_info& file) {
  const std::unique_ptr<OpenFile> open(&FileOf(file));
  if (open->written == nullptr) {
    if (!open->was_asked_for) ahead_.OnUnread();
    if (staging_ != nullptr) {
      local_.RemoveReader(open->inode);
      if (const auto written = local_.FindInode(open->inode)) local_.End(written, /*if_idle=*/true);
    }
  } else if (staging_ != nullptr) {
    CloseWriter(open->written, open->closed);
  } else if (!open->written->ended()) {
    // An empty file, or one that was left to another process: nobody waits for the answer.
    const absl::Status ended = FinishStream(open->written, ReleasePatience());
    if (!ended.ok()) Warn(ended);
    AbandonStream(open->written);
  }
  fuse_reply_err(request, 0);
}

// The mount ends, and the kernel may have dropped what it would have said of files that were closed.
void Mount::Server::FinishFile(WrittenFile& file, std::atomic<bool>& is_away) {
  if (file.changed() && (file.writing == 0 || file.outlives_writer())) {
    const absl::Status committed = is_away ? absl::UnavailableError(store_.Uri(file.key()) + ": the store is away")
                                           : file.Commit(ReleasePatience());
    if (absl::IsUnavailable(committed) || absl::IsDeadlineExceeded(committed)) is_away = true;
    if (!committed.ok()) file.Park(std::string(committed.message()));
  }
  if (file.changed()) file.Park(store_.Uri(file.key()) + ": the mount ended while a program was writing it");
  file.DropStaged();
}

void Mount::Server::FinishFiles() {
  if (staging_ == nullptr) return;
  if (write_back_ != nullptr) write_back_->Stop();
  if (idle_ != nullptr) idle_->Stop();
  std::atomic<bool> is_away{false};  // the store: the other files do not wait for it one after another
  const auto finish = [&](WrittenFile& file) {
    try {
      FinishFile(file, is_away);
    } catch (const std::exception& error) {  // no memory: the bytes stay in the staging folder
      LogException("mount", error);
    }
  };
  const std::vector<std::shared_ptr<WrittenFile>> files = local_.All();
  std::optional<ThreadPool> pool;
  try {
    pool.emplace(kFinishThreads, "mount-finish");
  } catch (const std::system_error&) {  // no threads: one file after the other
  }
  for (const std::shared_ptr<WrittenFile>& file : files) {
    if (pool) {
      pool->Submit([&finish, file] { finish(*file); });
    } else {
      finish(*file);
    }
  }
}

// ---- libfuse

void Mount::Server::AddWriting(fuse_lowlevel_ops& operations) {
  operations.create = [](Request request, fuse_ino_t parent, const char* name, mode_t mode, fuse_file_info* file) {
    AnswerChange(request, [&](Server& self) { return self.CreateFile(request, parent, name, mode, *file); });
  };
  operations.write = [](Request request, fuse_ino_t, const char* bytes, size_t size, off_t offset,
                        fuse_file_info* file) {
    const ByteSpan span(reinterpret_cast<const std::byte*>(bytes), size);
    AnswerChange(request, [&](Server& self) { return self.WriteFile(request, span, offset, *file); });
  };
  operations.fallocate = [](Request request, fuse_ino_t, int mode, off_t offset, off_t length, fuse_file_info* file) {
    AnswerChange(request, [&](Server& self) { return self.Allocate(request, mode, offset, length, *file); });
  };
  operations.flush = [](Request request, fuse_ino_t, fuse_file_info* file) {
    AnswerChange(request, [&](Server& self) { return self.FlushFile(request, *file); });
  };
  operations.fsync = [](Request request, fuse_ino_t, int, fuse_file_info* file) {
    AnswerChange(request, [&](Server& self) { return self.SyncFile(request, *file); });
  };
  operations.fsyncdir = [](Request request, fuse_ino_t, int, fuse_file_info*) { fuse_reply_err(request, 0); };
}

}  // namespace millrace
