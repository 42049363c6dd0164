#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "store/object_store.h"

namespace millrace {

/// A store that also reads joined objects (joined_objects.h): a range of them by a GET of each object that it touches.
/// All else, and every other key, goes to the store below.
class JoinedStore final : public ObjectStore {
 public:
  /// The store below must outlive it, and answers its callbacks after its destruction as well.
  explicit JoinedStore(ObjectStore& below) : ObjectStore(below.traits()), below_(below) {}

  /// Of joined objects nothing is `whole`: each one that is read from its first byte to its last is, by itself.
  void Get(std::string key, MutableByteSpan into, GetOptions options, GetCallback done) override;
  /// Of joined objects, all of them: FailedPrecondition if a size is not the one in the key.
  void Head(std::string key, HeadOptions options, HeadCallback done) override;

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
  void List(ListOptions options, ListCallback done) override { below_.List(std::move(options), std::move(done)); }
  absl::StatusOr<std::unique_ptr<PieceWriter>> WritePieces(std::string key, PutOptions options) override {
    return below_.WritePieces(std::move(key), std::move(options));
  }
  absl::Status RemoveTemporary(const std::string& prefix) override { return below_.RemoveTemporary(prefix); }
  const RequestCounters& counters() const override { return below_.counters(); }

 private:
  ObjectStore& below_;
};

}  // namespace millrace
