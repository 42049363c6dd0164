#include "mount/mount.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/time/time.h"
#include "base/errno_status.h"
#include "base/number.h"
#include "base/shell_word.h"
#include "base/size.h"
#include "base/unique_fd.h"
#include "cache/cached_store.h"
#include "cache/disk_cache.h"
#include "cli/cache_option.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/metrics_option.h"
#include "cli/usage.h"
#include "mount/staging.h"
#include "store/request_counts.h"
#include "store/stores.h"
#include "transfer/artifact.h"
#include "transfer/key_pattern.h"

namespace millrace::cli {

namespace {

struct MountFlags {
  std::string uri;
  std::string folder;
  std::string timeout = "30s";
  std::string metadata_ttl = "1s";
  CacheOption cache;
  std::string memory;
  std::string log;
  std::string order;
  std::vector<std::string> options;
  bool foreground = false;
  MountOptions mount;
  bool links = false;
  bool no_links = false;
  bool no_staging = false;
  std::string staging;
  std::string staging_size;
  std::string publish_on_fsync;
  std::string write_back;
  bool recover = false;
  std::string metrics_port;
};

constexpr std::chrono::hours kForever{24 * 365};

absl::StatusOr<uint32_t> TakeNumber(std::string_view name, std::string_view text, int base) {
  if (const auto value = ParseNumber<uint32_t>(text, base)) return *value;
  return UsageError("-o {}: '{}' is not a number", name, text);
}

// Words of mount(8) that say nothing to this file system. (It writes "rw" itself where nothing was said.)
bool IsWordOfMount(std::string_view word) {
  constexpr std::string_view kWords[] = {"rw",       "_netdev", "nofail", "suid",    "nosuid",   "dev",  "nodev",
                                         "exec",     "noexec",  "atime",  "noatime", "relatime", "auto", "noauto",
                                         "defaults", "user",    "nouser", "users",   "sync",     "async"};
  return std::find(std::begin(kWords), std::end(kWords), word) != std::end(kWords) || word.starts_with("x-") ||
         word.starts_with("comment=");
}

// One word of -o, as mount(8) and /etc/fstab have them: it may also be one of the options of the command, as
// `cache=DIR`.
absl::Status TakeMountOption(std::string_view word, MountFlags& flags) {
  MountOptions& options = flags.mount;
  const size_t equals = word.find('=');
  const std::string_view name = word.substr(0, equals);
  const std::string_view value = equals == word.npos ? std::string_view() : word.substr(equals + 1);
  const std::pair<std::string_view, std::string*> texts[] = {{"timeout", &flags.timeout},
                                                             {"metadata-ttl", &flags.metadata_ttl},
                                                             {"cache", &flags.cache.place},
                                                             {"cache-size", &flags.cache.size},
                                                             {"memory", &flags.memory},
                                                             {"log", &flags.log},
                                                             {"order", &flags.order},
                                                             {"cache-tenant", &flags.cache.tenant},
                                                             {"staging", &flags.staging},
                                                             {"staging-size", &flags.staging_size},
                                                             {"publish-on-fsync", &flags.publish_on_fsync},
                                                             {"write-back", &flags.write_back}};
  for (const auto& [option, text] : texts) {
    if (name != option || value.empty()) continue;
    *text = std::string(value);
    return absl::OkStatus();
  }
  const std::pair<std::string_view, bool*> switches[] = {
      {"allow_other", &options.allow_other},   {"writable", &options.writable},
      {"no-overwrite", &options.no_overwrite}, {"links", &flags.links},
      {"no-links", &flags.no_links},           {"no-staging", &flags.no_staging}};
  for (const auto& [option, is_on] : switches) {
    if (word != option) continue;
    *is_on = true;
    return absl::OkStatus();
  }
  if (word == "ro") {
    options.writable = false;
  } else if (name == "uid") {
    ASSIGN_OR_RETURN(options.uid, TakeNumber(name, value, 10));
  } else if (name == "gid") {
    ASSIGN_OR_RETURN(options.gid, TakeNumber(name, value, 10));
  } else if (name == "umask") {
    ASSIGN_OR_RETURN(options.umask, TakeNumber(name, value, 8));
  } else if (!IsWordOfMount(word)) {
    return UsageError(
        "-o {}: there is no such option; known are allow_other, uid=N, gid=N, umask=OCTAL, ro, writable, "
        "and the other options of the command, as in cache=DIR",
        word);
  }
  return absl::OkStatus();
}

// Returns the place of the bytes of written files: on the disk of the cache unless another one is named.
absl::StatusOr<std::string> StagingFolderOf(const MountFlags& flags) {
  if (!flags.staging.empty()) return std::filesystem::absolute(flags.staging);
  if (!flags.cache.place.empty()) return std::filesystem::absolute(flags.cache.place);
  std::string folder = DefaultCacheFolder();
  if (!folder.empty()) return folder;
  return UsageError(
      "there is no place for files that are being written (neither HOME nor MILLRACE_CACHE is set); name a folder with "
      "--staging, or say --no-staging");
}

absl::StatusOr<bool> TakeLinks(const MountFlags& flags) {
  if (flags.no_links && flags.links) return UsageError("--no-links contradicts --links");
  if (flags.no_links && !flags.mount.writable) return UsageError("--no-links makes sense only beside --writable");
  return flags.links || (flags.mount.writable && !flags.no_links);
}

absl::Status TakeStaging(const MountFlags& flags, MountOptions& options) {
  const bool stages = !flags.staging.empty() || !flags.staging_size.empty() || !flags.publish_on_fsync.empty() ||
                      !flags.write_back.empty();
  if (flags.no_staging && stages) {
    return UsageError("--no-staging contradicts --staging, --staging-size, --publish-on-fsync and --write-back");
  }
  if (!options.writable && (options.no_overwrite || flags.no_staging || stages)) {
    return UsageError(
        "--no-overwrite, --no-staging, --staging, --staging-size, --publish-on-fsync and --write-back make sense only "
        "beside --writable");
  }
  if (!options.writable || flags.no_staging) return absl::OkStatus();
  ASSIGN_OR_RETURN(options.staging_folder, StagingFolderOf(flags));
  RETURN_IF_ERROR(TakeSize("--staging-size", flags.staging_size, &options.staging_bytes));
  if (!flags.publish_on_fsync.empty()) {
    ASSIGN_OR_RETURN(options.publish_every, TakeDuration("--publish-on-fsync", flags.publish_on_fsync));
  }
  if (!flags.write_back.empty()) {
    ASSIGN_OR_RETURN(options.write_back, TakeDuration("--write-back", flags.write_back));
  }
  return absl::OkStatus();
}

// Puts what -o says in its place among the flags.
absl::StatusOr<MountOptions> TakeOptions(MountFlags& flags) {
  if (flags.folder.empty()) return UsageError("it needs a URI and the folder to mount on; see millrace mount --help");
  RETURN_IF_ERROR(CheckUri(flags.uri));
  flags.mount.uid = getuid();
  flags.mount.gid = getgid();
  for (const std::string& list : flags.options) {
    for (const absl::string_view word : absl::StrSplit(list, ',', absl::SkipEmpty()))
      RETURN_IF_ERROR(TakeMountOption(ToStd(word), flags));
  }
  MountOptions options = flags.mount;
  options.source = flags.uri;
  options.folder = std::filesystem::absolute(flags.folder);
  if (!flags.order.empty()) {
    options.order_file = std::filesystem::absolute(flags.order);
    if (access(options.order_file.c_str(), R_OK) != 0) return ErrnoStatus(errno, flags.order, "reading --order");
  }
  ASSIGN_OR_RETURN(options.links, TakeLinks(flags));
  RETURN_IF_ERROR(TakeStaging(flags, options));
  ASSIGN_OR_RETURN(options.timeout, TakeDuration("--timeout", flags.timeout));
  if (flags.metadata_ttl == "minimal") {
    options.metadata_ttl = std::chrono::nanoseconds(0);
  } else if (flags.metadata_ttl == "indefinite") {
    options.metadata_ttl = kForever;
  } else {
    ASSIGN_OR_RETURN(options.metadata_ttl, TakeDuration("--metadata-ttl", flags.metadata_ttl));
  }
  return options;
}

/// The process that continues in the background once the folder is mounted. The first process waits for it: errors
/// before that appear on its stderr and in its exit status, and programs find the folder mounted when it has ended.
class Background {
 public:
  /// Returns the exit status in the process that was started, when the other one is ready or has ended. Returns nullopt
  /// in the other process.
  absl::StatusOr<std::optional<int>> Enter() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoStatus(errno, "a pipe", "making it");
    const UniqueFd ready(ends[0]);
    told_ = UniqueFd(ends[1]);
    const pid_t child = fork();
    if (child < 0) return ErrnoStatus(errno, "a process", "making it");
    if (child == 0) {
      setsid();
      return std::nullopt;
    }
    told_ = UniqueFd(-1);
    char byte = 0;
    ssize_t got = 0;
    while ((got = read(ready.get(), &byte, 1)) < 0 && errno == EINTR) {
    }
    return got == 1 ? 0 : 1;  // it has said why
  }

  /// Lets the first process end, and releases its terminal and folder.
  void Ready(const std::string& log) {
    if (!told_) return;
    const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    const UniqueFd file(log.empty() ? -1 : open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    dup2(null.get(), STDIN_FILENO);
    dup2(null.get(), STDOUT_FILENO);
    (void)!write(told_.get(), "!", 1);
    dup2(file ? file.get() : null.get(), STDERR_FILENO);
    (void)!chdir("/");
    told_ = UniqueFd(-1);
  }

 private:
  UniqueFd told_{-1};
};

/// SIGTERM, SIGINT and SIGHUP go to the thread that serves, not to those that are made while it lives.
class SignalsElsewhere {
 public:
  SignalsElsewhere() {
    sigset_t signals;
    sigemptyset(&signals);
    for (const int number : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, number);
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  ~SignalsElsewhere() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsElsewhere(const SignalsElsewhere&) = delete;
  SignalsElsewhere& operator=(const SignalsElsewhere&) = delete;

 private:
  sigset_t before_{};
};

absl::Status ServeMount(const MountFlags& flags, const MountOptions& options, const RuntimeOptions& limits,
                        const RangeCacheOptions& disk, const std::optional<MetricsAddress>& metrics_address,
                        Background& background) {
  std::optional<SignalsElsewhere> elsewhere(std::in_place);
  Runtime runtime(limits);
  std::unique_ptr<DiskCache> cache;
  if (!disk.folder.empty()) {
    ASSIGN_OR_RETURN(cache, DiskCache::Open(disk));
  }
  std::vector<std::unique_ptr<ObjectStore>> cached;  // what the cache is before
  const CachedStore* through = nullptr;              // the one store that is mounted
  StoreCounts requests;
  Stores stores(runtime, [&](std::unique_ptr<ObjectStore> below) -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
    requests.Add(*below);
    if (cache == nullptr) return below;
    cached.push_back(std::move(below));
    auto wrapped = std::make_unique<CachedStore>(*cached.back(), *cache);
    through = wrapped.get();
    return wrapped;
  });
  ASSIGN_OR_RETURN(const Location from, stores.Open(flags.uri));
  ASSIGN_OR_RETURN(const std::unique_ptr<MetricsServer> metrics, ServeMetrics(metrics_address, [&](MetricsText* text) {
                     CollectProcess(text);
                     CollectMemory(runtime.memory(), text);
                     requests.Collect(text);
                     if (through != nullptr) CollectCache(through->report(), flags.uri, text);
                   }));
  // A wrong address or wrong credentials are reported now, and not to the first program that looks.
  ASSIGN_OR_RETURN(const bool shows_anything, ShowsAnything(*from.store, AsFolder(from.prefix)));
  if (!shows_anything && !options.writable) {
    PrintError(
        "millrace mount: warning: nothing lies below {}, so {} shows no files; check the URI with `millrace ls`\n",
        Printable(flags.uri), Printable(options.folder));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Mount> mount,
                   Mount::Open(*from.store, runtime.memory(), AsFolder(from.prefix), options));
  elsewhere.reset();
  return mount->Serve([&] { background.Ready(flags.log); });
}

// Prints the files that mounts which have ended have left in their staging folders below `folder`, and how to get them
// to the store.
absl::Status PrintLeftFiles(const std::string& folder) {
  ASSIGN_OR_RETURN(const std::vector<LeftFile> files, StagingFolder::ListLeft(folder));
  if (files.empty()) PrintError("millrace mount: no files were left in {}\n", Printable(folder));
  std::string text;
  for (const LeftFile& file : files) {
    const std::string when =
        absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixMillis(file.modified_ms), absl::LocalTimeZone());
    const std::string& why = file.record.why;
    text += fmt::format("{}  {}  {}\n  {}\n", Printable(file.record.uri), FormatSize(file.record.size), when,
                        why.empty() ? "the mount ended before the file was closed" : Printable(why));
    if (file.is_whole) {
      text += fmt::format("  millrace cp {} {} && rm {}\n", ShellWord(file.path), ShellWord(file.record.uri),
                          ShellWord(file.path));
    } else {
      text += fmt::format("  in part: the missing bytes are in the version {}; the others are in {}\n",
                          Printable(file.record.base), Printable(file.path));
    }
  }
  return WriteStdout(text);
}

absl::StatusOr<int> RunMount(MountFlags flags) {
  if (flags.recover) {
    ASSIGN_OR_RETURN(const std::string folder, StagingFolderOf(flags));
    RETURN_IF_ERROR(PrintLeftFiles(folder));
    return 0;
  }
  ASSIGN_OR_RETURN(const MountOptions options, TakeOptions(flags));
  RuntimeOptions limits;
  RETURN_IF_ERROR(TakeSize("--memory", flags.memory, &limits.memory_bytes));
  ASSIGN_OR_RETURN(RangeCacheOptions disk,
                   flags.cache.TakeFolder("the kernel keeps in memory what was read of a mount"));
  if (!disk.folder.empty()) disk.folder = std::filesystem::absolute(disk.folder);
  if (!flags.log.empty()) flags.log = std::filesystem::absolute(flags.log);
  ASSIGN_OR_RETURN(const std::optional<MetricsAddress> metrics_address, TakeMetricsPort(flags.metrics_port));
  Background background;
  if (!flags.foreground) {
    ASSIGN_OR_RETURN(const std::optional<int> status, background.Enter());
    if (status) return *status;
  }
  RETURN_IF_ERROR(ServeMount(flags, options, limits, disk, metrics_address, background));
  return 0;
}

constexpr const char* kMountFooter =
    R"(Any program reads the objects below URI as files in DIR. With --writable, DIR is like a disk: programs make, change,
remove and rename files, and a file becomes an object when the last program that writes it closes it. Until then its bytes
lie in the folder --staging. If another machine has replaced the object, the file cannot become an object, and stays there:
`millrace mount --recover` lists such files. Files that are read from their beginning are read ahead, and so are files that
are opened in the order of their names, or in that of --order. An open file stays the version that was opened. If the object
is replaced, reads fail with ESTALE.
docs/mount.md has the guarantees, and the errors that programs get.

The command returns when DIR is mounted. `umount DIR`, `fusermount3 -u DIR` and SIGTERM end it.

Examples:
  millrace mount s3://bucket/train /mnt/train
  millrace mount s3://bucket/train /mnt/train --cache /nvme/cache --cache-size 500GiB --metadata-ttl indefinite
  millrace mount s3://bucket/results /mnt/results --writable
  millrace mount --recover --staging /nvme/cache
  millrace mount s3://bucket/train /mnt/train --foreground -o allow_other,uid=1000
  umount /mnt/train)";

}  // namespace

void AddMount(Command app) {
  const Command mount = app.AddCommand("mount", "Mount a store as a file system: objects are files");
  auto flags = std::make_shared<MountFlags>();
  mount.Add("uri", &flags->uri, "A bucket, prefix or folder");
  mount.Add("dir", &flags->folder, "The folder to mount on");
  mount.AddFlag("--foreground", &flags->foreground,
                "Serve in this process, which ends when the folder is unmounted; for systemd and containers");
  mount.AddFlag("--writable", &flags->mount.writable, "Let programs make, change, remove and rename files");
  mount.AddFlag("--no-overwrite", &flags->mount.no_overwrite,
                "But refuse to change or replace the contents of objects");
  mount.AddFlag("--links", &flags->links,
                "Show objects NAME.rclonelink as symbolic links, as --writable does, also if this mount is read-only");
  mount.AddFlag("--no-links", &flags->no_links,
                "Show them as files, also with --writable, and let programs make no symbolic links");
  mount.Add("--staging DIR", &flags->staging,
            "Keep the bytes of files that are being written in this folder of a local disk [that of --cache, else "
            "~/.cache/millrace]");
  mount.Add("--staging-size SIZE", &flags->staging_size, "How much of the disk they may take [half of the free space]");
  mount.AddFlag("--no-staging", &flags->no_staging,
                "Keep nothing on a disk: programs write files from their beginning to their end, and do not read them "
                "meanwhile");
  mount.Add("--publish-on-fsync TIME", &flags->publish_on_fsync,
            "Let fsync make an object of the bytes written so far, at most once in this time [only if it is appended "
            "to, each second]");
  mount.Add("--write-back TIME", &flags->write_back,
            "Let close return at once: the file goes to the store this long after its last close [close waits for the "
            "store]");
  mount.AddFlag("--recover", &flags->recover,
                "List the files in --staging that earlier mounts could not make objects of, and end");
  mount.AddShown("--timeout TIME", &flags->timeout,
                 "How long a program is kept waiting for the store before it gets EIO");
  mount.AddShown(
      "--metadata-ttl TIME", &flags->metadata_ttl,
      "How long names and sizes are believed, and also that a file does not exist: a time, minimal or indefinite");
  const Option cache = mount.Add("--cache DIR", &flags->cache.place, "Keep bytes that are read in this folder");
  mount.Add("--cache-size", &flags->cache.size, "Max size of the cache on disk [all but 5 %]").Needs(cache);
  AddCacheTenant(mount, cache, &flags->cache.tenant);
  mount.Add("--order FILE", &flags->order,
            "Files will be opened in the order of this file, one key below URI a line; millrace.Plan writes it");
  mount.Add("--memory", &flags->memory, "Budget for bytes that are read ahead [half of the memory]");
  mount.Add("--log FILE", &flags->log, "Append warnings of the process in the background to this file [nowhere]");
  AddMetricsPort(mount, &flags->metrics_port);
  mount.Add("-o OPTIONS", &flags->options,
            "As mount(8): allow_other, uid=N, gid=N, umask=OCTAL, ro; also the options above, as in cache=DIR");
  mount.Footer(kMountFooter);
  mount.Run([flags] { return ExitStatus("mount", HintAtS3(RunMount(*flags), {flags->uri})); });
}

}  // namespace millrace::cli
