#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/object_store.h"

namespace millrace {

/// Is a store around another one, which it does not own: it has its traits and forwards every call. A derived class
/// overrides what it does otherwise.
class StoreAround : public ObjectStore {
 public:
  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override {
    below_.Get(std::move(key), into, std::move(options), std::move(done));
  }
  void Head(std::string key, HeadOptions options, HeadCallback done) override {
    below_.Head(std::move(key), options, std::move(done));
  }
  void Put(std::string key, ByteSpan body, PutOptions options, PutCallback done) override {
    below_.Put(std::move(key), body, std::move(options), std::move(done));
  }
  void Copy(const ObjectStore& from, ObjectInfo source, std::string key, CopyOptions options,
            PutCallback done) override {
    below_.Copy(from, std::move(source), std::move(key), std::move(options), std::move(done));
  }
  void Delete(std::vector<std::string> keys, DeleteCallback done) override {
    below_.Delete(std::move(keys), std::move(done));
  }
  void DeleteVersion(std::string key, std::string etag, DoneCallback done) override {
    below_.DeleteVersion(std::move(key), std::move(etag), std::move(done));
  }
  void List(ListOptions options, ListCallback done) override { below_.List(std::move(options), std::move(done)); }
  absl::StatusOr<std::unique_ptr<PieceWriter>> WritePieces(std::string key, PutOptions options) override {
    return below_.WritePieces(std::move(key), std::move(options));
  }
  absl::Status RemoveTemporary(const std::string& prefix) override { return below_.RemoveTemporary(prefix); }
  const RequestCounters& counters() const override { return below_.counters(); }

 protected:
  /// `below` must outlive it, and its callbacks.
  explicit StoreAround(ObjectStore& below) : ObjectStore(below.traits()), below_(below) {}

  ObjectStore& below_;
};

}  // namespace millrace
