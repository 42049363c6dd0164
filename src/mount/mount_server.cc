#include "mount/mount_server.h"

#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "base/life_sign.h"
#include "base/log.h"
#include "mount/kernel_read_ahead.h"
#include "mount/writer_process.h"
#include "store/checks.h"

namespace millrace {

namespace {

// The kernel's page cache keeps bytes that were read. So this is for bytes that are read ahead, or that several
// programs read.
constexpr uint64_t kMaxTierBytes = uint64_t{256} << 20;
constexpr uint64_t kShareOfTier = 4;

// Three eighths are for blocks around reads at random, which the kernel has not seen, and for files that are read past
// its cache. With the tier above and the quarter that is never taken for reading ahead, seven eighths are taken. Bytes
// that programs read forward, and look-ahead across files, share the last eighth with the blocks that the tier keeps.
// Files that are written get what is left, and blocks go for them if that is too little.
uint64_t BytesAround(const MemoryBudget& memory) {
  return memory.limit() / 8 * 3;
}

// Where programs remove and rename, they see all that is there, so that a folder that looks empty can be removed.
RemoteTree::OwnFiles OwnFilesIn(const MountOptions& options) {
  return options.writable ? RemoteTree::OwnFiles::kShown : RemoteTree::OwnFiles::kHidden;
}

AheadLimits LimitsOf(const MountOptions& options, const MemoryBudget& memory) {
  AheadLimits limits;
  limits.bytes = std::min(limits.bytes, memory.limit() / kShareOfTier / 2);
  limits.file_bytes = BlockTier::kBlock;
  limits.ttl = options.metadata_ttl;
  return limits;
}

constexpr std::chrono::seconds kLifeWithin{1};
constexpr int kWriteBackThreads = 8;
// A file that may have bytes in memory only is not looked at for so long.
constexpr std::chrono::seconds kIdle{1};

constexpr uint64_t kLeastBlockSize = 4096;

}  // namespace

Mount::Server::Server(ObjectStore& store, MemoryBudget& memory, std::string prefix, MountOptions options,
                      std::unique_ptr<StagingFolder> staging)
    : store_(store),
      memory_(memory),
      prefix_(std::move(prefix)),
      options_(std::move(options)),
      tree_(store, options_.metadata_ttl, OwnFilesIn(options_),
            options_.links ? RemoteTree::Links::kAreLinks : RemoteTree::Links::kAreFiles),
      tier_(store, memory, std::min(memory.limit() / kShareOfTier, kMaxTierBytes)),
      around_(store, memory, BytesAround(memory)),
      around_room_(around_.keep_bytes()),
      inodes_(prefix_),
      staging_(std::move(staging)),
      services_(MakeServices()),
      ahead_(store, tier_, tree_, prefix_, LimitsOf(options_, memory), options_.order_file,
             [this](const std::string& key) { return inodes_.FindFresh(key); }),
      mounted_at_(std::chrono::system_clock::now()),
      life_([this](dev_t device) { return device == DeviceOfMount(options_.folder, below_); }) {
  if (staging_ != nullptr && options_.write_back.count() > 0) {
    write_back_ =
        std::make_unique<DelayedFiles>(options_.write_back, kWriteBackThreads,
                                       [this](const std::shared_ptr<WrittenFile>& file) { return CommitLater(file); });
  }
  if (staging_ != nullptr && staging_->writes_later()) {
    idle_ = std::make_unique<DelayedFiles>(
        kIdle, 1, [this](const std::shared_ptr<WrittenFile>& file) { return FlushLater(file); });
  }
}

Mount::Server::~Server() {
  // Their threads call this.
  if (idle_ != nullptr) idle_->Stop();
  if (write_back_ != nullptr) write_back_->Stop();
  if (session_ == nullptr) return;
  fuse_session_unmount(session_);
  fuse_session_destroy(session_);
}

bool Mount::Server::IsNews(const absl::Status& status) {
  switch (ErrnoOf(status)) {
    case EEXIST:
      return !absl::IsAlreadyExists(status);  // that --no-overwrite was said is
    case ENOENT:
    case ESTALE:
    case EINTR:
    case ENAMETOOLONG:
    case ENOTEMPTY:
    case EXDEV:
    case EROFS:
      return false;
    default:
      return true;
  }
}

Patience Mount::Server::PatienceOf(Request request) const {
  // The kernel reports only the first signal, whatever it is. From then on, the mount looks for others, which may be
  // fatal. It also looks when the call takes long: a report that is lost would leave a killed program waiting.
  const auto begun = std::chrono::steady_clock::now();
  const auto long_since = begun + std::chrono::seconds(2);
  const pid_t thread = fuse_req_ctx(request)->pid;
  return {begun + options_.timeout, [request, thread, long_since, this] {
            const auto now = std::chrono::steady_clock::now();
            // The program waits for bytes that come, or for a store that is known to be away.
            if (LastLife() > now - kLifeWithin) life_.Show(thread);
            const bool looks = fuse_req_interrupted(request) != 0 || now > long_since;
            return (looks && IsBeingKilled(thread)) || fuse_session_exited(session_) != 0;
          }};
}

void Mount::Server::Warn(const absl::Status& status) {
  // At most one warning a second is logged: a store that is away fails every call.
  const int64_t now = absl::ToUnixMillis(absl::Now());
  int64_t last = warned_ms_.load(std::memory_order_relaxed);
  if (now - last < 1000 || !warned_ms_.compare_exchange_strong(last, now)) return;
  Log(LogLevel::kWarning, "mount", std::string(ToStd(status.message())));
}

// ---- What files and folders are

// Nobody but the owner may do more on the mount than in a folder of files that it shows. This thread may wait for the
// file system there, as calls do that read from it.
mode_t Mount::Server::PermissionsOf(const Node& node) const {
  const mode_t all = ((node.is_folder() ? 0555 : 0444) | (options_.writable ? 0222 : 0)) & ~options_.umask;
  if (!store_.traits().is_folder()) return all;
  struct stat info {};
  if (stat(store_.Uri(node.key).c_str(), &info) != 0) {
    const bool is_new = options_.writable && errno == ENOENT;  // it is being written
    return is_new ? all : all & S_IRWXU;
  }
  mode_t others = info.st_mode & (S_IRWXG | S_IRWXO);
  // The mount's group gets what the file's group and all others have.
  if (info.st_gid != options_.gid) others &= S_IRWXO | ((info.st_mode & S_IRWXO) << 3);
  return all & (S_IRWXU | others);
}

struct stat Mount::Server::StatOf(const Node& node, uint64_t inode) {
  struct stat info {};
  info.st_ino = inode;
  info.st_uid = options_.uid;
  info.st_gid = options_.gid;
  info.st_nlink = 1;  // also of folders: programs take more for the number of folders in them
  info.st_blksize = static_cast<blksize_t>(kMaxFuseRead);
  const bool is_link = tree_.IsLink(node);
  info.st_mode = is_link ? S_IFLNK | 0777 : (node.is_folder() ? S_IFDIR : S_IFREG) | PermissionsOf(node);
  int64_t modified_ms = node.modified_ms;
  if (node.is_folder()) {
    modified_ms = std::chrono::duration_cast<std::chrono::milliseconds>(mounted_at_.time_since_epoch()).count();
  } else {
    info.st_size = static_cast<off_t>(node.size);
    // Programs make buffers of that size, also for the smallest file. A file that is written may grow.
    if (!options_.writable) {
      info.st_blksize =
          static_cast<blksize_t>(std::bit_ceil(std::clamp<uint64_t>(node.size, kLeastBlockSize, kMaxFuseRead)));
    }
    info.st_blocks = static_cast<blkcnt_t>((node.size + 511) / 512);
  }
  info.st_mtim = {.tv_sec = modified_ms / 1000, .tv_nsec = modified_ms % 1000 * 1'000'000};
  info.st_ctim = info.st_atim = info.st_mtim;
  if (!options_.writable) return info;
  const std::optional<FileAttributes> set = attributes_.Find(node.key);
  if (!set) return info;
  if (set->mode && !is_link) info.st_mode = (info.st_mode & S_IFMT) | *set->mode;
  info.st_uid = set->uid.value_or(info.st_uid);
  info.st_gid = set->gid.value_or(info.st_gid);
  if (set->version == node.etag) {
    info.st_mtim = set->modified.value_or(info.st_mtim);
    info.st_atim = set->accessed.value_or(info.st_atim);
  }
  return info;
}

absl::StatusOr<Node> Mount::Server::Known(uint64_t inode) const {
  std::optional<Node> node = inodes_.Find(inode);
  if (!node) return absl::FailedPreconditionError(fmt::format("inode {} is not known any more", inode));
  return *std::move(node);
}

// Returns the file if programs see it. A stream in place of an object shows nothing before it ends. A file that was
// refused or abandoned is not what its name stands for.
std::shared_ptr<WrittenFile> Mount::Server::ShownFile(const std::shared_ptr<WrittenFile>& file) const {
  if (file == nullptr || (staging_ == nullptr ? file->in_store() : file->ended())) return nullptr;
  return file;
}

// Returns the file as it is known, as long as that is fresh; else asks the store again. After ESTALE the kernel looks
// its path up again, and so gets to the new version.
absl::StatusOr<Node> Mount::Server::Fresh(uint64_t inode, const Patience& patience) {
  ASSIGN_OR_RETURN(Node node, Known(inode));
  if (node.is_folder() || std::chrono::steady_clock::now() < node.fresh_until) return node;
  if (const std::optional<Node> listed = ahead_.Find(node.key); listed && inodes_.Renew(inode, *listed)) return *listed;
  absl::StatusOr<Node> now = tree_.Look(node.key, patience);
  if (absl::IsNotFound(now.status())) return absl::FailedPreconditionError(fmt::format("{}: was removed", node.key));
  RETURN_IF_ERROR(now.status());
  if (!inodes_.Renew(inode, *now)) return absl::FailedPreconditionError(fmt::format("{}: was replaced", node.key));
  return *std::move(now);
}

absl::StatusOr<std::string> Mount::Server::KeyOf(uint64_t parent, const char* name) const {
  ASSIGN_OR_RETURN(const Node folder, Known(parent));
  std::string key = folder.key + name;
  if (std::strlen(name) > kMaxFileName || key.size() >= kMaxKeyBytes) {
    return RefusedWith(ENAMETOOLONG, fmt::format("{}: the name or the key is too long", name));
  }
  return key;
}

// Returns the file or folder of that name, unless it is a file that is being written. Returns NotFound if there is
// none.
absl::StatusOr<Node> Mount::Server::Find(uint64_t parent, const char* name, const Patience& patience) const {
  ASSIGN_OR_RETURN(const Node folder, Known(parent));
  const std::string key = folder.key + name;
  if (options_.writable && local_.HasFolder(key + "/")) return tree_.FolderNode(key + "/");
  if (std::optional<Node> listed = ahead_.Find(key); listed && !tree_.IsLink(*listed)) return *std::move(listed);
  return tree_.Lookup(folder.key, name, patience);
}

absl::Status Mount::Server::Lookup(Request request, uint64_t parent, const char* name) {
  fuse_entry_param entry{};
  entry.entry_timeout = entry.attr_timeout = Validity();
  // A file that is being written keeps the number that it has, and changes all the time.
  ASSIGN_OR_RETURN(const std::string key, KeyOf(parent, name));
  const std::shared_ptr<WrittenFile> written = ShownFile(local_.Find(key));
  if (written != nullptr && inodes_.TellAgain(written->inode)) {
    entry.ino = written->inode;
    entry.attr = StatOf(written->node(), entry.ino);
    entry.attr_timeout = 0;
  } else {
    absl::StatusOr<Node> node = Find(parent, name, PatienceOf(request));
    if (absl::IsNotFound(node.status())) {
      fuse_reply_entry(request, &entry);  // inode 0: the kernel remembers that there is none
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(node.status());
    entry.ino = inodes_.Remember(*node);
    entry.attr = StatOf(*node, entry.ino);
  }
  if (fuse_reply_entry(request, &entry) != 0) inodes_.Forget(entry.ino, 1);
  return absl::OkStatus();
}

absl::Status Mount::Server::GetAttributes(Request request, uint64_t inode) {
  if (const auto written = ShownFile(local_.FindInode(inode))) {
    struct stat info = StatOf(written->node(), inode);
    if (written->unlinked()) info.st_nlink = 0;
    fuse_reply_attr(request, &info, 0);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Node node, Fresh(inode, PatienceOf(request)));
  const struct stat info = StatOf(node, inode);
  fuse_reply_attr(request, &info, Validity());
  return absl::OkStatus();
}

// ---- Files that are read

bool Mount::Server::ReplyOpen(Request request, std::unique_ptr<OpenFile> open, fuse_file_info& file) {
  file.fh = reinterpret_cast<uint64_t>(open.get());
  if (fuse_reply_open(request, &file) != 0) return false;
  (void)open.release();  // ReleaseFile's
  return true;
}

std::unique_ptr<ReadWindow> Mount::Server::OpenVersion(const Node& node, ReadWindow::Kernel kernel) {
  return std::make_unique<ReadWindow>(ReadWindow::Shared{store_, memory_, tier_, around_, around_room_}, node, kernel);
}

absl::Status Mount::Server::OpenToRead(Request request, uint64_t inode, fuse_file_info& file) {
  const Patience patience = PatienceOf(request);
  auto open = std::make_unique<OpenFile>();
  open->inode = inode;
  open->kernel = (file.flags & O_DIRECT) != 0 ? ReadWindow::Kernel::kKeepsNothing : ReadWindow::Kernel::kKeeps;
  file.keep_cache = 1;  // the bytes of an inode change by way of the kernel alone
  file.noflush = 1;     // there is nothing to do when it is closed
  // The kernel has begun, so its own setting is in place.
  std::call_once(opened_, [this] { RaiseKernelReadAhead(options_.folder, below_); });
  ASSIGN_OR_RETURN(Node node, Known(inode));
  if (options_.writable && staging_ == nullptr) {
    const std::shared_ptr<WrittenFile> written = local_.Find(node.key);
    if (ShownFile(written) != nullptr) RETURN_IF_ERROR(AwaitStream(node.key, patience));
    if (written != nullptr && written->in_store() && written->closed) {
      RETURN_IF_ERROR(AwaitReplacement(node.key, patience));
    }
  }
  // From here on, what removes the file knows that somebody reads it.
  if (staging_ != nullptr) local_.AddReader(inode);
  absl::Status opened;
  const std::shared_ptr<WrittenFile> written = staging_ == nullptr ? nullptr : local_.FindInode(inode);
  if (written != nullptr) written->cached = true;
  if (ShownFile(written) == nullptr) {
    const absl::StatusOr<Node> fresh = Fresh(inode, patience);
    opened = fresh.status();
    if (fresh.ok()) {
      ahead_.OnOpen(fresh->key);
      open->was_asked_for = fresh->size == 0;
      open->commits = commits_;
      open->version = *fresh;
      open->read = OpenVersion(*fresh, open->kernel);
    }
  } else {
    open->was_asked_for = true;
  }
  if ((!opened.ok() || !ReplyOpen(request, std::move(open), file)) && staging_ != nullptr) local_.RemoveReader(inode);
  return opened;
}

// Returns a window on the version that the handle reads. After a commit by way of this mount, that is the new one.
absl::StatusOr<std::shared_ptr<ReadWindow>> Mount::Server::WindowOf(OpenFile& open, const Patience& patience) {
  const uint64_t commits = commits_;
  std::unique_lock lock(open.mutex);
  if (open.read != nullptr && (staging_ == nullptr || open.commits == commits)) return open.read;
  lock.unlock();
  absl::StatusOr<Node> now = Known(open.inode);
  if (now.ok() && open.read == nullptr) now = Fresh(open.inode, patience);
  RETURN_IF_ERROR(now.status());
  lock.lock();
  if (open.read == nullptr || !IsSameVersion(open.version, *now)) {
    open.read = OpenVersion(*now, open.kernel);
    open.version = *now;
  }
  open.commits = commits;
  return open.read;
}

absl::Status Mount::Server::ReadFile(Request request, size_t size, off_t offset, const fuse_file_info& file) {
  OpenFile& open = FileOf(file);
  const Patience patience = PatienceOf(request);
  const auto from = static_cast<uint64_t>(offset);
  absl::StatusOr<FileBytes> bytes;
  std::shared_ptr<WrittenFile> written = open.written;
  if (written == nullptr && staging_ != nullptr) written = local_.FindInode(open.inode);
  if (written != nullptr) {
    bytes = written->Read(from, size, patience);
  } else {
    if (!open.was_asked_for && !open.was_asked_for.exchange(true)) ahead_.OnRead();
    ASSIGN_OR_RETURN(const std::shared_ptr<ReadWindow> window, WindowOf(open, patience));
    bytes = window->Read(from, size, patience);
  }
  if (absl::IsNotFound(bytes.status())) return RefusedWith(ESTALE, std::string(bytes.status().message()));
  RETURN_IF_ERROR(bytes.status());
  life_.Show(fuse_req_ctx(request)->pid);
  // The bytes pass straight from where they are to the kernel.
  if (bytes->parts.size() == 1) {
    const ByteSpan part = bytes->parts.front();
    fuse_reply_buf(request, reinterpret_cast<const char*>(part.data()), part.size());
    return absl::OkStatus();
  }
  std::vector<iovec> parts;
  for (const ByteSpan part : bytes->parts) {
    parts.push_back({.iov_base = const_cast<std::byte*>(part.data()), .iov_len = part.size()});
  }
  fuse_reply_iov(request, parts.data(), static_cast<int>(parts.size()));
  return absl::OkStatus();
}

}  // namespace millrace
