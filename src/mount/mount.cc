#define FUSE_USE_VERSION 312

#include "mount/mount.h"

#include <fmt/format.h>
#include <fuse3/fuse_lowlevel.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <limits>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

#include "base/errno_status.h"
#include "base/log.h"
#include "mount/inode_table.h"
#include "mount/mount_errno.h"
#include "mount/read_window.h"
#include "mount/remote_tree.h"

namespace millrace {

namespace {

constexpr size_t kMaxRead = size_t{1} << 20;
constexpr unsigned kMaxIdleThreads = 8;

/// An open folder: where its listing is. Offsets that the kernel passes back count entries from 1; 0 is the beginning.
struct OpenFolder {
  std::mutex mutex;
  std::string key;
  bool begun = false;
  uint64_t first = 0;  // the number of the first entry of `page`
  RemoteTree::Page page;
};

}  // namespace

class Mount::Server {
 public:
  Server(ObjectStore& store, MemoryBudget& memory, std::string prefix, MountOptions options)
      : store_(store),
        memory_(memory),
        options_(std::move(options)),
        tree_(store, options_.metadata_ttl),
        inodes_(std::move(prefix)),
        mounted_at_(std::chrono::system_clock::now()) {}

  ~Server() {
    if (session_ == nullptr) return;
    fuse_session_unmount(session_);
    fuse_session_destroy(session_);
  }

  absl::Status Begin();
  absl::Status Serve(std::function<void()> ready);

 private:
  using Request = fuse_req_t;

  static Server& Of(Request request) { return *static_cast<Server*>(fuse_req_userdata(request)); }

  /// Runs a call of the kernel: nothing that it throws may reach libfuse. `work` replies, or returns an error.
  template <typename Work>
  static void Answer(Request request, Work work) {
    absl::Status status;
    try {
      status = work(Of(request));
    } catch (const std::bad_alloc&) {
      status = absl::ResourceExhaustedError("there is no memory");
    }
    if (status.ok()) return;
    const int error = ErrnoOf(status);
    // What is not there, or was replaced, is no news.
    if (error != ENOENT && error != ESTALE && error != EINTR) Of(request).Warn(status);
    fuse_reply_err(request, error);
  }

  Patience PatienceOf(Request request) const {
    return {std::chrono::steady_clock::now() + options_.timeout,
            [request, this] { return fuse_req_interrupted(request) != 0 || fuse_session_exited(session_) != 0; }};
  }

  void Warn(const absl::Status& status);
  double Validity() const { return std::chrono::duration<double>(options_.metadata_ttl).count(); }
  struct stat StatOf(const Node& node, uint64_t inode) const;
  absl::StatusOr<Node> Known(uint64_t inode) const;
  absl::StatusOr<Node> Fresh(Request request, uint64_t inode);

  absl::Status Lookup(Request request, uint64_t parent, const char* name);
  absl::Status GetAttributes(Request request, uint64_t inode);
  absl::Status OpenFile(Request request, uint64_t inode, fuse_file_info& file);
  absl::Status ReadFile(Request request, size_t size, off_t offset, const fuse_file_info& file);
  absl::Status OpenDirectory(Request request, uint64_t inode, fuse_file_info& file);
  absl::Status ReadDirectory(Request request, uint64_t inode, size_t size, off_t offset, const fuse_file_info& file,
                             bool plus);
  absl::StatusOr<const RemoteTree::Entry*> EntryAt(OpenFolder& folder, uint64_t number, const Patience& patience);
  bool AddEntry(Request request, std::vector<char>& out, size_t size, const RemoteTree::Entry& entry, uint64_t next,
                bool plus);
  bool AddDot(Request request, std::vector<char>& out, size_t size, const char* name, uint64_t inode, uint64_t next,
              bool plus) const;
  static bool Append(std::vector<char>& out, size_t size, size_t needed);
  static fuse_lowlevel_ops Operations();
  void OnInit(fuse_conn_info& connection);

  ObjectStore& store_;
  MemoryBudget& memory_;
  const MountOptions options_;
  const RemoteTree tree_;
  InodeTable inodes_;
  const std::chrono::system_clock::time_point mounted_at_;
  std::atomic<int64_t> warned_ms_{0};
  std::function<void()> ready_;
  fuse_session* session_ = nullptr;
};

// ---- What files and folders are

struct stat Mount::Server::StatOf(const Node& node, uint64_t inode) const {
  struct stat info {};
  info.st_ino = inode;
  info.st_uid = options_.uid;
  info.st_gid = options_.gid;
  info.st_nlink = 1;  // also of folders: programs take more for the number of folders in them
  info.st_blksize = static_cast<blksize_t>(kMaxRead);
  int64_t modified_ms = node.modified_ms;
  if (node.is_folder()) {
    info.st_mode = S_IFDIR | (0555 & ~options_.umask);
    modified_ms = std::chrono::duration_cast<std::chrono::milliseconds>(mounted_at_.time_since_epoch()).count();
  } else {
    info.st_mode = S_IFREG | (0444 & ~options_.umask);
    info.st_size = static_cast<off_t>(node.size);
    info.st_blocks = static_cast<blkcnt_t>((node.size + 511) / 512);
  }
  info.st_mtim = {.tv_sec = modified_ms / 1000, .tv_nsec = modified_ms % 1000 * 1'000'000};
  info.st_ctim = info.st_atim = info.st_mtim;
  return info;
}

absl::StatusOr<Node> Mount::Server::Known(uint64_t inode) const {
  std::optional<Node> node = inodes_.Find(inode);
  if (!node) return absl::FailedPreconditionError(fmt::format("inode {} is not known any more", inode));
  return *std::move(node);
}

// What a file is, as far as that may be told without asking the store again. After ESTALE the kernel looks its path up
// again, and so gets to the new version.
absl::StatusOr<Node> Mount::Server::Fresh(Request request, uint64_t inode) {
  ASSIGN_OR_RETURN(Node node, Known(inode));
  if (node.is_folder() || std::chrono::steady_clock::now() < node.fresh_until) return node;
  ASSIGN_OR_RETURN(node, tree_.Look(node.key, PatienceOf(request)));
  if (!inodes_.Renew(inode, node)) return absl::FailedPreconditionError(fmt::format("{}: was replaced", node.key));
  return node;
}

void Mount::Server::Warn(const absl::Status& status) {
  // One a second: a store that is away fails every call.
  const int64_t now = absl::ToUnixMillis(absl::Now());
  int64_t last = warned_ms_.load(std::memory_order_relaxed);
  if (now - last < 1000 || !warned_ms_.compare_exchange_strong(last, now)) return;
  Log(LogLevel::kWarning, "mount", std::string(ToStd(status.message())));
}

absl::Status Mount::Server::Lookup(Request request, uint64_t parent, const char* name) {
  ASSIGN_OR_RETURN(const Node folder, Known(parent));
  fuse_entry_param entry{};
  entry.entry_timeout = entry.attr_timeout = Validity();
  absl::StatusOr<Node> node = tree_.Lookup(folder.key, name, PatienceOf(request));
  if (absl::IsNotFound(node.status())) {
    fuse_reply_entry(request, &entry);  // inode 0: the kernel remembers that there is none
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(node.status());
  entry.ino = inodes_.Remember(*node);
  entry.attr = StatOf(*node, entry.ino);
  if (fuse_reply_entry(request, &entry) != 0) inodes_.Forget(entry.ino, 1);
  return absl::OkStatus();
}

absl::Status Mount::Server::GetAttributes(Request request, uint64_t inode) {
  ASSIGN_OR_RETURN(const Node node, Fresh(request, inode));
  const struct stat info = StatOf(node, inode);
  fuse_reply_attr(request, &info, Validity());
  return absl::OkStatus();
}

// ---- Files

absl::Status Mount::Server::OpenFile(Request request, uint64_t inode, fuse_file_info& file) {
  if ((file.flags & O_ACCMODE) != O_RDONLY) {
    fuse_reply_err(request, EROFS);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(Node node, Fresh(request, inode));
  file.keep_cache = 1;  // the bytes of an inode never change
  auto window = std::make_unique<ReadWindow>(store_, memory_, std::move(node));
  file.fh = reinterpret_cast<uint64_t>(window.get());
  if (fuse_reply_open(request, &file) == 0) (void)window.release();  // ReleaseFile's
  return absl::OkStatus();
}

absl::Status Mount::Server::ReadFile(Request request, size_t size, off_t offset, const fuse_file_info& file) {
  auto& window = *reinterpret_cast<ReadWindow*>(file.fh);
  Buffer bytes(std::min(size, kMaxRead));
  ASSIGN_OR_RETURN(const size_t count, window.Read(static_cast<uint64_t>(offset), bytes.span(), PatienceOf(request)));
  fuse_reply_buf(request, reinterpret_cast<const char*>(bytes.data()), count);
  return absl::OkStatus();
}

// ---- Folders

absl::Status Mount::Server::OpenDirectory(Request request, uint64_t inode, fuse_file_info& file) {
  ASSIGN_OR_RETURN(const Node node, Known(inode));
  auto folder = std::make_unique<OpenFolder>();
  folder->key = node.key;
  file.fh = reinterpret_cast<uint64_t>(folder.get());
  if (fuse_reply_open(request, &file) == 0) (void)folder.release();  // ReleaseDirectory's
  return absl::OkStatus();
}

// Entry `number` of the folder, counted from 0; null behind the last one. Going back begins the listing again.
absl::StatusOr<const RemoteTree::Entry*> Mount::Server::EntryAt(OpenFolder& folder, uint64_t number,
                                                                const Patience& patience) {
  if (!folder.begun || number < folder.first) {
    ASSIGN_OR_RETURN(folder.page, tree_.List(folder.key, "", patience));
    folder.first = 0;
    folder.begun = true;
  }
  while (number - folder.first >= folder.page.entries.size()) {
    if (folder.page.continuation.empty()) return nullptr;
    const uint64_t next = folder.first + folder.page.entries.size();
    ASSIGN_OR_RETURN(folder.page, tree_.List(folder.key, folder.page.continuation, patience));
    folder.first = next;
  }
  return &folder.page.entries[number - folder.first];
}

bool Mount::Server::Append(std::vector<char>& out, size_t size, size_t needed) {
  if (out.size() + needed > size) return false;
  out.resize(out.size() + needed);
  return true;
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
    entry.attr.st_ino = std::numeric_limits<uint32_t>::max();
    entry.attr.st_mode = found.node.is_folder() ? S_IFDIR : S_IFREG;
    const size_t needed = fuse_add_direntry(request, nullptr, 0, name, nullptr, 0);
    if (!Append(out, size, needed)) return false;
    fuse_add_direntry(request, out.data() + at, needed, name, &entry.attr, static_cast<off_t>(next));
    return true;
  }
  const size_t needed = fuse_add_direntry_plus(request, nullptr, 0, name, nullptr, 0);
  if (!Append(out, size, needed)) return false;
  entry.entry_timeout = entry.attr_timeout = Validity();
  entry.ino = inodes_.Remember(found.node);
  entry.attr = StatOf(found.node, entry.ino);
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
    // What was put together goes out first: its inodes are counted.
    if (!entry.ok() && out.empty()) return entry.status();  // unlocks before Answer replies
    if (!entry.ok() || *entry == nullptr) break;
    if (!AddEntry(request, out, size, **entry, number + 1, plus)) break;
  }
  lock.unlock();  // after the reply the folder may be closed, by another thread
  fuse_reply_buf(request, out.data(), out.size());
  return absl::OkStatus();
}

// ---- libfuse

void Mount::Server::OnInit(fuse_conn_info& connection) {
  // Always with attributes: programs that list a folder look at what is in it.
  connection.want |= connection.capable & FUSE_CAP_READDIRPLUS;
  connection.want &= ~static_cast<unsigned>(FUSE_CAP_READDIRPLUS_AUTO);
  connection.want |= connection.capable & (FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS);
  connection.want &= ~static_cast<unsigned>(FUSE_CAP_AUTO_INVAL_DATA);  // the bytes of an inode never change
  connection.max_background = 128;
  connection.congestion_threshold = 96;
  if (ready_) ready_();
}

fuse_lowlevel_ops Mount::Server::Operations() {
  fuse_lowlevel_ops operations{};
  operations.init = [](void* self, fuse_conn_info* connection) { static_cast<Server*>(self)->OnInit(*connection); };
  operations.lookup = [](Request request, fuse_ino_t parent, const char* name) {
    Answer(request, [&](Server& self) { return self.Lookup(request, parent, name); });
  };
  operations.forget = [](Request request, fuse_ino_t inode, uint64_t times) {
    Of(request).inodes_.Forget(inode, times);
    fuse_reply_none(request);
  };
  operations.forget_multi = [](Request request, size_t count, fuse_forget_data* forgets) {
    for (size_t i = 0; i < count; ++i) Of(request).inodes_.Forget(forgets[i].ino, forgets[i].nlookup);
    fuse_reply_none(request);
  };
  operations.getattr = [](Request request, fuse_ino_t inode, fuse_file_info* /*file*/) {
    Answer(request, [&](Server& self) { return self.GetAttributes(request, inode); });
  };
  operations.open = [](Request request, fuse_ino_t inode, fuse_file_info* file) {
    Answer(request, [&](Server& self) { return self.OpenFile(request, inode, *file); });
  };
  operations.read = [](Request request, fuse_ino_t /*inode*/, size_t size, off_t offset, fuse_file_info* file) {
    Answer(request, [&](Server& self) { return self.ReadFile(request, size, offset, *file); });
  };
  operations.release = [](Request request, fuse_ino_t /*inode*/, fuse_file_info* file) {
    delete reinterpret_cast<ReadWindow*>(file->fh);
    fuse_reply_err(request, 0);
  };
  operations.opendir = [](Request request, fuse_ino_t inode, fuse_file_info* file) {
    Answer(request, [&](Server& self) { return self.OpenDirectory(request, inode, *file); });
  };
  operations.readdir = [](Request request, fuse_ino_t inode, size_t size, off_t offset, fuse_file_info* file) {
    Answer(request, [&](Server& self) { return self.ReadDirectory(request, inode, size, offset, *file, false); });
  };
  operations.readdirplus = [](Request request, fuse_ino_t inode, size_t size, off_t offset, fuse_file_info* file) {
    Answer(request, [&](Server& self) { return self.ReadDirectory(request, inode, size, offset, *file, true); });
  };
  operations.releasedir = [](Request request, fuse_ino_t /*inode*/, fuse_file_info* file) {
    delete reinterpret_cast<OpenFolder*>(file->fh);
    fuse_reply_err(request, 0);
  };
  operations.statfs = [](Request request, fuse_ino_t /*inode*/) {
    struct statvfs info {};
    info.f_bsize = info.f_frsize = 4096;
    info.f_namemax = 255;
    fuse_reply_statfs(request, &info);
  };
  return operations;
}

absl::Status Mount::Server::Begin() {
  struct stat info {};
  if (stat(options_.folder.c_str(), &info) != 0) return ErrnoStatus(errno, options_.folder, "mounting there");
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(fmt::format("{}: is not a folder; make one to mount on", options_.folder));
  }
  // A comma separates options of mount.
  std::string source = options_.source;
  std::replace(source.begin(), source.end(), ',', '_');
  const std::string words = fmt::format("ro,nosuid,nodev,default_permissions,subtype=millrace,fsname={}{}", source,
                                        options_.allow_other ? ",allow_other" : "");
  fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
  fuse_opt_add_arg(&arguments, "millrace");
  fuse_opt_add_arg(&arguments, "-o");
  fuse_opt_add_arg(&arguments, words.c_str());
  const fuse_lowlevel_ops operations = Operations();
  session_ = fuse_session_new(&arguments, &operations, sizeof(operations), this);
  fuse_opt_free_args(&arguments);
  if (session_ == nullptr) return absl::InternalError("libfuse takes none of the options; it says why on stderr");
  if (fuse_session_mount(session_, options_.folder.c_str()) != 0) {
    fuse_session_destroy(std::exchange(session_, nullptr));
    return absl::PermissionDeniedError(
        fmt::format("{}: cannot be mounted on; see above, and check that /dev/fuse is there (in a container: --device "
                    "/dev/fuse --cap-add SYS_ADMIN), that fusermount3 is installed, and, for allow_other, that "
                    "/etc/fuse.conf has user_allow_other",
                    options_.folder));
  }
  return absl::OkStatus();
}

absl::Status Mount::Server::Serve(std::function<void()> ready) {
  ready_ = std::move(ready);
  if (fuse_set_signal_handlers(session_) != 0) return absl::InternalError("the handlers of signals cannot be set");
  fuse_loop_config* const config = fuse_loop_cfg_create();
  fuse_loop_cfg_set_max_threads(config, static_cast<unsigned>(options_.threads));
  fuse_loop_cfg_set_idle_threads(config, kMaxIdleThreads);
  const int result = fuse_session_loop_mt(session_, config);
  fuse_loop_cfg_destroy(config);
  fuse_remove_signal_handlers(session_);
  // The number of a signal, or 0 after umount.
  if (result >= 0) return absl::OkStatus();
  return ErrnoStatus(-result, options_.folder, "serving the mount");
}

// ---- Mount

Mount::Mount(std::unique_ptr<Server> server) : server_(std::move(server)) {}
Mount::~Mount() = default;

absl::StatusOr<std::unique_ptr<Mount>> Mount::Open(ObjectStore& store, MemoryBudget& memory, std::string prefix,
                                                   MountOptions options) {
  auto server = std::make_unique<Server>(store, memory, std::move(prefix), std::move(options));
  RETURN_IF_ERROR(server->Begin());
  return std::unique_ptr<Mount>(new Mount(std::move(server)));
}

absl::Status Mount::Serve(std::function<void()> ready) {
  return server_->Serve(std::move(ready));
}

}  // namespace millrace
