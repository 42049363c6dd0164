#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "mount/mount_server.h"
#include "mount/writer_process.h"

/// Writes files for a mount with --no-staging: from their beginning to their end, by one program at a time.

namespace millrace {

namespace {

// A call waits so long for a file that was closed by one process while another may have it open.
constexpr std::chrono::seconds kMaxAwait{5};

absl::Status IsBeingWritten(const std::string& uri) {
  return RefusedWith(EBUSY, uri + ": is being written; close it first");
}

// Returns the error for a program that would change a part of an object.
absl::Status CannotChange(const std::string& uri, bool no_overwrite) {
  if (no_overwrite) return RefusedWith(EEXIST, uri + ": there is an object already, and the mount has --no-overwrite");
  return RefusedWith(EROFS, uri +
                                ": an object is not changed in part by a mount with --no-staging; open it with "
                                "O_TRUNC, and write it as a whole");
}

}  // namespace

// Returns OK if no file of that key is being written any more. An empty file that was closed ends a moment later: it is
// waited for. Others are refused.
absl::Status Mount::Server::AwaitStream(const std::string& key, const Patience& patience) {
  const std::shared_ptr<WrittenFile> file = local_.Find(key);
  if (file == nullptr) return absl::OkStatus();
  if (!file->closed) return IsBeingWritten(store_.Uri(key));
  Patience shorter = patience;
  shorter.deadline = std::min(patience.deadline, std::chrono::steady_clock::now() + kMaxAwait);
  const absl::Status ended = local_.WaitForEnd(key, shorter);
  return absl::IsDeadlineExceeded(ended) ? IsBeingWritten(store_.Uri(key)) : ended;
}

// A program that has closed a file reads what is in it now. But another process may have it open for long: until it has
// closed it, too, the object that is replaced is what others see.
absl::Status Mount::Server::AwaitReplacement(const std::string& key, const Patience& patience) {
  Patience shorter = patience;
  shorter.deadline = std::min(patience.deadline, std::chrono::steady_clock::now() + kMaxAwait);
  const absl::Status ended = local_.WaitForEnd(key, shorter);
  return absl::IsDeadlineExceeded(ended) ? absl::OkStatus() : ended;
}

absl::Status Mount::Server::CreateStream(Request request, uint64_t parent, const char* name, mode_t mode,
                                         fuse_file_info& file) {
  const Patience patience = PatienceOf(request);
  ASSIGN_OR_RETURN(const std::string key, NewKeyOf(parent, name));
  const std::string uri = store_.Uri(key);
  if (local_.Find(key) != nullptr && (file.flags & O_EXCL) != 0) {
    return absl::AlreadyExistsError(uri + ": there is such a file");
  }
  RETURN_IF_ERROR(AwaitStream(key, patience));
  const absl::StatusOr<Node> there = Find(parent, name, patience);
  if (!there.ok() && !absl::IsNotFound(there.status())) return there.status();
  std::shared_ptr<WrittenFile> written;
  if (there.ok()) {
    if ((file.flags & O_EXCL) != 0) return absl::AlreadyExistsError(uri + ": there is such a file");
    if (there->is_folder()) return RefusedWith(EISDIR, uri + ": is a folder");
    // The kernel looks again, and follows it.
    if (tree_.IsLink(*there)) return absl::FailedPreconditionError(uri + ": is a link by now");
    // The kernel did not know of it yet.
    if (options_.no_overwrite || (file.flags & O_TRUNC) == 0) return CannotChange(uri, options_.no_overwrite);
    ASSIGN_OR_RETURN(const Node node, tree_.Look(key, patience));
    written = std::make_shared<WrittenFile>(services_, node);
    written->inode = inodes_.Remember(node);
    const absl::Status cut = written->Truncate(0, patience);
    if (!cut.ok() || !local_.Begin(written)) {
      inodes_.Forget(written->inode, 1);
      return cut.ok() ? IsBeingWritten(uri) : cut;
    }
  } else {
    absl::StatusOr<std::shared_ptr<WrittenFile>> made = MakeFile(request, key, mode);
    if (!made.ok()) return IsBeingWritten(uri);
    written = *std::move(made);
  }
  fuse_entry_param entry{};
  entry.entry_timeout = Validity();
  entry.ino = written->inode;
  entry.attr = StatOf(there.ok() ? *there : written->node(), entry.ino);
  std::unique_ptr<OpenFile> open = HandleOf(request, written, file);
  written->writer = open->opener;
  file.fh = reinterpret_cast<uint64_t>(open.get());
  if (fuse_reply_create(request, &entry, &file) == 0) {
    (void)open.release();  // ReleaseFile's
  } else {
    AbandonStream(written);
    inodes_.Forget(entry.ino, 1);
  }
  return absl::OkStatus();
}

absl::Status Mount::Server::OpenStream(Request request, uint64_t inode, fuse_file_info& file) {
  const Patience patience = PatienceOf(request);
  ASSIGN_OR_RETURN(const Node known, Known(inode));
  RETURN_IF_ERROR(CheckNoLinkKey(known.key));
  const std::string uri = store_.Uri(known.key);
  RETURN_IF_ERROR(AwaitStream(known.key, patience));
  if (options_.no_overwrite || (file.flags & O_TRUNC) == 0) return CannotChange(uri, options_.no_overwrite);
  ASSIGN_OR_RETURN(const Node node, NewestOf(inode, known, patience));
  auto written = std::make_shared<WrittenFile>(services_, node);
  written->inode = inode;
  RETURN_IF_ERROR(written->Truncate(0, patience));
  if (!local_.Begin(written)) return IsBeingWritten(uri);
  std::unique_ptr<OpenFile> open = HandleOf(request, written, file);
  written->writer = open->opener;
  if (!ReplyOpen(request, std::move(open), file)) AbandonStream(written);
  return absl::OkStatus();
}

// Makes the object visible, and lets the number that the kernel has stand for it.
absl::Status Mount::Server::FinishStream(const std::shared_ptr<WrittenFile>& file, const Patience& patience) {
  const bool replaces = file->in_store();
  absl::Status finished = file->Commit(patience);
  if (absl::IsCancelled(finished)) return finished;  // another call continues
  if (!file->ended()) return finished;
  ahead_.Forget(file->key());
  if (finished.ok() && replaces) inodes_.Outdate(file->key());  // the kernel may have bytes of the version before
  if (finished.ok() && !replaces) NoteVersion(file);
  local_.End(file, /*if_idle=*/false);
  return finished;
}

void Mount::Server::AbandonStream(const std::shared_ptr<WrittenFile>& file) {
  if (file->ended()) return;
  file->Abandon();
  local_.End(file, /*if_idle=*/false);
}

// The close of the process that opened a file finishes it, once there is something in it. A shell opens files for the
// programs that it starts, which inherit them and close them when they end.
absl::Status Mount::Server::FlushStream(Request request, const OpenFile& open) {
  WrittenFile& written = *open.written;
  if (written.abandoned()) RETURN_IF_ERROR(written.Commit(PatienceOf(request)));  // tells why
  const pid_t thread = fuse_req_ctx(request)->pid;
  const bool is_writer = ProcessOfThread(thread) == written.writer;
  if (is_writer && WasKilled(thread)) {
    AbandonStream(open.written);  // nobody knows what is missing
  } else if (is_writer && !written.ended()) {
    written.closed = true;
    if (written.size() > 0) RETURN_IF_ERROR(FinishStream(open.written, PatienceOf(request)));
  }
  fuse_reply_err(request, 0);
  return absl::OkStatus();
}

}  // namespace millrace
