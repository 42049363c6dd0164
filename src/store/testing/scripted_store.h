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

#include "store/memory_store.h"

namespace millrace {

/// Objects in memory whose reads and writes a test watches and spoils. Set the hooks before the first call.
class ScriptedStore final : public ObjectStore {
 public:
  explicit ScriptedStore(std::string name = "scripted") : below_(std::move(name)) {}

  // What is done instead of a read; it may go on by `read`, now or later. `times`: how often this range was read
  // before.
  std::function<void(const GetOptions& options, int times, absl::AnyInvocable<void()> read, GetCallback& done)> on_get;
  std::function<void(MutableByteSpan bytes, const GetOptions& options, int times)> damage;  // after a read
  std::function<absl::Status(size_t index)> on_write;                                       // of a piece
  std::function<void(const std::string& key)> on_head;                                      // when it is asked
  std::function<void()> before_head_answer;                                                 // on the store's thread
  std::optional<ObjectChecksum> checksum;                                                   // of every object
  uint64_t part_bytes = 0;
  PieceLimits limits;

  // What was asked for.
  std::vector<GetOptions> gets() const {
    std::lock_guard lock(mutex_);
    return gets_;
  }
  std::vector<size_t> written() const {
    std::lock_guard lock(mutex_);
    return written_;
  }

  std::string Uri(std::string_view key) const override { return below_.Uri(key); }

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
    if (!on_get) return below_.Get(std::move(key), into, options, std::move(then));
    auto shared = std::make_shared<GetCallback>(std::move(then));
    on_get(
        options, times,
        [this, key, into, options, shared] {
          below_.Get(key, into, options, [shared](absl::StatusOr<GetResult> got) { (*shared)(std::move(got)); });
        },
        *shared);
  }
  void Head(std::string key, HeadCallback done) override {
    if (on_head) on_head(key);
    below_.Head(std::move(key), [this, done = std::move(done)](absl::StatusOr<ObjectInfo> info) mutable {
      if (before_head_answer) before_head_answer();
      if (info.ok()) info->checksum = checksum;
      std::move(done)(std::move(info));
    });
  }
  void HeadParts(std::string key, HeadCallback done) override {
    below_.Head(std::move(key), [this, done = std::move(done)](absl::StatusOr<ObjectInfo> info) mutable {
      if (info.ok()) info->part_bytes = part_bytes;
      std::move(done)(std::move(info));
    });
  }
  void Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) override {
    below_.Put(std::move(key), body, std::move(options), std::move(done));
  }
  void Delete(std::string key, DoneCallback done) override { below_.Delete(std::move(key), std::move(done)); }
  void List(ListOptions options, ListCallback done) override { below_.List(std::move(options), std::move(done)); }
  absl::StatusOr<std::unique_ptr<ObjectWriter>> Write(std::string key, PutOptions options) override {
    return below_.Write(std::move(key), std::move(options));
  }
  absl::StatusOr<std::unique_ptr<PieceWriter>> WritePieces(std::string key, Pieces pieces,
                                                           PutOptions options) override {
    ASSIGN_OR_RETURN(auto writer, below_.WritePieces(std::move(key), pieces, std::move(options)));
    return std::make_unique<Watched>(*this, std::move(writer));
  }
  PieceLimits piece_limits() const override { return limits; }
  const RequestCounters& counters() const override { return below_.counters(); }

 private:
  class Watched final : public PieceWriter {
   public:
    Watched(ScriptedStore& store, std::unique_ptr<PieceWriter> below) : store_(store), below_(std::move(below)) {}
    void Write(size_t index, ByteSpan bytes, DoneCallback done) override {
      {
        std::lock_guard lock(store_.mutex_);
        store_.written_.push_back(index);
      }
      absl::Status status = store_.on_write ? store_.on_write(index) : absl::OkStatus();
      if (!status.ok()) return std::move(done)(std::move(status));
      below_->Write(index, bytes, std::move(done));
    }
    absl::StatusOr<ObjectInfo> Commit() override { return below_->Commit(); }

   private:
    ScriptedStore& store_;
    const std::unique_ptr<PieceWriter> below_;
  };

  mutable std::mutex mutex_;
  std::vector<GetOptions> gets_;
  std::map<std::pair<std::string, uint64_t>, int> times_;
  std::vector<size_t> written_;
  MemoryStore below_;  // last: its callbacks end before the rest goes
};

}  // namespace millrace
