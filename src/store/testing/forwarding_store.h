#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/memory_store.h"

namespace millrace {

/// Forwards every call to another store, which it owns. A test overrides what it watches or spoils.
class ForwardingStore : public ObjectStore {
 public:
  explicit ForwardingStore(std::unique_ptr<ObjectStore> below)
      : ObjectStore(below->traits()), below_(std::move(below)) {}
  /// Forwards to an empty store in memory.
  explicit ForwardingStore(StoreTraits traits = {.root = "test://"})
      : ObjectStore(std::move(traits)), below_(std::make_unique<MemoryStore>("below")) {}

  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override {
    below_->Get(std::move(key), into, std::move(options), std::move(done));
  }
  void Head(std::string key, HeadOptions options, HeadCallback done) override {
    below_->Head(std::move(key), options, std::move(done));
  }
  void Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) override {
    below_->Put(std::move(key), body, std::move(options), std::move(done));
  }
  void Copy(const ObjectStore& from, ObjectInfo source, std::string key, CopyOptions options,
            PutCallback done) override {
    below_->Copy(from, std::move(source), std::move(key), std::move(options), std::move(done));
  }
  void Delete(std::vector<std::string> keys, DeleteCallback done) override {
    below_->Delete(std::move(keys), std::move(done));
  }
  void DeleteVersion(std::string key, std::string etag, DoneCallback done) override {
    below_->DeleteVersion(std::move(key), std::move(etag), std::move(done));
  }
  void List(ListOptions options, ListCallback done) override { below_->List(std::move(options), std::move(done)); }
  absl::StatusOr<std::unique_ptr<PieceWriter>> WritePieces(std::string key, PutOptions options) override {
    return below_->WritePieces(std::move(key), std::move(options));
  }
  absl::Status RemoveTemporary(const std::string& prefix) override { return below_->RemoveTemporary(prefix); }
  const RequestCounters& counters() const override { return below_->counters(); }

 protected:
  ObjectStore& below() { return *below_; }
  /// Ends the calls, whose callbacks use what is about to go. It is for destructors.
  void Close() { below_.reset(); }

 private:
  std::unique_ptr<ObjectStore> below_;
};

}  // namespace millrace
