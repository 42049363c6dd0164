#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "base/crypto.h"
#include "base/rng.h"
#include "pack/pack.h"
#include "shard/field_value.h"
#include "store/blocking.h"

namespace millrace::testing {

/// Has data sets in memory, packed by a runtime with little of it.
class PackTest : public ::testing::Test {
 protected:
  void Put(const std::string& uri, const std::string& key, std::string_view bytes) {
    const auto location = stores_.Open(uri);
    const auto put = PutBlocking(*location->store, location->Key(key), AsBytes(bytes));
    ASSERT_TRUE(put.ok()) << put.status();
  }
  std::unique_ptr<Dataset> Open(const std::string& uri) {
    auto dataset = Dataset::Open(runtime_, stores_, uri);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return dataset.ok() ? *std::move(dataset) : nullptr;
  }
  absl::StatusOr<PackReport> Run(const std::string& from, const std::string& to, uint64_t shard_bytes = 256 << 20,
                                 bool force = false) {
    auto dataset = Dataset::Open(runtime_, stores_, from);
    if (!dataset.ok()) return dataset.status();
    PackOptions options;
    options.shard_bytes = shard_bytes;
    options.force = force;
    return Pack(runtime_, stores_, **dataset, to, options);
  }
  absl::StatusOr<PackReport> Run(const std::string& from, const std::string& to, const PackOptions& options) {
    auto dataset = Dataset::Open(runtime_, stores_, from);
    if (!dataset.ok()) return dataset.status();
    return Pack(runtime_, stores_, **dataset, to, options);
  }
  // Leaves what a pack that was ended leaves: every second shard is there.
  void BeginOnly(const std::string& from, const std::string& to, uint64_t shard_bytes) {
    PackOptions options;
    options.shard_bytes = shard_bytes;
    options.parts = 2;
    const auto report = Run(from, to, options);
    ASSERT_TRUE(report.ok()) << report.status();
    ASSERT_FALSE(report->complete);
  }
  // Returns all shards one behind the other.
  std::string Shards(const std::string& uri) {
    std::string all;
    const auto location = stores_.Open(uri);
    for (const std::string& key : Keys(uri)) {
      if (key.find("/shard-") != std::string::npos) all += *ReadAll(*location->store, key, 1 << 30);
    }
    return all;
  }
  std::vector<std::string> Keys(const std::string& uri) {
    const auto location = stores_.Open(uri);
    std::vector<std::string> keys;
    const auto objects = ListAll(*location->store, location->Key(""));
    for (const ObjectInfo& object : *objects) keys.push_back(object.key);
    return keys;
  }
  std::string ReadKey(const std::string& uri, const std::string& key) {
    const auto location = stores_.Open(uri);
    const auto bytes = ReadAll(*location->store, location->Key(key), 1 << 30);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    return bytes.ok() ? *bytes : "";
  }

  std::string ValueOf(const Dataset& dataset, const IndexedSample& sample, const IndexedField& field) {
    if (field.is_inline) return std::string(field.inline_text);
    IndexedObject object;
    EXPECT_TRUE(dataset.index().LookupObject(sample.object, &object).ok());
    const auto bytes = ReadAll(dataset.store(), dataset.StoreKey(object.key), 1 << 30);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    if (!bytes.ok()) return "";
    std::string scratch;
    const auto value =
        FieldValue(field.encoding, AsBytes(*bytes).subspan(sample.span.offset + field.offset, field.length), &scratch);
    EXPECT_TRUE(value.ok()) << value.status();
    return value.ok() ? std::string(AsText(*value)) : "";
  }

  // Returns the digest of the interface, of all samples in index order.
  std::string Digest(const std::string& uri) {
    const auto dataset = Open(uri);
    if (dataset == nullptr) return "";
    Uint128 sum;
    Xxh3Stream hash;
    IndexedSample sample;
    for (uint64_t i = 0; i < dataset->index().size(); ++i) {
      EXPECT_TRUE(dataset->index().Lookup(i, &sample).ok());
      hash.Reset();
      hash.UpdateLe64(0);
      hash.UpdateLe64(i);
      const auto update = [&hash](std::string_view text) {
        hash.UpdateLe64(text.size());
        hash.Update(AsBytes(text));
      };
      update(sample.key);
      for (const IndexedField& field : sample.fields) {
        update(field.name);
        update(ValueOf(*dataset, sample, field));
      }
      sum += hash.Digest();
    }
    return sum.Hex();
  }

  void PutRawObjects(const std::string& uri, uint64_t seed) {
    Rng rng(seed);
    for (int i = 0; i < 60; ++i) {
      std::string data(i == 20 ? 0 : i == 30 ? 200'000 : rng.Below(3000), '\0');
      for (char& c : data) c = static_cast<char>(rng.Next());
      if (data.size() >= 3) data.replace(0, 3, "\xff\xd8\xff");  // as a JPEG begins
      const char* const folders[] = {"", "a-b/", "a/", "a.b/x/", "Z/"};
      const std::string name = i == 40 ? std::string(120, 'n') + "/" + std::string(180, 'm') : fmt::format("{:03}", i);
      const std::string key = folders[i % 5] + name;
      const bool masked = i % 7 != 0 && i % 3 == 0;  // then the sample has two objects
      const char* const ending = i % 7 == 0 ? "JPG" : masked ? "seg.png" : i == 20 ? "bin" : "jpg";
      Put(uri, fmt::format("{}.{}", key, ending), data);
      if (masked) Put(uri, key + ".txt", key);
    }
  }

  Runtime runtime_{
      {.io_threads = 1, .cpu_threads = 1, .memory_bytes = 1 << 20}};  // pieces of 64 KiB: one sample is larger
  Stores stores_{runtime_};
};

}  // namespace millrace::testing
