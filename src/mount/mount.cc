#include "mount/mount.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "base/errno_status.h"
#include "mount/mount_server.h"
#include "store/blocking.h"
#include "transfer/key_pattern.h"

namespace millrace {

namespace {

namespace fs = std::filesystem;

// The kernel makes at most so many requests by itself, as it reads ahead. There are more threads than that: if a store
// is away and all of them wait, some are left to hear that a program was killed.
constexpr unsigned kMaxBackground = 128;
// Requests come in bursts: threads that end after each and are made for the next cost more than to keep them.
constexpr unsigned kIdleThreads = 64;

// Returns the path as the table of mounts names it. A dead mount can be named; to look at it may fail.
std::string RealPath(const std::string& folder) {
  fs::path path(folder);
  if (!path.has_filename()) path = path.parent_path();  // a slash at the end
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (!error) return real;
  const fs::path parent = fs::weakly_canonical(path.parent_path(), error);
  return error ? folder : (parent / path.filename()).string();
}

}  // namespace

// ---- What is there before

bool IsMounted(const std::string& folder) {
  const std::string real = RealPath(folder);
  std::ifstream table("/proc/self/mounts");
  bool found = false;
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string source, place, type;
    words >> source >> place >> type;
    std::string plain;
    for (size_t i = 0; i < place.size(); ++i) {
      // A blank is written \040. A tab, a line feed and a backslash have such numbers, too.
      if (place[i] == '\\' && i + 3 < place.size()) {
        plain += static_cast<char>(std::stoi(place.substr(i + 1, 3), nullptr, 8));
        i += 3;
      } else {
        plain += place[i];
      }
    }
    if (plain == real) found = type == "fuse.millrace";
  }
  return found;
}

absl::StatusOr<bool> ShowsAnything(ObjectStore& store, const std::string& prefix) {
  // Three entries suffice: the marker of the folder, a hidden one, and one that is seen.
  ASSIGN_OR_RETURN(
      const ListPage first,
      ListBlocking(store, {.prefix = prefix, .delimiter = "/", .start_after = {}, .continuation = {}, .max_keys = 3}));
  const auto is_seen = [&](std::string_view key) { return key != prefix && !IsOwnFile(key.substr(prefix.size())); };
  return std::any_of(first.common_prefixes.begin(), first.common_prefixes.end(), is_seen) ||
         std::any_of(first.objects.begin(), first.objects.end(), [&](const auto& info) { return is_seen(info.key); });
}

// ---- libfuse

void Mount::Server::OnInit(fuse_conn_info& connection) {
  // The kernel always lists with attributes: programs that list a folder look at what is in it.
  connection.want |= connection.capable & FUSE_CAP_READDIRPLUS;
  connection.want &= ~static_cast<unsigned>(FUSE_CAP_READDIRPLUS_AUTO);
  connection.want |= connection.capable & (FUSE_CAP_ASYNC_READ | FUSE_CAP_PARALLEL_DIROPS);
  connection.want &= ~static_cast<unsigned>(FUSE_CAP_AUTO_INVAL_DATA);  // the bytes of an inode never change
  if (options_.links) connection.want |= connection.capable & FUSE_CAP_CACHE_SYMLINKS;
  // This also limits how much the kernel reads at a time. A longer read could not be answered whole, and the kernel
  // takes a short answer for the end of the file.
  connection.max_write = std::min<unsigned>(connection.max_write, kMaxFuseRead);
  connection.max_background = kMaxBackground;
  connection.congestion_threshold = kMaxBackground * 3 / 4;
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
    if ((file->flags & O_ACCMODE) == O_RDONLY) {
      Answer(request, [&](Server& self) { return self.OpenToRead(request, inode, *file); });
    } else {
      AnswerChange(request, [&](Server& self) { return self.OpenToWrite(request, inode, *file); });
    }
  };
  operations.read = [](Request request, fuse_ino_t /*inode*/, size_t size, off_t offset, fuse_file_info* file) {
    Answer(request, [&](Server& self) { return self.ReadFile(request, size, offset, *file); });
  };
  operations.release = [](Request request, fuse_ino_t /*inode*/, fuse_file_info* file) {
    Of(request).ReleaseFile(request, *file);
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
    info.f_namemax = kMaxFileName;
    // Programs look whether there is room before they write; a store does not tell.
    constexpr fsblkcnt_t kNoBound = fsblkcnt_t{1} << 38;
    if (Of(request).options_.writable) info.f_blocks = info.f_bfree = info.f_bavail = kNoBound;
    fuse_reply_statfs(request, &info);
  };
  AddWriting(operations);
  AddChanges(operations);
  AddLinks(operations);
  return operations;
}

absl::Status Mount::Server::Begin() {
  if (IsMounted(options_.folder)) {
    return absl::FailedPreconditionError(
        fmt::format("{}: a file system of Millrace is mounted there already; unmount it first: fusermount3 -u {}",
                    options_.folder, options_.folder));
  }
  struct stat info {};
  if (stat(options_.folder.c_str(), &info) != 0) {
    if (errno != ENOENT) return ErrnoStatus(errno, options_.folder, "mounting there");
    return absl::NotFoundError(
        fmt::format("{}: there is no such folder; make it first: mkdir -p {}", options_.folder, options_.folder));
  }
  if (!S_ISDIR(info.st_mode)) {
    return absl::InvalidArgumentError(fmt::format("{}: is not a folder; make one to mount on", options_.folder));
  }
  below_ = info.st_dev;
  // A comma separates options of mount.
  std::string source = options_.source;
  std::replace(source.begin(), source.end(), ',', '_');
  const std::string words =
      fmt::format("{},nosuid,nodev,default_permissions,subtype=millrace,fsname={}{}", options_.writable ? "rw" : "ro",
                  source, options_.allow_other ? ",allow_other" : "");
  fuse_args arguments = FUSE_ARGS_INIT(0, nullptr);
  fuse_opt_add_arg(&arguments, "millrace");
  fuse_opt_add_arg(&arguments, "-o");
  fuse_opt_add_arg(&arguments, words.c_str());
  fuse_lowlevel_ops operations = Operations();
  if (options_.writable) AddExtended(operations);  // else the kernel asks once, and not again
  session_ = fuse_session_new(&arguments, &operations, sizeof(operations), this);
  fuse_opt_free_args(&arguments);
  if (session_ == nullptr) return absl::InternalError("libfuse takes none of the options; it says why on stderr");
  if (fuse_session_mount(session_, options_.folder.c_str()) != 0) {
    fuse_session_destroy(std::exchange(session_, nullptr));
    return absl::PermissionDeniedError(
        fmt::format("{}: cannot be mounted on; see above. Check that /dev/fuse is there (in a container: --device "
                    "/dev/fuse --cap-add SYS_ADMIN) and that fusermount3 is installed. For allow_other, check that "
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
  fuse_loop_cfg_set_idle_threads(config, kIdleThreads);
  const int result = fuse_session_loop_mt(session_, config);
  fuse_loop_cfg_destroy(config);
  FinishFiles();
  fuse_remove_signal_handlers(session_);
  // A result that is not negative is the number of a signal, or 0 after umount.
  if (result >= 0) return absl::OkStatus();
  return ErrnoStatus(-result, options_.folder, "serving the mount");
}

// ---- Mount

Mount::Mount(std::unique_ptr<Server> server) : server_(std::move(server)) {}
Mount::~Mount() = default;

absl::StatusOr<std::unique_ptr<Mount>> Mount::Open(ObjectStore& store, MemoryBudget& memory, std::string prefix,
                                                   MountOptions options) {
  std::unique_ptr<StagingFolder> staging;
  if (options.writable && !options.staging_folder.empty()) {
    ASSIGN_OR_RETURN(staging, StagingFolder::Open(options.staging_folder, options.staging_bytes));
  }
  auto server = std::make_unique<Server>(store, memory, std::move(prefix), std::move(options), std::move(staging));
  RETURN_IF_ERROR(server->Begin());
  return std::unique_ptr<Mount>(new Mount(std::move(server)));
}

absl::Status Mount::Serve(std::function<void()> ready) {
  return server_->Serve(std::move(ready));
}

}  // namespace millrace
