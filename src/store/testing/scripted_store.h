#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/piece_copier.h"
#include "store/testing/forwarding_store.h"

namespace millrace {

/// Keeps objects in memory whose reads and writes a test watches and spoils. Set the hooks before the first call.
class ScriptedStore final : public ForwardingStore {
 public:
  explicit ScriptedStore(const std::string& name = "scripted") : ForwardingStore(std::make_unique<MemoryStore>(name)) {}
  ~ScriptedStore() override { Close(); }

  // Runs instead of a read; it may continue with the read by `read`, now or later. `times`: how often this range was
  // read before.
  std::function<void(const GetOptions& options, int times, absl::AnyInvocable<void()> read, GetCallback& done)> on_get;
  std::function<void(MutableByteSpan bytes, const GetOptions& options, int times)> damage;  // after a read
  std::function<absl::Status(size_t index)> on_write;                                       // of a piece
  std::function<void(const std::string& key)> on_head;                                      // when it is asked
  std::function<void()> before_head_answer;                                                 // on the store's thread
  std::optional<ObjectChecksum> checksum;                                                   // of every object
  uint64_t part_bytes = 0;
  bool copies = true;  // pieces of an object

  void set_medium(StoreTraits::Medium medium) { traits_.medium = medium; }
  void set_limits(PieceLimits limits) { traits_.pieces = limits; }

  // These return what was asked for.
  std::vector<GetOptions> gets() const {
    std::lock_guard lock(mutex_);
    return gets_;
  }
  std::vector<ByteRange> copied() const {
    std::lock_guard lock(mutex_);
    return copied_;
  }
  std::vector<size_t> written() const {
    std::lock_guard lock(mutex_);
    return written_;
  }

  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override {
    int times = 0;
    {
      std::lock_guard lock(mutex_);
      gets_.push_back(options);
      times = times_[{key, options.range.offset}]++;
    }
    GetCallback then = [this, into, options, times, done = std::move(done)](absl::StatusOr<GetResult> got) mutable {
      if (got.ok() && damage) damage(into, options, times);
      std::move(done)(std::move(got));
    };
    if (!on_get) return below().Get(std::move(key), into, options, std::move(then));
    auto shared = std::make_shared<GetCallback>(std::move(then));
    on_get(
        options, times,
        [this, key, into, options, shared] {
          below().Get(key, into, options, [shared](absl::StatusOr<GetResult> got) { (*shared)(std::move(got)); });
        },
        *shared);
  }
  void Head(std::string key, HeadOptions options, HeadCallback done) override {
    if (on_head && !options.parts) on_head(key);
    below().Head(std::move(key), options,
                 [this, options, done = std::move(done)](absl::StatusOr<ObjectInfo> info) mutable {
                   if (before_head_answer && !options.parts) before_head_answer();
                   if (info.ok() && options.parts) info->part_bytes = part_bytes;
                   if (info.ok() && !options.parts) info->checksum = checksum;
                   std::move(done)(std::move(info));
                 });
  }
  absl::StatusOr<std::unique_ptr<PieceWriter>> WritePieces(std::string key, PutOptions options) override {
    ASSIGN_OR_RETURN(auto writer, below().WritePieces(std::move(key), std::move(options)));
    return std::make_unique<Watched>(*this, std::move(writer));
  }

 private:
  class Watched final : public PieceCopier {
   public:
    Watched(ScriptedStore& store, std::unique_ptr<PieceWriter> below) : store_(store), below_(std::move(below)) {}
    void Write(size_t index, uint64_t offset, ByteSpan bytes, std::optional<uint32_t> crc32c,
               DoneCallback done) override {
      {
        std::lock_guard lock(store_.mutex_);
        store_.written_.push_back(index);
      }
      absl::Status status = store_.on_write ? store_.on_write(index) : absl::OkStatus();
      if (!status.ok()) return std::move(done)(std::move(status));
      below_->Write(index, offset, bytes, crc32c, std::move(done));
    }
    void Copy(size_t index, uint64_t offset, const ObjectInfo& source, ByteRange range, DoneCallback done) override {
      {
        std::lock_guard lock(store_.mutex_);
        store_.copied_.push_back(range);
      }
      if (!store_.copies) return std::move(done)(absl::UnimplementedError("this store copies no pieces"));
      dynamic_cast<PieceCopier&>(*below_).Copy(index, offset, source, range, std::move(done));
    }
    void Commit(uint64_t object_bytes, PutCallback done) override { below_->Commit(object_bytes, std::move(done)); }

   private:
    ScriptedStore& store_;
    const std::unique_ptr<PieceWriter> below_;
  };

  mutable std::mutex mutex_;
  std::vector<GetOptions> gets_;
  std::map<std::pair<std::string, uint64_t>, int> times_;
  std::vector<size_t> written_;
  std::vector<ByteRange> copied_;
};

}  // namespace millrace
