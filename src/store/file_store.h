#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/atomic_file.h"
#include "base/thread_pool.h"
#include "base/unique_fd.h"
#include "s3/span_verifier.h"
#include "store/file_walk.h"
#include "store/object_store.h"

namespace millrace {

/// Keeps objects as the files of a folder, local or mounted. A key is a path below it; links are followed. The folder
/// need not exist until something is listed; writing makes it. Files appear whole and durable (temporary file, fsync,
/// rename, fsync of the folder). Their mode is 0666 less the umask, or that of the file which they replace. Folders
/// that become empty stay. ETags are those of FileEtag (store/file_system.h).
///
/// Reads and writes block threads of the store's own, eight of them: enough to keep a disk or a network mount busy.
class FileStore final : public ObjectStore {
 public:
  /// `root` is an absolute path without a '/' at its end, or "/". With `within`, the store only reads, and only files
  /// that are in these folders after all links are followed. Other files get PermissionDenied, and are in no listing.
  explicit FileStore(std::string root, std::vector<std::string> within = {});
  /// Opens a folder of the program's own. Its files have the folder's mode, those of other users get PermissionDenied,
  /// and links in it are not followed.
  explicit FileStore(OwnFolder own);
  ~FileStore() override;

  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override;
  void Head(std::string key, HeadOptions options, HeadCallback done) override;
  void Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) override;
  void Delete(std::vector<std::string> keys, DeleteCallback done) override;
  void DeleteVersion(std::string key, std::string etag, DoneCallback done) override;
  void List(ListOptions options, ListCallback done) override;
  absl::StatusOr<std::unique_ptr<PieceWriter>> WritePieces(std::string key, PutOptions options) override;
  absl::Status RemoveTemporary(const std::string& prefix) override;
  const RequestCounters& counters() const override { return counters_; }

 private:
  class Writer;

  FileStore(std::string root, std::vector<std::string> within, std::optional<OwnFolder> own);
  absl::StatusOr<UniqueFd> OpenToRead(const std::string& uri) const;
  absl::StatusOr<std::unique_ptr<AtomicFile>> CreateFile(const std::string& path, const PutOptions& options) const;
  absl::Status Check(const std::string& key) const;
  absl::Status CheckChange(const std::string& key) const;
  absl::Status CheckMayWrite(const std::string& key) const;
  absl::Status CheckWrite(const std::string& key, const PutOptions& options) const;
  absl::StatusOr<GetResult> Read(const std::string& key, MutableByteSpan into, const GetOptions& options);
  absl::Status ReadPieces(int fd, const std::string& uri, MutableByteSpan into, const GetOptions& options,
                          SpanVerifier& spans);
  absl::StatusOr<ObjectInfo> Stat(const std::string& key) const;
  absl::StatusOr<ObjectInfo> Store(const std::string& key, ByteSpan body, const PutOptions& options);
  absl::Status Remove(const std::string& key) const;
  absl::Status RemoveVersion(const std::string& key, const std::string& etag) const;
  absl::StatusOr<ListPage> Page(const ListOptions& options);
  absl::StatusOr<std::unique_ptr<FileWalk>> ResumeWalk(const ListOptions& options);
  void ParkWalk(const ListOptions& options, const std::string& continuation, std::unique_ptr<FileWalk> walk);

  const std::string root_;
  RequestCounters counters_;
  std::atomic<bool> stopping_{false};

  // Walks are kept between two pages, so that the next page need not read and sort its folder again. The latest is
  // first, and they are a few at most: a continuation whose walk is gone starts a new one at its key.
  std::mutex walks_mutex_;
  std::list<std::pair<std::string, std::unique_ptr<FileWalk>>> walks_;

  ThreadPool threads_;  // last: its end waits for the callbacks, which use the rest
};

}  // namespace millrace
