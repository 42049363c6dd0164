#pragma once

#include <sys/types.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "base/memory_budget.h"
#include "store/object_store.h"

namespace millrace {

struct MountOptions {
  std::string folder;                                           // the mount point: an existing folder
  std::string source;                                           // what `df` and /proc/mounts name as the device
  std::chrono::nanoseconds timeout = std::chrono::seconds(30);  // of one call of a program
  std::chrono::nanoseconds metadata_ttl = std::chrono::seconds(1);
  bool allow_other = false;  // users other than the one who mounts
  uid_t uid = 0;             // the owner of all files
  gid_t gid = 0;
  mode_t umask = 0022;        // taken from 0777 (folders) and 0666 (files); of a read-only mount the write bits, too
  bool writable = false;      // programs may change what is there (docs/mount.md)
  bool no_overwrite = false;  // but for the contents of objects that are there
  bool links = false;         // objects with a LinkKey (mount/remote_tree.h) are symbolic links
  // The bytes of files that are being written lie in this folder; if it is "", these files are streams.
  std::string staging_folder;
  uint64_t staging_bytes = 0;                 // 0: half of what is free on the disk
  std::chrono::nanoseconds publish_every{0};  // how often fsync makes a version at most; 0: only of what is appended
  std::chrono::nanoseconds write_back{0};     // how long after close a file goes to the store; 0: close waits for that
  std::string order_file;  // "": none; keys, relative to the prefix, in the order in which files will be opened
  int threads = 192;       // calls that are served at a time; more than the kernel makes by itself, 128
};

/// Returns true if a file system of Millrace is mounted on the folder, be its process dead or alive.
bool IsMounted(const std::string& folder);

/// Returns true if a read-only mount of the prefix shows anything. Blocking; errors are those of the store.
absl::StatusOr<bool> ShowsAnything(ObjectStore& store, const std::string& prefix);

/// Shows a part of a store as a file system in a folder. The store must outlive it; the budget bounds what is read
/// ahead and what is written.
class Mount {
 public:
  /// Mounts it. Programs that use it wait until Serve is called. `prefix` is "" or ends with '/'.
  /// NotFound, PermissionDenied and so on if the folder, /dev/fuse or fusermount3 cannot be used; FailedPrecondition if
  /// there is a mount of Millrace on the folder already.
  static absl::StatusOr<std::unique_ptr<Mount>> Open(ObjectStore& store, MemoryBudget& memory, std::string prefix,
                                                     MountOptions options);
  /// Unmounts, if it is still mounted; programs that have files open there get errors from then on.
  ~Mount();
  Mount(const Mount&) = delete;
  Mount& operator=(const Mount&) = delete;

  /// Serves the programs until the folder is unmounted, or SIGTERM, SIGINT or SIGHUP comes, on this thread and others.
  /// `ready` is called when the kernel has begun. Call it once, on the thread that gets the signals.
  absl::Status Serve(std::function<void()> ready);

 private:
  class Server;
  explicit Mount(std::unique_ptr<Server> server);
  std::unique_ptr<Server> server_;
};

}  // namespace millrace
