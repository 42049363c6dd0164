#include "simulated_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "dataset/index_writer.h"
#include "store/blocking.h"
#include "store/testing/forwarding_store.h"

namespace millrace {

namespace {

constexpr uint64_t kDataDomain = 0x7363616c652d6461;  // "scale-da"
constexpr uint64_t kTarBlock = 512;
constexpr uint64_t kLookedAt = 10'000;  // objects, by opening

class LikeS3 final : public ForwardingStore {
 public:
  LikeS3(std::unique_ptr<ObjectStore> below, const StoreTraits& s3) : ForwardingStore(std::move(below)) {
    traits_.gap_bytes = s3.gap_bytes;
  }
};

struct Shard {
  std::string key;
  uint64_t first = 0;  // sample
  uint64_t last = 0;   // one past
};

class DataWriter {
 public:
  DataWriter(const Location& place, const DataModel& model) : place_(place), model_(model), rng_(kDataDomain) {
    per_shard_ = std::max<uint64_t>(1, model.shard_bytes / model.sample_bytes);
    shards_ = (model.samples + per_shard_ - 1) / per_shard_;
  }

  absl::Status Write() {
    ASSIGN_OR_RETURN(std::unique_ptr<ObjectWriter> out, place_.store->Write(place_.Key(".millrace/index"), {}));
    IndexWriter writer(DataKind::kTar, std::move(out));
    for (uint64_t number = 0; number < shards_; ++number) RETURN_IF_ERROR(WriteShard(number, writer));
    return writer.Finish().status();
  }

 private:
  // Neighbours lie in one folder, and keys ascend.
  std::string KeyOf(uint64_t number) const {
    const uint64_t folder = number * model_.prefixes / shards_;
    return fmt::format("part-{:04}/shard-{:08}.tar", folder, number);
  }

  absl::Status WriteShard(uint64_t number, IndexWriter& writer) {
    uint64_t offset = 0;
    const uint64_t last = std::min(model_.samples, (number + 1) * per_shard_);
    for (uint64_t sample = number * per_shard_; sample < last; ++sample) {
      const std::string key = fmt::format("{:010}", sample);
      const std::string label = fmt::format("{}", rng_.Below(1000));
      const uint64_t jpeg = model_.sample_bytes / 2 + rng_.Below(model_.sample_bytes);
      const uint64_t padded = (jpeg + kTarBlock - 1) / kTarBlock * kTarBlock;
      const NewSampleField fields[] = {
          {.name = "jpg", .offset = offset + kTarBlock, .length = jpeg},
          {.name = "cls", .offset = offset + 2 * kTarBlock + padded, .length = label.size()}};
      offset = fields[1].offset + kTarBlock;
      RETURN_IF_ERROR(writer.AddSample(
          {.key = key, .fields = fields, .crc32c = static_cast<uint32_t>(rng_.Next()), .label = label}));
    }
    IndexedObject object{.key = KeyOf(number), .size = offset + 2 * kTarBlock, .etag = fmt::format("{:032x}", number)};
    if (shards_ <= kLookedAt) {
      RETURN_IF_ERROR(MakeFile(object));
      ASSIGN_OR_RETURN(const ObjectInfo made, HeadBlocking(*place_.store, place_.Key(object.key)));
      object.etag = made.etag;
    }
    return writer.AddObject(object);
  }

  // All of it is a hole.
  absl::Status MakeFile(const IndexedObject& object) const {
    const std::filesystem::path path = place_.store->Uri(place_.Key(object.key));
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    std::ofstream(path).close();
    if (!error) std::filesystem::resize_file(path, object.size, error);
    if (!error) return absl::OkStatus();
    return absl::UnavailableError(
        fmt::format("{}: making a file without contents failed: {}", path.string(), error.message()));
  }

  const Location place_;
  const DataModel model_;
  Rng rng_;
  uint64_t per_shard_ = 1;
  uint64_t shards_ = 1;
};

}  // namespace

absl::StatusOr<Stores::Wrap> AsOnS3(Runtime& runtime) {
  Stores stores(runtime);
  ASSIGN_OR_RETURN(const Location bucket, stores.Open("s3://bucket"));  // asks nothing
  return Stores::Wrap([traits = bucket.store->traits()](
                          std::unique_ptr<ObjectStore> below) -> absl::StatusOr<std::unique_ptr<ObjectStore>> {
    return std::make_unique<LikeS3>(std::move(below), traits);
  });
}

absl::StatusOr<std::unique_ptr<Dataset>> OpenSimulatedData(Runtime& runtime, Stores& stores, const std::string& folder,
                                                           const DataModel& model) {
  if (!std::filesystem::exists(folder + "/.millrace/index")) {
    ASSIGN_OR_RETURN(const Location place, stores.Open(folder));
    RETURN_IF_ERROR(DataWriter(place, model).Write());
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Dataset> data, Dataset::Open(runtime, stores, folder));
  if (data->index().size() == model.samples) return data;
  return absl::FailedPreconditionError(
      fmt::format("{}: holds an index of {} samples, not of {}; choose another folder, or remove this one", folder,
                  data->index().size(), model.samples));
}

}  // namespace millrace
