#include "dataset/build_listing.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace millrace {

namespace {

// Lists some of the shards of a data set.
class ChosenShards final : public ObjectSource {
 public:
  ChosenShards(std::unique_ptr<ObjectSource> all, ChooseShard only) : all_(std::move(all)), only_(std::move(only)) {}

  absl::StatusOr<std::optional<IndexedObject>> Next() override {
    while (true) {
      ASSIGN_OR_RETURN(std::optional<IndexedObject> next, all_->Next());
      if (!next) {
        ended_ = true;
        return std::nullopt;
      }
      if (!AreShards(kind())) {
        return absl::InvalidArgumentError(
            fmt::format("'{}' is no shard, and only the indexing of shards (*.tar, *.tfrecord, *.rec, *.mds) is "
                        "divided into parts: index this without --part",
                        next->key));
      }
      if (!only_(number_++, *next)) continue;
      bytes_ += next->size;
      return next;
    }
  }
  DataKind kind() const override { return all_->kind(); }
  const std::vector<std::string>& companions() const override { return all_->companions(); }
  const ObjectInfo* FindIdx(const std::string& key) const override { return all_->FindIdx(key); }
  const SkippedObjects& skipped() const override { return all_->skipped(); }
  uint64_t total_bytes() const override { return ended_ ? bytes_ : 0; }

 private:
  const std::unique_ptr<ObjectSource> all_;
  const ChooseShard only_;
  uint64_t number_ = 0;
  uint64_t bytes_ = 0;
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<ObjectSource> MakeListing(const DatasetPlace& data, const BuildOptions& options) {
  const Listing listing = options.tokens ? Listing::kTokenArrays : Listing::kByName;
  if (options.manifest != nullptr) return std::make_unique<ManifestObjects>(*options.manifest, options.stop);
  auto objects = std::make_unique<SampleObjects>(data, options.stop, listing);
  if (!options.only) return objects;
  return std::make_unique<ChosenShards>(std::move(objects), options.only);
}

}  // namespace millrace
