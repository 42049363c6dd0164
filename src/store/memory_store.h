#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "store/object_store.h"

namespace millrace {

/// Keeps objects in the memory of this process, for tests and examples; they are gone with the store. ETags count its
/// writes. Reads see an object as it was when they began. Callbacks run one after the other on the store's own thread.
class MemoryStore final : public ObjectStore {
 public:
  explicit MemoryStore(const std::string& name);
  ~MemoryStore() override;

  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override;
  void Head(std::string key, HeadOptions options, HeadCallback done) override;
  void Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) override;
  void Delete(std::vector<std::string> keys, DeleteCallback done) override;
  void DeleteVersion(std::string key, std::string etag, DoneCallback done) override;
  void List(ListOptions options, ListCallback done) override;
  absl::StatusOr<std::unique_ptr<PieceWriter>> WritePieces(std::string key, PutOptions options) override;
  const RequestCounters& counters() const override { return counters_; }

 private:
  class Writer;
  struct Object {
    std::string bytes;
    ObjectInfo info;
  };

  absl::StatusOr<std::shared_ptr<const Object>> Find(const std::string& key) const;
  absl::StatusOr<GetResult> Read(const std::string& key, MutableByteSpan into, const GetOptions& options);
  absl::StatusOr<ObjectInfo> Store(const std::string& key, std::string bytes, const PutOptions& options);
  absl::Status Remove(const std::string& key);
  absl::Status RemoveVersion(const std::string& key, const std::string& etag);
  ListPage Page(const ListOptions& options) const;

  RequestCounters counters_;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const Object>, std::less<>> objects_;
  uint64_t writes_ = 0;
  ThreadPool thread_;  // last: its end waits for the callbacks, which use the rest
};

}  // namespace millrace
