#pragma once

#define FUSE_USE_VERSION 312

#include <fmt/format.h>
#include <fuse3/fuse_lowlevel.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/life_of_others.h"
#include "mount/block_tier.h"
#include "mount/inode_table.h"
#include "mount/local_tree.h"
#include "mount/look_ahead.h"
#include "mount/mount.h"
#include "mount/mount_errno.h"
#include "mount/patience.h"
#include "mount/read_window.h"
#include "mount/remote_tree.h"

/// The calls of the kernel, each a function that replies or returns an error. Only the files of the mount include this.

namespace millrace {

constexpr size_t kMaxFuseRead = size_t{1} << 20;

class Mount::Server {
 public:
  Server(ObjectStore& store, MemoryBudget& memory, std::string prefix, MountOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  absl::Status Begin();
  absl::Status Serve(std::function<void()> ready);

 private:
  using Request = fuse_req_t;

  /// An open file: one of the two.
  struct OpenFile {
    std::unique_ptr<ReadWindow> read;
    std::atomic<bool> was_asked_for{false};  // the kernel has asked for bytes of `read`; also if there are none
    std::shared_ptr<WrittenFile> written;
  };
  /// An open folder: where its listing is. Offsets that the kernel passes back count entries from 1; 0 is the
  /// beginning.
  struct OpenFolder {
    std::mutex mutex;
    std::string key;
    bool begun = false;
    std::set<std::string> local;  // what the store has not shown yet; at the end, it is the last page
    uint64_t first = 0;           // the number of the first entry of `page`
    RemoteTree::Page page;
  };

  static Server& Of(Request request) { return *static_cast<Server*>(fuse_req_userdata(request)); }
  static OpenFile& FileOf(const fuse_file_info& file) { return *reinterpret_cast<OpenFile*>(file.fh); }

  /// Runs a call of the kernel: nothing that it throws may reach libfuse. `work` replies, or returns an error.
  template <typename Work>
  static void Answer(Request request, Work work, int (*errno_of)(const absl::Status&) = ErrnoOf) {
    absl::Status status;
    try {
      status = work(Of(request));
    } catch (const std::bad_alloc&) {
      status = absl::ResourceExhaustedError("there is no memory");
    }
    if (status.ok()) return;
    if (IsNews(status)) Of(request).Warn(status);
    fuse_reply_err(request, errno_of(status));
  }
  /// Runs a call that changes something.
  template <typename Work>
  static void AnswerChange(Request request, Work work) {
    Answer(request, std::move(work), ErrnoOfChange);
  }
  /// What is not there, or was replaced, or is in the way is no news.
  static bool IsNews(const absl::Status& status);

  Patience PatienceOf(Request request) const;
  void Warn(const absl::Status& status);

  // What files and folders are (mount_server.cc).
  double Validity() const { return std::chrono::duration<double>(options_.metadata_ttl).count(); }
  struct stat StatOf(const Node& node, uint64_t inode) const;
  mode_t PermissionsOf(const Node& node) const;
  absl::StatusOr<Node> Known(uint64_t inode) const;
  absl::StatusOr<Node> Fresh(uint64_t inode, const Patience& patience);
  absl::StatusOr<std::string> KeyOf(uint64_t parent, const char* name) const;
  static Node NodeOf(const WrittenFile& file);
  absl::StatusOr<Node> Find(uint64_t parent, const char* name, const Patience& patience) const;
  absl::Status Lookup(Request request, uint64_t parent, const char* name);
  absl::Status GetAttributes(Request request, uint64_t inode);

  // Folders (mount_server.cc).
  absl::Status OpenDirectory(Request request, uint64_t inode, fuse_file_info& file);
  absl::Status ReadDirectory(Request request, uint64_t inode, size_t size, off_t offset, const fuse_file_info& file,
                             bool plus);
  absl::Status NextPage(OpenFolder& folder, std::string continuation, const Patience& patience);
  absl::StatusOr<const RemoteTree::Entry*> EntryAt(OpenFolder& folder, uint64_t number, const Patience& patience);
  bool AddEntry(Request request, std::vector<char>& out, size_t size, const RemoteTree::Entry& entry, uint64_t next,
                bool plus);
  bool AddDot(Request request, std::vector<char>& out, size_t size, const char* name, uint64_t inode, uint64_t next,
              bool plus) const;

  // Files that are read (mount_server.cc).
  absl::Status OpenToRead(Request request, uint64_t inode, fuse_file_info& file);
  absl::Status ReadFile(Request request, size_t size, off_t offset, const fuse_file_info& file);
  static void ReplyOpen(Request request, std::unique_ptr<OpenFile> open, fuse_file_info& file);

  // Writing (mount_writing.cc).
  absl::Status CheckWritable() const;
  absl::Status Settle(const std::string& key, const Patience& patience);
  absl::Status AwaitReplacement(const std::string& key, const Patience& patience);
  absl::Status OpenToWrite(Request request, uint64_t inode, fuse_file_info& file);
  absl::Status CreateFile(Request request, uint64_t parent, const char* name, fuse_file_info& file);
  absl::StatusOr<std::shared_ptr<WrittenFile>> BeginWriting(Request request, std::string key, bool replaces);
  absl::Status WriteFile(Request request, ByteSpan bytes, off_t offset, const fuse_file_info& file);
  absl::Status FlushFile(Request request, const fuse_file_info& file);
  absl::Status SyncFile(Request request, const fuse_file_info& file);
  absl::Status FinishFile(WrittenFile& file, const Patience& patience);
  void AbandonFile(WrittenFile& file);
  void ReleaseFile(Request request, fuse_file_info& file);
  absl::Status SetAttributes(Request request, uint64_t inode, const struct stat& wanted, int which,
                             const fuse_file_info* file);
  absl::Status MakeFolder(Request request, uint64_t parent, const char* name);
  absl::Status RemoveFolder(Request request, uint64_t parent, const char* name);
  absl::Status RemoveFile(Request request, uint64_t parent, const char* name);
  absl::Status Rename(Request request, uint64_t parent, const char* name, uint64_t new_parent, const char* new_name,
                      unsigned flags);
  absl::Status RenameFolder(const std::string& from, const std::string& to, const Patience& patience);
  absl::Status CheckTarget(const std::string& to, bool no_replace, const Patience& patience);
  absl::Status DeleteSource(const Node& copied, const Patience& patience);
  absl::Status RenameFile(const Node& from, const std::string& to, bool no_replace, const Patience& patience);
  absl::Status Delete(const std::string& key, const Patience& patience);
  absl::Status DeleteVersion(const Node& file, const Patience& patience);
  void KeepFolderOf(const std::string& key);

  static fuse_lowlevel_ops Operations();
  static void AddWriting(fuse_lowlevel_ops& operations);
  void OnInit(fuse_conn_info& connection);

  ObjectStore& store_;
  MemoryBudget& memory_;
  const std::string prefix_;
  const MountOptions options_;
  const RemoteTree tree_;
  BlockTier tier_;
  BlockTier around_;
  MemoryBudget around_room_;
  InodeTable inodes_;
  LocalTree local_;
  LookAhead ahead_;
  const std::chrono::system_clock::time_point mounted_at_;
  std::atomic<int64_t> warned_ms_{0};
  std::function<void()> ready_;
  dev_t below_ = 0;  // the device of the folder that is mounted on
  std::once_flag opened_;
  fuse_session* session_ = nullptr;
  mutable LifeOfOthers life_;  // may call this mount: ends after the session, which fails such calls
};

}  // namespace millrace
