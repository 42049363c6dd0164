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
#include <string_view>
#include <utility>
#include <vector>

#include "base/life_of_others.h"
#include "mount/attribute_table.h"
#include "mount/block_tier.h"
#include "mount/delayed_files.h"
#include "mount/inode_table.h"
#include "mount/local_tree.h"
#include "mount/look_ahead.h"
#include "mount/mount.h"
#include "mount/mount_errno.h"
#include "mount/patience.h"
#include "mount/read_window.h"
#include "mount/remote_tree.h"
#include "mount/staging.h"
#include "mount/written_file.h"

/// Serves the calls of the kernel, each by a function that replies or returns an error. Only the files of the mount
/// include this.

namespace millrace {

constexpr size_t kMaxFuseRead = size_t{1} << 20;

class Mount::Server {
 public:
  Server(ObjectStore& store, MemoryBudget& memory, std::string prefix, MountOptions options,
         std::unique_ptr<StagingFolder> staging);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  absl::Status Begin();
  absl::Status Serve(std::function<void()> ready);

 private:
  using Request = fuse_req_t;

  /// Holds a handle of a file: one that reads, or one that may write.
  struct OpenFile {
    uint64_t inode = 0;
    // A handle that reads uses these.
    std::mutex mutex;
    std::shared_ptr<ReadWindow> read;  // of the version that the inode had when `commits` was what it is here
    Node version;
    uint64_t commits = 0;
    ReadWindow::Kernel kernel = ReadWindow::Kernel::kKeeps;
    std::atomic<bool> was_asked_for{false};  // the kernel has asked for bytes; also if there are none
    // A handle that may write uses these; it may also read.
    std::shared_ptr<WrittenFile> written;
    pid_t opener = 0;
    bool direct = false;              // what is written does not go through the memory of the kernel
    std::atomic<bool> closed{false};  // by the process that opened it, and nothing was written since
  };
  /// Holds an open folder, and where its listing is. Offsets that the kernel passes back count entries from 1; 0 is the
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
  /// Returns false for files that are not there, were replaced, or are in the way.
  static bool IsNews(const absl::Status& status);

  Patience PatienceOf(Request request) const;
  void Warn(const absl::Status& status);

  // Files and folders (mount_server.cc).
  double Validity() const { return std::chrono::duration<double>(options_.metadata_ttl).count(); }
  struct stat StatOf(const Node& node, uint64_t inode);
  mode_t PermissionsOf(const Node& node) const;
  absl::StatusOr<Node> Known(uint64_t inode) const;
  absl::StatusOr<Node> Fresh(uint64_t inode, const Patience& patience);
  absl::StatusOr<std::string> KeyOf(uint64_t parent, const char* name) const;
  std::shared_ptr<WrittenFile> ShownFile(const std::shared_ptr<WrittenFile>& file) const;
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
  absl::StatusOr<std::shared_ptr<ReadWindow>> WindowOf(OpenFile& open, const Patience& patience);
  std::unique_ptr<ReadWindow> OpenVersion(const Node& node, ReadWindow::Kernel kernel);
  static bool ReplyOpen(Request request, std::unique_ptr<OpenFile> open, fuse_file_info& file);

  // Files that are written (mount_writing.cc).
  absl::Status CheckWritable() const;
  WrittenFile::Services MakeServices();
  Patience ReleasePatience() const { return {std::chrono::steady_clock::now() + options_.timeout, {}}; }
  absl::StatusOr<Node> NewestOf(uint64_t inode, const Node& known, const Patience& patience);
  absl::StatusOr<std::shared_ptr<WrittenFile>> OpenWritten(uint64_t inode, const Patience& patience);
  absl::Status OpenToWrite(Request request, uint64_t inode, fuse_file_info& file);
  absl::Status CreateFile(Request request, uint64_t parent, const char* name, mode_t mode, fuse_file_info& file);
  absl::StatusOr<std::shared_ptr<WrittenFile>> MakeFile(Request request, std::string key, mode_t mode);
  std::unique_ptr<OpenFile> HandleOf(Request request, std::shared_ptr<WrittenFile> written, fuse_file_info& file) const;
  absl::Status WriteFile(Request request, ByteSpan bytes, off_t offset, const fuse_file_info& file);
  void ForgetTimes(const WrittenFile& file);
  void ForgetCached(const WrittenFile& file, ByteRange range);
  absl::Status FlushFile(Request request, const fuse_file_info& file);
  absl::Status SyncFile(Request request, const fuse_file_info& file);
  absl::Status Allocate(Request request, int mode, off_t offset, off_t length, const fuse_file_info& file);
  absl::Status CommitFile(const std::shared_ptr<WrittenFile>& file, const Patience& patience);
  void NoteVersion(const std::shared_ptr<WrittenFile>& file);
  void GiveUp(const std::shared_ptr<WrittenFile>& file);
  void GiveUpKilled(const std::shared_ptr<WrittenFile>& file);
  void ForgetName(const WrittenFile& file);
  bool Defer(const std::shared_ptr<WrittenFile>& file);
  bool CommitClosed(const std::shared_ptr<WrittenFile>& file);
  bool CommitLater(const std::shared_ptr<WrittenFile>& file);
  bool FlushLater(const std::shared_ptr<WrittenFile>& file);
  void CloseWriter(const std::shared_ptr<WrittenFile>& file, bool closed);
  void ReleaseFile(Request request, fuse_file_info& file);
  void FinishFile(WrittenFile& file, std::atomic<bool>& is_away);
  void FinishFiles();

  // The same with --no-staging (mount_streams.cc).
  absl::Status AwaitStream(const std::string& key, const Patience& patience);
  absl::Status AwaitReplacement(const std::string& key, const Patience& patience);
  absl::Status OpenStream(Request request, uint64_t inode, fuse_file_info& file);
  absl::Status CreateStream(Request request, uint64_t parent, const char* name, mode_t mode, fuse_file_info& file);
  absl::Status FlushStream(Request request, const OpenFile& open);
  absl::Status FinishStream(const std::shared_ptr<WrittenFile>& file, const Patience& patience);
  void AbandonStream(const std::shared_ptr<WrittenFile>& file);

  // Symbolic links (mount_links.cc).
  absl::Status CheckNoLinkKey(const std::string& key) const;
  absl::StatusOr<std::string> NewKeyOf(uint64_t parent, const char* name) const;
  static absl::StatusOr<std::string> LinkKeyOf(const std::string& key, const char* name);
  absl::StatusOr<Node> FindShown(uint64_t parent, const char* name, const std::string& key,
                                 const Patience& patience) const;
  absl::StatusOr<ObjectInfo> PutLink(const std::string& key, std::string target, const Patience& patience);
  absl::Status MakeLink(Request request, const char* target, uint64_t parent, const char* name);
  absl::Status ReadLink(Request request, uint64_t inode);

  // Attributes, folders, removing, renaming (mount_changes.cc).
  absl::Status SetSize(uint64_t inode, uint64_t size, const fuse_file_info* file, const Patience& patience);
  absl::Status SetAttributes(Request request, uint64_t inode, const struct stat& wanted, int which,
                             const fuse_file_info* file);
  absl::Status MakeFolder(Request request, uint64_t parent, const char* name, mode_t mode);
  absl::Status RemoveFolder(Request request, uint64_t parent, const char* name);
  absl::Status RemoveFile(Request request, uint64_t parent, const char* name);
  absl::StatusOr<std::shared_ptr<WrittenFile>> KeepForReaders(const Node& node, const Patience& patience);
  absl::Status RemoveName(const std::shared_ptr<WrittenFile>& file, const Patience& patience);
  absl::Status RemoveObject(const Node& node, const Patience& patience);
  absl::Status Rename(Request request, uint64_t parent, const char* name, uint64_t new_parent, const char* new_name,
                      unsigned flags);
  absl::Status RenameFolder(const std::string& from, const std::string& to, const Patience& patience);
  absl::Status CheckReplaced(const Node& from, const Node& to, bool no_replace, const Patience& patience);
  absl::StatusOr<bool> IsFreeForLink(const std::string& key, const Patience& patience) const;
  absl::Status CheckTarget(const std::string& to, bool no_replace, const Patience& patience);
  absl::Status DeleteSource(const Node& copied, const Patience& patience);
  absl::StatusOr<ObjectInfo> CopyFile(const Node& from, const std::string& to, bool only_if_absent,
                                      const Patience& patience);
  absl::Status RenameFile(const std::string& from, const std::string& to, bool no_replace, const Patience& patience);
  absl::Status Delete(const std::string& key, const Patience& patience);
  absl::Status DeleteVersion(const Node& file, const Patience& patience);
  void KeepFolderOf(const std::string& key);
  void NoteCreator(Request request, const std::string& key, mode_t permissions, bool is_usual);
  void NoteChangeBeside(const std::string& key);
  absl::Status RefuseKind(const char* what) const;

  // Extended attributes (mount_extended.cc).
  absl::StatusOr<std::string> KeyOfInode(uint64_t inode) const;
  absl::Status SetExtended(Request request, uint64_t inode, const char* name, std::string_view value, int flags);
  absl::Status GetExtended(Request request, uint64_t inode, const char* name, size_t room);
  absl::Status ListExtended(Request request, uint64_t inode, size_t room);
  absl::Status RemoveExtended(Request request, uint64_t inode, const char* name);

  static fuse_lowlevel_ops Operations();
  static void AddWriting(fuse_lowlevel_ops& operations);
  static void AddChanges(fuse_lowlevel_ops& operations);
  static void AddExtended(fuse_lowlevel_ops& operations);
  static void AddLinks(fuse_lowlevel_ops& operations);
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
  AttributeTable attributes_;
  std::unique_ptr<StagingFolder> staging_;  // null: files are streams
  const WrittenFile::Services services_;
  LocalTree local_;
  std::unique_ptr<DelayedFiles> write_back_;  // null: close waits for the store
  std::unique_ptr<DelayedFiles> idle_;        // may have bytes in memory only; null: there is no staging folder
  std::atomic<uint64_t> commits_{0};          // that have given an inode another version
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
